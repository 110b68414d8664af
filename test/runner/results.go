package main

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
)

// machine describes where steps ran: what decides times, nothing that names it.
type machine struct {
	cores          int
	memoryGiB      float64
	kernel, system string
	goVersion      string
}

func describeMachine() machine {
	m := machine{cores: runtime.NumCPU(), goVersion: runtime.Version()}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.memoryGiB = memoryGiB(string(text))
	}
	if text, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		m.kernel, _, _ = strings.Cut(strings.TrimSpace(string(text)), "-") // what follows names who built it
	}
	if text, err := os.ReadFile("/etc/os-release"); err == nil {
		m.system = systemName(string(text))
	}
	return m
}

var memTotal = regexp.MustCompile(`(?m)^MemTotal:\s+(\d+) kB$`)

// memoryGiB reads the total of /proc/meminfo, 0 if there is none.
func memoryGiB(meminfo string) float64 {
	found := memTotal.FindStringSubmatch(meminfo)
	if found == nil {
		return 0
	}
	kib, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		return 0
	}
	return kib / (1 << 20)
}

var prettyName = regexp.MustCompile(`(?m)^PRETTY_NAME="?([^"\n]*)"?$`)

func systemName(release string) string {
	if found := prettyName.FindStringSubmatch(release); found != nil {
		return found[1]
	}
	return "unknown"
}

// describeCommit names the commit that is checked out, and says if files differ from it, those
// of results left aside.
func describeCommit(ctx context.Context) string {
	git := func(args ...string) (string, error) {
		out, err := exec.CommandContext(ctx, "git", args...).Output()
		return strings.TrimSpace(string(out)), err
	}
	commit, err := git("describe", "--always", "--abbrev=12", "--exclude=*")
	if err != nil {
		return "unknown"
	}
	if differs, err := git("status", "--porcelain", "--", ".", ":!docs/results"); err != nil || differs != "" {
		commit += "-dirty"
	}
	return commit
}
