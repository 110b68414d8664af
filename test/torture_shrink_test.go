package test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/test/torture"
)

// around bounds what one run takes beside its storm.
const around = 20 * time.Minute

// shrink runs a history again and again, each time with fewer steps, and writes the least
// that violated what the whole did. Each run has clusters of its own, as a violation leaves
// them as they are.
func shrink(t *testing.T, again string, steps []torture.Step, tries int) {
	t.Helper()
	rule := replay(t, steps)
	if rule == "" {
		t.Fatalf("%s: it does not fail this time; a seed fixes steps, not what clocks make of them", again)
	}
	t.Logf("%d steps violate: %s", len(steps), rule)
	least := torture.Shrink(steps, tries, func(fewer []torture.Step) bool {
		now := replay(t, fewer)
		t.Logf("%d steps violate: %s", len(fewer), now)
		return now == rule
	})
	var history torture.History
	for _, s := range least {
		history = append(history, torture.Done{Step: s})
	}
	path := filepath.Join(tortureOut, "least.txt")
	if err := os.WriteFile(path, []byte("# "+rule+"\n"+history.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Errorf("%d of %d steps violate %q (make torture HISTORY=%s):\n%s", len(least), len(steps), rule, strings.TrimPrefix(path, "../"), history)
}

// replay does steps in a process of its own, and says which rule they violated.
func replay(t *testing.T, steps []torture.Step) (rule string) {
	t.Helper()
	limit := around
	var history torture.History
	for _, s := range steps {
		history = append(history, torture.Done{Step: s})
		limit = max(limit, s.At+s.For+around)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	file := filepath.Join(t.TempDir(), "steps.txt")
	if err := os.WriteFile(file, []byte(history.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	told := filepath.Join(t.TempDir(), "rule")
	run := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestTorture$", "-test.v", "-test.timeout="+(2*limit).String())
	run.Env = append(os.Environ(), "HISTORY="+file, "SHRINK=", "TORTURE_RULE="+told)
	run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
	run.WaitDelay = time.Minute // its clusters go when it does
	said, err := run.CombinedOutput()
	if err == nil {
		return ""
	}
	text, readErr := os.ReadFile(told)
	if readErr != nil {
		t.Logf("a run failed without a violation, %v: %s", err, said[max(0, len(said)-1024):])
	}
	return string(text)
}
