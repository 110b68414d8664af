package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// Many tests hold times on real parts, and a machine that does other things too makes one of some thousands late now
// and then. So what failed is tried once more, alone, and told as what it is: it failed once. What is broken fails again.

const (
	// triedAgain is of how many tests of a step at most: more do not fail by chance.
	triedAgain = 3
	// together is a group of parts of a cluster test, which are by themselves.
	together = "Together"
)

// broken matches what no machine is the reason of, however busy.
var broken = regexp.MustCompile(`DATA RACE|race detected during|^panic: |^fatal error: `)

// final says that what fails in a step has failed: numbers that are measured, and storms, whose next one
// would be another.
func final(s step) bool {
	return !s.goTest || s.command[0] != "go" || s.show == limits || slices.Contains(s.command, storm)
}

// once is a test that failed and may be tried again, with all that failed in it.
type once struct {
	pkg, pattern string
	failed       []string // as counts have them
}

// part is as much of a test's name as can be run by itself: a test, and of those on whole clusters a part.
func part(name, kind string) []string {
	all, depth := strings.Split(name, "/"), 1
	if kind == kindCluster {
		if depth = 2; len(all) > 1 && all[1] == together {
			depth = 3
		}
	}
	return all[:min(depth, len(all))]
}

// again is what of a step's failures is tried again; nothing where there are many, or one that has another reason than
// time.
func again(s step, n counts) (some []once) {
	if final(s) {
		return nil
	}
	for _, name := range n.failed {
		c := n.cases[name]
		if c.name == "" || c.result != "fail" || slices.ContainsFunc(c.output, broken.MatchString) {
			return nil
		}
		var pattern []string
		for _, p := range part(c.name, s.kind) {
			pattern = append(pattern, "^"+regexp.QuoteMeta(p)+"$")
		}
		o := once{pkg: c.pkg, pattern: strings.Join(pattern, "/"), failed: []string{name}}
		if i := slices.IndexFunc(some, func(is once) bool { return is.pkg == o.pkg && is.pattern == o.pattern }); i >= 0 {
			some[i].failed = append(some[i].failed, name)
			continue
		}
		some = append(some, o)
	}
	if len(some) > triedAgain {
		return nil
	}
	return some
}

// alone is a command of go test with one test alone.
func (o once) alone(command []string) (one []string) {
	for i := 0; i < len(command); i++ {
		switch arg := command[i]; {
		case arg == "-run" || arg == "-skip":
			i++ // its value
		case !strings.HasPrefix(arg, "./"):
			one = append(one, arg)
		}
	}
	return append(one, "-run", o.pattern, o.pkg)
}

// retry tries what failed in a step once more and returns the counts with what passed then.
func retry(ctx context.Context, s step, n counts, log *os.File, show *progress) counts {
	for _, o := range again(s, n) {
		if ctx.Err() != nil {
			return n
		}
		fmt.Fprintf(log, "\nOnce more, alone: %s\n", strings.Join(o.failed, ", "))
		second, err := runOnce(ctx, s, o.alone(s.command), log, show)
		if err != nil || len(second.failed)+len(second.skipped) > 0 || second.passed == 0 {
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
