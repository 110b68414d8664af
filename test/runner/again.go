package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Thousands of tests hold times on real parts, and a machine that does other things too makes one of them late now and
// then. So a test that failed is tried once more, alone, and told as what it is: it failed once. What is broken fails
// again. Scenarios on whole clusters are not tried again: what went wrong there need not come back, and some of their
// parts stand on others.

const (
	// triedAgain is how many tests of a step may have failed, leaves of trees of tests: more do not fail by chance.
	triedAgain = 5
	// makingAgain is how long compiling one of them may take, when all others are compiled.
	makingAgain = time.Minute
)

var (
	// broken matches what no machine is the reason of, however busy, wherever in its package a test failed.
	broken = regexp.MustCompile(`race detected|DATA RACE|(^|\s)panic: |^fatal error: |^goroutine \d+ \[running\]`)
	// dice matches what a test says that has cast them, which would fall otherwise the next time.
	dice = regexp.MustCompile(`(?i)\bseed\b`)
	// framework matches what go test says of tests: inputs in their names, as seed#0, are no dice.
	framework = regexp.MustCompile(`^\s*(===|---) `)
)

// casts says whether a test says that it has cast dice.
func casts(c *testCase) bool {
	return slices.ContainsFunc(c.output, func(line string) bool { return dice.MatchString(line) && !framework.MatchString(line) })
}

// once is a test that failed and may be tried again, with the leaves that failed in it.
type once struct {
	pkg, test string
	failed    []string // as counts have them
}

// again is what of a step's failures is tried again: nothing if one of them has another reason than time.
func again(s step, n counts) (some []once) {
	if s.kind != kindUnit && s.kind != kindAPI || !s.goTest || s.command[0] != "go" || len(n.failed) > triedAgain || n.broken {
		return nil
	}
	for _, name := range n.failed {
		c := n.cases[name]
		if c.name == "" || c.result != "fail" {
			return nil
		}
		test, _, _ := strings.Cut(c.name, "/")
		i := slices.IndexFunc(some, func(o once) bool { return o.pkg == c.pkg && o.test == test })
		if i < 0 {
			i, some = len(some), append(some, once{pkg: c.pkg, test: test})
		}
		some[i].failed = append(some[i].failed, name)
	}
	return some
}

// alone is a step's command with one test of one package.
func (o once) alone(command []string) (one []string) {
	for i := 0; i < len(command); i++ {
		switch arg := command[i]; {
		case arg == "-run" || arg == "-skip":
			i++ // its value
		case !strings.HasPrefix(arg, "./"): // a package
			one = append(one, arg)
		}
	}
	return append(one, "-run", "^"+regexp.QuoteMeta(o.test)+"$", o.pkg)
}

// retry tries what failed in a step once more, if that is all that is wrong, and returns the counts with what
// passed then.
func retry(ctx context.Context, s step, n counts, exit error, log *os.File, show *progress) counts {
	var failed *exec.ExitError
	if !errors.As(exit, &failed) || failed.ExitCode() != 1 { // go test itself has failed
		return n
	}
	for _, o := range again(s, n) {
		test := n.cases[o.failed[0]].top.elapsed
		if left, ok := ctx.Deadline(); ok && time.Until(left) < test+makingAgain {
			fmt.Fprintf(log, "\nNot tried again, as no time is left for it: %s\n", strings.Join(o.failed, ", "))
			continue
		}
		fmt.Fprintf(log, "\nOnce more, alone: %s\n", strings.Join(o.failed, ", "))
		second, err := runOnce(ctx, s, o.alone(s.command), log, show)
		if err != nil || len(second.failed)+len(second.skipped) > 0 || slices.ContainsFunc(o.failed, func(name string) bool { return !second.good[name] }) {
			fmt.Fprintf(log, "\nThat did not pass: %v\n", err)
			continue
		}
		if n.again == nil {
			n.again = map[string][]string{}
		}
		for _, name := range o.failed {
			n.again[name] = n.reasons[name]
			delete(n.reasons, name)
		}
		n.failed = slices.DeleteFunc(n.failed, func(name string) bool { return slices.Contains(o.failed, name) })
		n.passed += len(o.failed)
	}
	return n
}

// names of a map, in order.
func names(of map[string][]string) []string { return slices.Sorted(maps.Keys(of)) }
