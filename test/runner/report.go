package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	// slowTests and slowLimit bound the list of single tests worth a look.
	slowTests = 8
	slowLimit = 2 * time.Second
)

// onlyAgain is said of what failed once.
const onlyAgain = "Passed only when tried again, alone:"

// printOutcome shows how a step ended, and the end of its output if it failed.
func printOutcome(out io.Writer, o outcome) {
	verdict := "ok"
	if !o.ok() {
		verdict = "FAILED"
	}
	fmt.Fprintf(out, "%-18s %6s  %-6s  %s\n", o.step.name, short(o.took), verdict, countText(o.counts))
	for _, line := range o.shown {
		fmt.Fprintln(out, "  "+line)
	}
	printNames(out, onlyAgain, names(o.counts.again), o.counts.again)
	if o.ok() {
		return
	}
	lines := o.counts.output
	if len(lines) == 0 {
		text, _ := os.ReadFile(o.log) // a step that was not run has none
		lines = strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	}
	for _, line := range lines[max(0, len(lines)-tailLines):] {
		fmt.Fprintln(out, "  | "+line)
	}
	if o.err != nil {
		fmt.Fprintf(out, "  %s: %v\n", o.step.name, o.err)
	}
	fmt.Fprintf(out, "  all of its output: %s\n", o.log)
}

func countText(n counts) string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", n.passed, len(n.failed), len(n.skipped))
}

// sum adds up the steps.
func sum(done []outcome) counts {
	n := counts{reasons: map[string][]string{}, again: map[string][]string{}}
	for _, o := range done {
		n.passed += o.counts.passed
		n.failed = append(n.failed, o.counts.failed...)
		n.skipped = append(n.skipped, o.counts.skipped...)
		n.slow = append(n.slow, o.counts.slow...)
		maps.Copy(n.reasons, o.counts.reasons)
		maps.Copy(n.again, o.counts.again)
	}
	return n
}

// printSummary shows where the time went, what failed and what was skipped, and ends
// with the line of counts. Most is how long the list may take with cold caches, 0 if
// nothing is promised: longer is told, and is no failure. With skipFails a skipped test is a failed one.
func printSummary(out io.Writer, done []outcome, total, most time.Duration, skipFails bool) (ok bool) {
	n := sum(done)
	limit := ""
	if most > 0 {
		limit = " of at most " + short(most)
	}
	fmt.Fprintf(out, "\nWhere the time went (%s%s):\n", short(total), limit)
	byTime := slices.SortedStableFunc(slices.Values(done), func(a, b outcome) int { return cmp.Compare(b.took, a.took) })
	for _, o := range byTime {
		fmt.Fprintf(out, "  %7s  %3.0f%%  %s\n", short(o.took), 100*o.took.Seconds()/max(total.Seconds(), 0.001), o.step.name)
	}
	for i, c := range slowest(n.slow) {
		if i == 0 {
			fmt.Fprintln(out, "The slowest tests:")
		}
		fmt.Fprintf(out, "  %7s  %s\n", short(c.elapsed), c.title())
	}
	if skipFails {
		for _, name := range n.skipped {
			n.failed = append(n.failed, name+" (skipped, which CI=true forbids)")
		}
		n.skipped = nil
	}
	printNames(out, onlyAgain, names(n.again), n.again)
	printNames(out, "Failed:", n.failed, n.reasons)
	printNames(out, "Skipped:", n.skipped, nil)
	if most > 0 && total > most { // which machines that do other things do too
		fmt.Fprintf(out, "\nIt took longer than promised: %s, and at most %s with cold caches on two cores.\n", short(total), short(most))
	}
	fmt.Fprintf(out, "\n%s\n", countText(n))
	return len(n.failed) == 0
}

func printNames(out io.Writer, title string, names []string, reasons map[string][]string) {
	if len(names) == 0 {
		return
	}
	fmt.Fprintln(out, title)
	for _, name := range names {
		fmt.Fprintln(out, "  "+name)
		for _, line := range reasons[name] {
			fmt.Fprintln(out, "    | "+line)
		}
	}
}

// slowest returns the few tests that took longest, if they took long at all.
func slowest(all []testCase) []testCase {
	slow := slices.DeleteFunc(slices.Clone(all), func(c testCase) bool { return c.elapsed < slowLimit })
	slices.SortStableFunc(slow, func(a, b testCase) int { return cmp.Compare(b.elapsed, a.elapsed) })
	return slow[:min(len(slow), slowTests)]
}
