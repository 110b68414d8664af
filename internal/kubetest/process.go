package kubetest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// process is one process for good: its number is used again after it ended, its
// number and start time together are not.
type process struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // clock ticks since boot, as in /proc/PID/stat
}

// lookup finds the running process with the given number; a zombie does not run.
func lookup(pid int) (process, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, fmt.Errorf("looking up process %d: %w", pid, err)
	}
	return parseStat(pid, string(text))
}

// parseStat reads the state and the start time, fields 3 and 22. The name before
// them may hold spaces and parentheses.
func parseStat(pid int, text string) (process, error) {
	_, rest, ok := cutLast(text, ")")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 20 {
		return process{}, fmt.Errorf("looking up process %d: cannot read its stat %q", pid, text)
	}
	if state := fields[0]; state == "Z" || state == "X" {
		return process{}, fmt.Errorf("looking up process %d: it has ended", pid)
	}
	return process{PID: pid, Start: fields[19]}, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// alive reports whether exactly this process still runs.
func (p process) alive() bool {
	now, err := lookup(p.PID)
	return err == nil && now == p
}

// runOwner is the process whose end is the end of the run: the go command that
// started this test binary, or the test binary itself when something else did.
func runOwner() (process, error) {
	parent := os.Getppid()
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", parent)); err == nil && filepath.Base(exe) == "go" {
		if p, err := lookup(parent); err == nil {
			return p, nil
		}
	}
	return lookup(os.Getpid())
}
