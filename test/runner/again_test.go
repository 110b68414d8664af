package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestAgain holds which failed tests are tried again, and by which command.
func TestAgain(t *testing.T) {
	unit := step{kind: kindUnit, goTest: true, command: goTest("-race", "-p", "3", "-run", "^Test", "-skip", "^TestZ$", "./...")}
	fail := func(pkg string, tests ...string) (lines []string) {
		for _, name := range tests {
			lines = append(lines, began(pkg, name), ended("fail", pkg, name))
		}
		return append(lines, ended("fail", pkg, ""))
	}
	alone := func(rest string) []string {
		return []string{"go test -json -count=1 -ldflags=-w -race -p 3 -run " + rest}
	}
	with := func(text string, lines []string) []string {
		return append([]string{began("a", "TestX"), said("a", "TestX", text+"\n")}, lines...)
	}
	for _, c := range []struct {
		reason string
		step   step
		lines  []string
		want   []string
	}{
		{"a test", unit, fail("a", "TestX"), alone("^TestX$ a")},
		{"two subtests of one are one", unit, fail("a", "TestX/one", "TestX/two"), alone("^TestX$ a")},
		{"two of one name", unit, append(fail("a", "TestX"), fail("b", "TestX")...), append(alone("^TestX$ a"), alone("^TestX$ b")...)},
		{"as many as there may be", unit, fail("a", "TestX/1", "TestX/2", "TestX/3", "TestX/4", "TestX/5"), alone("^TestX$ a")},
		{"more do not fail by chance", unit, fail("a", "TestX/1", "TestX/2", "TestX/3", "TestX/4", "TestX/5", "TestX/6"), nil},
		{"a race is one on any machine", unit, with("WARNING: DATA RACE", fail("a", "TestX")), nil},
		{"also beside a test", unit, append([]string{said("a", "", "testing: race detected outside of test execution\n")}, fail("a", "TestX")...), nil},
		{"also in one that has passed", unit, append(with("    testing.go:1: race detected during execution of test", []string{ended("pass", "a", "TestX")}), fail("a", "TestY")...), nil},
		{"so is a panic, also one of a process that a test began", unit, with("    agent_test.go:3: panic: nil map", fail("a", "TestX")), nil},
		{"dice fall otherwise the next time", unit, with("    world_test.go:3: seed 7: wrong", fail("a", "TestX")), nil},
		{"whichever part of it failed", unit, with("    world_test.go:3: seed 7", append([]string{began("a", "TestX/one")}, fail("a", "TestX/two")...)), nil},
		{"dice of others are no matter", unit, with("    world_test.go:3: seed 7", append([]string{ended("pass", "a", "TestX")}, fail("a", "TestY")...)), alone("^TestY$ a")},
		{"nor are names of inputs", unit, append([]string{began("a", "FuzzX/seed#0"), said("a", "FuzzX/seed#0", "=== RUN   FuzzX/seed#0\n"), said("a", "FuzzX/seed#0", "--- PASS: FuzzX/seed#0 (0.00s)\n"), ended("pass", "a", "FuzzX/seed#0")}, fail("a", "FuzzX")...), alone("^FuzzX$ a")},
		{"nor is where a library says that it does not log", unit, append(with("\t>  goroutine 1014 [running]:", []string{ended("pass", "a", "TestX")}), fail("a", "TestY")...), alone("^TestY$ a")},
		{"the end of a process is one", unit, append([]string{said("a", "", "goroutine 1 [running]:\n")}, fail("a", "TestX")...), nil},
		{"what another package says is no matter", unit, append(with("seed 7", []string{ended("pass", "a", "TestX"), ended("pass", "a", "")}), fail("b", "TestX")...), alone("^TestX$ b")},
		{"a test that did not end", unit, []string{began("a", "TestX"), ended("fail", "a", "")}, nil},
		{"a package that does not compile", unit, []string{ended("fail", "a", "")}, nil},
		{"whole clusters", step{kind: kindCluster, goTest: true, command: goTest("-run", "^TestX$", "./test")}, fail("a", "TestX"), nil},
		{"what is no go test", step{kind: kindUnit, goTest: true, command: []string{"bash", "-c", "go test"}}, fail("a", "TestX"), nil},
	} {
		var read tally
		for _, line := range c.lines {
			read.add(line)
		}
		var got []string
		for _, o := range again(c.step, read.result()) {
			got = append(got, strings.Join(o.alone(c.step.command), " "))
		}
		slices.Sort(c.want)
		slices.Sort(got)
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: (-want +got)\n%s", c.reason, d)
		}
	}
}

// TestRetry holds that a test that passes alone has passed, and is named, and that one that fails again has failed.
func TestRetry(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.org/a\n\ngo 1.24\n")
	write("a_test.go", `package a

import (
	"os"
	"testing"
)

func TestLate(t *testing.T) {
	if _, err := os.Stat("was"); err == nil {
		return
	}
	if err := os.WriteFile("was", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Error("it came late")
}

func TestSeldom(t *testing.T) {
	if _, err := os.Stat("seldom"); err == nil {
		return
	}
	if err := os.WriteFile("seldom", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Run("only once", func(t *testing.T) { t.Error("there is no such test the next time") })
}

func TestWrong(t *testing.T) { t.Error("it is wrong") }

func TestGood(t *testing.T) {}
`)
	s := step{name: "s", kind: kindUnit, goTest: true, dir: dir, limit: 5 * time.Minute, command: goTest("./..."), env: plain}
	var out bytes.Buffer
	o := runStep(t.Context(), s, nil, t.TempDir(), &out)
	if o.err != nil || o.counts.passed != 2 || !slices.Equal(o.counts.failed, []string{"example.org/a TestSeldom/only_once", "example.org/a TestWrong"}) || !slices.Equal(names(o.counts.again), []string{"example.org/a TestLate"}) {
		t.Errorf("%d passed, %q failed, %q when tried again, error %v; all of it:\n%s", o.counts.passed, o.counts.failed, names(o.counts.again), o.err, out.String())
	}
	if !strings.Contains(out.String(), onlyAgain+"\n  example.org/a TestLate\n    | a_test.go:15: it came late\n") {
		t.Errorf("it does not say what failed once:\n%s", out.String())
	}
	if r := recordOf(o, "c", time.Now()); !slices.Contains(r.notes, "failed once, passed when tried again alone: example.org/a TestLate") {
		t.Errorf("the page does not either: %q", r.notes)
	}
}

// TestNoRetry holds that nothing is tried again where go test itself has failed, as when it was killed, nor where no
// time is left, which the log says.
func TestNoRetry(t *testing.T) {
	s := step{name: "s", kind: kindUnit, goTest: true, command: goTest("./...")}
	exit := func(code string) error { return exec.Command("sh", "-c", "exit "+code).Run() }
	short, end := context.WithTimeout(t.Context(), makingAgain/2)
	defer end()
	for _, c := range []struct {
		reason string
		ctx    context.Context
		exit   error
		says   string
	}{
		{"go test ended otherwise than by its tests", t.Context(), exit("2"), ""},
		{"it was killed", t.Context(), exec.Command("sh", "-c", "kill -KILL $$").Run(), ""},
		{"it did not begin", t.Context(), os.ErrNotExist, ""},
		{"no time is left", short, exit("1"), "Not tried again, as no time is left for it: a TestX"},
	} {
		var read tally
		for _, line := range []string{began("a", "TestX"), ended("fail", "a", "TestX"), ended("fail", "a", "")} {
			read.add(line)
		}
		log, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		n := retry(c.ctx, s, read.result(), c.exit, log, nil)
		said, err := os.ReadFile(log.Name())
		if err != nil || log.Close() != nil {
			t.Fatal(err)
		}
		if len(n.failed) != 1 || strings.TrimSpace(string(said)) != c.says {
			t.Errorf("%s: failed %q, the log says %q", c.reason, n.failed, said)
		}
	}
}
