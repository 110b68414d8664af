package machine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Load returns the machine whose folder is dir, and whether it runs.
func Load(dir string) (*Machine, bool, error) {
	spec, err := readSpec(filepath.Join(dir, "machine.json"))
	if err != nil {
		return nil, false, err
	}
	m := &Machine{Spec: spec, PID: findInit(spec)}
	return m, m.PID != 0, nil
}

// Started is when the running machine was started. If the host's clock was set since, it is the
// earlier of what the clock said then and what it says now of then: nothing that was written
// in this life of the machine is older.
func (m *Machine) Started() (time.Time, error) {
	written, err := os.Stat(m.file()) // by Start
	if err != nil {
		return time.Time{}, fmt.Errorf("looking when machine %s was started: %w", m.Name, err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.PID))
	if err != nil {
		return time.Time{}, fmt.Errorf("looking when machine %s was started: %w", m.Name, err)
	}
	const place, each = 19, time.Second / 100 // of the start, in ticks since the host's, after the name
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) <= place {
		return time.Time{}, fmt.Errorf("looking when machine %s was started: %q", m.Name, text)
	}
	ticks, err := strconv.ParseInt(fields[place], 10, 64)
	var running unix.Timespec
	if err := errors.Join(err, unix.ClockGettime(unix.CLOCK_BOOTTIME, &running)); err != nil {
		return time.Time{}, fmt.Errorf("looking when machine %s was started: %w", m.Name, err)
	}
	begun := time.Now().Add(time.Duration(ticks)*each - time.Duration(running.Nano()))
	if written.ModTime().Before(begun) {
		begun = written.ModTime()
	}
	return begun, nil
}

// Kill ends the machine as a power cut would, and returns when all its
// processes and control groups are gone. A kubelet that finds control groups of
// pods from before spends seconds on each.
func (m *Machine) Kill() error {
	err := killAll(m.group(), func(marker string) bool { return marker == m.Sandbox+"/"+m.Name })
	if err != nil {
		return err
	}
	return removeGroups(m.group())
}

// KillSandbox ends every process of every machine of a sandbox, whatever state
// a crash left them in.
func KillSandbox(sandbox string) error {
	return killAll(groupRoot+"/"+sandbox, func(marker string) bool { return strings.HasPrefix(marker, sandbox+"/") })
}

// RemoveGroups removes the control groups of a sandbox. Its processes must be
// gone.
func RemoveGroups(sandbox string) error { return removeGroups(groupRoot + "/" + sandbox) }

// Remaining lists the processes on the host that belong to a sandbox.
func Remaining(sandbox string) []int {
	return processes(func(marker string) bool { return strings.HasPrefix(marker, sandbox+"/") })
}

var errRemain = errors.New("processes remain after SIGKILL")

// killAll ends the processes of a control group and those that carry a matching
// marker, which a process has before it has joined its group.
func killAll(group string, match func(string) bool) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		members, err := groupProcesses(group)
		if err != nil {
			return err
		}
		pids := append(processes(match), members...)
		if len(pids) == 0 {
			return nil
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%w: %v", errRemain, pids)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// processes lists live processes of this user whose environment carries a
// matching marker. Anybody may give his own processes any environment.
func processes(match func(marker string) bool) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	prefix := []byte(Marker + "=")
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() || !mine(pid) {
			continue
		}
		environ, err := os.ReadFile("/proc/" + entry.Name() + "/environ")
		if err != nil {
			continue
		}
		for _, variable := range bytes.Split(environ, []byte{0}) {
			if value, ok := bytes.CutPrefix(variable, prefix); ok && match(string(value)) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// mine tells whether a process is this user's in every respect: one with more
// rights than who started it still has an environment of his.
func mine(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	user := strconv.Itoa(os.Geteuid())
	for line := range strings.SplitSeq(string(text), "\n") {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			return !slices.ContainsFunc(strings.Fields(ids), func(id string) bool { return id != user })
		}
	}
	return false
}

// findInit returns the PID of a machine's init on the host, or 0. It is in the
// machine's control group, where only root can put a process, if there is one.
func findInit(spec Spec) int {
	marker := spec.Sandbox + "/" + spec.Name
	for _, pid := range processes(func(m string) bool { return m == marker }) {
		line, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if err != nil {
			continue
		}
		words := bytes.Split(line, []byte{0})
		if len(words) > 1 && string(words[1]) == InitCommand && (spec.Bare || isMember(spec.group(), pid)) {
			return pid
		}
	}
	return 0
}
