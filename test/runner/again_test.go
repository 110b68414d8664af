package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestAgain holds which failed tests are tried again, and by which command.
func TestAgain(t *testing.T) {
	unit := step{kind: kindUnit, goTest: true, command: goTest("-race", "-p", "3")}
	clusters := step{kind: kindCluster, goTest: true, command: goTest("-v", "-run", "^TestX$", "./test")}
	fail := func(pkg string, tests ...string) (lines []string) {
		for _, name := range tests {
			lines = append(lines, began(pkg, name), ended("fail", pkg, name))
		}
		return append(lines, ended("fail", pkg, ""))
	}
	for _, c := range []struct {
		reason string
		step   step
		lines  []string
		want   []string
	}{
		{"a test", unit, fail("a", "TestX"), []string{"go test -json -count=1 -ldflags=-w -race -p 3 -run ^TestX$ a"}},
		{"two subtests of one are one", unit, fail("a", "TestX/one", "TestX/two"), []string{"go test -json -count=1 -ldflags=-w -race -p 3 -run ^TestX$ a"}},
		{"a part of a test on clusters", clusters, fail("b", "TestX/Part/deep/down"), []string{"go test -json -count=1 -ldflags=-w -trimpath -v -run ^TestX$/^Part$ b"}},
		{"one among others", clusters, fail("b", "TestX/Together/a.b/deep"), []string{`go test -json -count=1 -ldflags=-w -trimpath -v -run ^TestX$/^Together$/^a\.b$ b`}},
		{"as many as there may be", unit, append(fail("a", "TestX", "TestY"), fail("b", "TestX")...), []string{
			"go test -json -count=1 -ldflags=-w -race -p 3 -run ^TestX$ a", "go test -json -count=1 -ldflags=-w -race -p 3 -run ^TestY$ a", "go test -json -count=1 -ldflags=-w -race -p 3 -run ^TestX$ b",
		}},
		{"more do not fail by chance", unit, fail("a", "TestA", "TestB", "TestC", "TestD"), nil},
		{"a race is one on any machine", unit, append([]string{began("a", "TestX"), said("a", "TestX", "WARNING: DATA RACE\n")}, fail("a", "TestX")...), nil},
		{"so is a panic", unit, append([]string{began("a", "TestX"), said("a", "TestX", "panic: nil map\n")}, fail("a", "TestX")...), nil},
		{"a test that did not end", unit, []string{began("a", "TestX"), ended("fail", "a", "")}, nil},
		{"a package that does not compile", unit, []string{ended("fail", "a", "")}, nil},
		{"numbers", step{kind: kindCluster, goTest: true, show: limits, command: goTest("./bench")}, fail("a", "TestX"), nil},
		{"a storm", step{kind: kindCluster, goTest: true, command: goTest("-run", storm, "./test")}, fail("a", "TestTorture"), nil},
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

func TestWrong(t *testing.T) { t.Error("it is wrong") }

func TestGood(t *testing.T) {}
`)
	s := step{name: "s", kind: kindUnit, goTest: true, dir: dir, limit: 5 * time.Minute, command: goTest("./..."), env: plain}
	var out bytes.Buffer
	o := runStep(t.Context(), s, nil, t.TempDir(), &out)
	if o.err != nil || o.counts.passed != 2 || !slices.Equal(o.counts.failed, []string{"example.org/a TestWrong"}) || !slices.Equal(names(o.counts.again), []string{"example.org/a TestLate"}) {
		t.Errorf("%d passed, %q failed, %q when tried again, error %v; all of it:\n%s", o.counts.passed, o.counts.failed, names(o.counts.again), o.err, out.String())
	}
	if !strings.Contains(out.String(), onlyAgain+"\n  example.org/a TestLate\n    | a_test.go:15: it came late\n") {
		t.Errorf("it does not say what failed once:\n%s", out.String())
	}
	if r := recordOf(o, "c", time.Now()); !slices.Contains(r.notes, "failed once, passed when tried again alone: example.org/a TestLate") {
		t.Errorf("the page does not either: %q", r.notes)
	}
}
