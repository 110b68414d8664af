package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is one line of go test -json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

// testCase is a test, a subtest, or (with no test name) a package.
type testCase struct {
	name    string
	pkg     string
	parent  bool // it has subtests
	result  string
	elapsed time.Duration
	output  []string
}

// tally reads the events of one go test and counts leaves: a test with subtests counts
// only where it failed by itself. A package that failed without a failed test (it did
// not compile, or ended early) counts as one failure. It is not for concurrent use.
type tally struct {
	order []*testCase
	cases map[string]*testCase
	// running is the name of the test that said something last.
	running string
	passed  int // leaves and parents so far, for progress
	failed  int
}

const (
	// maxOutput bounds the lines kept of each test, the newest stay, and with them the first ones:
	// what went wrong is often told before long dumps.
	maxOutput = 400
	headLines = 100
)

// add takes one line of output and returns the part of it that people read.
func (t *tally) add(line string) string {
	var e event
	if !strings.HasPrefix(line, "{") || json.Unmarshal([]byte(line), &e) != nil {
		return line + "\n" // of the go command itself, not of a test
	}
	if e.Package == "" {
		e.Package, _, _ = strings.Cut(e.ImportPath, " ") // build output: "path [path.test]"
	}
	c := t.find(e.Package, e.Test)
	switch e.Action {
	case "output", "build-output":
		c.output = append(c.output, e.Output)
		if len(c.output) > 2*maxOutput {
			c.output = append(c.output[:headLines:headLines], c.output[len(c.output)-maxOutput+headLines:]...)
		}
		return e.Output
	case "run":
		t.running = e.Test
		for _, above := range ancestors(e.Test) {
			if c := t.cases[e.Package+"\x00"+above]; c != nil {
				c.parent = true
			}
		}
	case "pass", "fail", "skip":
		c.result, c.elapsed = e.Action, time.Duration(e.Elapsed*float64(time.Second))
		t.progress(c)
	}
	return ""
}

func (t *tally) progress(c *testCase) {
	switch {
	case c.name == "":
	case c.result == "pass":
		t.passed++
	case c.result == "fail":
		t.failed++
	}
}

func (t *tally) find(pkg, name string) *testCase {
	key := pkg + "\x00" + name
	c := t.cases[key]
	if c == nil {
		c = &testCase{name: name, pkg: pkg}
		if t.cases == nil {
			t.cases = map[string]*testCase{}
		}
		t.cases[key] = c
		t.order = append(t.order, c)
	}
	return c
}

// counts is what a step comes to.
type counts struct {
	passed          int
	failed, skipped []string            // names
	reasons         map[string][]string // of what failed, a few lines each, by name
	cases           map[string]failure  // of those, by name
	good            map[string]bool     // whole tests and leaves that passed, by name
	broken          bool                // a package in which something failed said what no busy machine is the reason of, or a test that failed cast dice
	again           map[string][]string // what failed once and passed when it was tried again, and the reasons
	output          []string            // of what failed, for the eye
	slow            []testCase
}

// failure is a case that failed, and the whole test that it is of.
type failure struct {
	*testCase
	top *testCase
}

// result counts what was read. A test that began and did not end has failed.
func (t *tally) result() counts {
	n := counts{good: map[string]bool{}}
	bad := map[string]bool{} // tests and packages that hold a failure already counted
	for _, c := range slices.Backward(t.order) {
		if c.name == "" {
			continue
		}
		switch {
		case c.result == "pass" && !c.parent:
			n.passed++
		case c.result == "skip" && !c.parent:
			n.skipped = append(n.skipped, c.title())
		case c.result == "fail" || c.result == "":
			if !bad[c.pkg+"\x00"+c.name] {
				n.fail(c.title(), c)
				n.output = append(c.lines(), n.output...)
			}
			bad[c.pkg] = true
			for _, of := range append(ancestors(c.name), c.name) {
				bad[c.pkg+"\x00"+of] = true
			}
		}
		if c.result == "pass" {
			n.good[c.title()] = true
		}
		if !c.parent {
			n.slow = append(n.slow, *c)
		}
	}
	for _, c := range t.order {
		if c.name == "" && c.result == "fail" && !bad[c.pkg] {
			n.fail(c.pkg+" (the package itself)", c)
			n.output = append(n.output, c.lines()...)
		}
	}
	for name, c := range n.cases {
		test, _, _ := strings.Cut(c.name, "/")
		n.cases[name] = failure{c.testCase, t.find(c.pkg, test)}
	}
	for _, c := range t.order {
		test, _, _ := strings.Cut(c.name, "/")
		n.broken = n.broken || bad[c.pkg] && slices.ContainsFunc(c.output, broken.MatchString) || bad[c.pkg+"\x00"+test] && casts(c)
	}
	slices.Sort(n.failed)
	slices.Sort(n.skipped)
	return n
}

func (n *counts) fail(name string, c *testCase) {
	n.failed = append(n.failed, name)
	if n.reasons == nil {
		n.reasons, n.cases = map[string][]string{}, map[string]failure{}
	}
	n.cases[name] = failure{testCase: c}
	n.reasons[name] = c.reason()
}

const (
	// reasonWidth bounds what the summary says of a failure, for those who
	// see nothing else.
	reasonWidth = 300
	// tellings is how much of what a test said is shown, lastTellings how much of its end, and
	// tellingLines how much of each.
	tellings, lastTellings, tellingLines = 3, 5, 3
)

// told matches lines in which tests say what is wrong, and dumped those with which the tests
// of clusters begin to show these.
var (
	told   = regexp.MustCompile(`^\s*[\w-]+\.go:\d+(:\d+)?: |^panic: |DATA RACE|undefined: `)
	dumped = regexp.MustCompile(`\.go:\d+: [\w-]+\$ kubectl `)
)

// reason is what a test said that says what is wrong: the last before it began to show how things
// are, the first and the last if it did not.
func (c *testCase) reason() []string {
	all := slices.DeleteFunc(c.lines(), func(line string) bool {
		return strings.TrimSpace(line) == "" || strings.HasPrefix(strings.TrimSpace(line), "--- FAIL") || strings.TrimSpace(line) == "FAIL"
	})
	showed := slices.IndexFunc(all, dumped.MatchString)
	if showed >= 0 {
		all = all[:showed]
	}
	var parts [][]string
	for _, line := range all {
		switch {
		case told.MatchString(line):
			parts = append(parts, []string{line})
		case len(parts) > 0 && strings.HasPrefix(line, "        "): // it goes on
			parts[len(parts)-1] = append(parts[len(parts)-1], line)
		}
	}
	if len(parts) == 0 && len(all) > 0 {
		parts = [][]string{all}
	}
	switch {
	case showed >= 0:
		parts = parts[max(0, len(parts)-tellings):]
	case len(parts) > tellings+lastTellings:
		parts = slices.Delete(parts, tellings, len(parts)-lastTellings)
	}
	var said []string
	for _, part := range parts {
		for _, line := range part[:min(len(part), tellingLines)] {
			line = strings.TrimSpace(line)
			said = append(said, line[:min(len(line), reasonWidth)])
		}
	}
	return said
}

// ancestors are the names a subtest can hang on. Some may be no tests: a name may hold
// slashes of its own.
func ancestors(name string) []string {
	var found []string
	for i, r := range name {
		if r == '/' {
			found = append(found, name[:i])
		}
	}
	return found
}

// title is how people name the test.
func (c *testCase) title() string {
	short := strings.TrimPrefix(c.pkg, "github.com/pelago-dev/pelago/")
	if c.result == "" {
		return fmt.Sprintf("%s %s (did not end)", short, c.name)
	}
	return short + " " + c.name
}

func (c *testCase) lines() []string {
	text := strings.Join(c.output, "")
	return strings.Split(strings.TrimRight(text, "\n"), "\n")
}
