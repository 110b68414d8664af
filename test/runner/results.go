package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
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
		m.kernel = strings.TrimSpace(string(text))
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

// describeCommit names the commit that is checked out, and says if files differ from it.
func describeCommit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// resultsPage is the page of one run for docs/results.
func resultsPage(list string, done []outcome, total time.Duration, m machine, commit string, when time.Time) string {
	n := sum(done)
	var b strings.Builder
	fmt.Fprintf(&b, "# Results of make %s, %s\n\n", list, when.UTC().Format("2006-01-02 15:04 UTC"))
	fmt.Fprintf(&b, "Commit %s. Machine: %d cores, %.0f GiB memory, Linux %s, %s, %s. Total %s.\n\n",
		commit, m.cores, m.memoryGiB, m.kernel, m.system, m.goVersion, short(total))
	fmt.Fprintf(&b, "**%s**\n\n", countText(n))
	b.WriteString("| step | proves | time | passed | failed | skipped |\n|---|---|---|---|---|---|\n")
	for _, o := range done {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d |\n", o.step.name, o.step.proves, short(o.took),
			o.counts.passed, len(o.counts.failed), len(o.counts.skipped))
	}
	for _, o := range done {
		writeNames(&b, "Measured by "+o.step.name, o.shown)
	}
	writeNames(&b, "Failed", n.failed)
	writeNames(&b, "Skipped", n.skipped)
	if slow := slowest(n.slow); len(slow) > 0 {
		b.WriteString("\n## The slowest tests\n\n")
		for _, c := range slow {
			fmt.Fprintf(&b, "- %s %s\n", short(c.elapsed), c.title())
		}
	}
	return b.String()
}

func writeNames(b *strings.Builder, title string, names []string) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n", title)
	for _, name := range names {
		fmt.Fprintf(b, "- %s\n", name)
	}
}
