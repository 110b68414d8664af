// Command runner runs the named lists of steps behind make test, make test-all,
// make check, make bench and make torture: each step is one command with a time limit
// and a sentence that says what it proves. It writes a log per step below out/, shows
// where the time went, and ends with one line: N passed, N failed, N skipped. It
// decides nothing about the product; what a step runs stands in steps.go.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ok, err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "runner:", err)
	}
	if err != nil || !ok {
		stop()
		os.Exit(1)
	}
}

// envPlots names the folder that benchmarks draw pictures into.
const envPlots = "PELAGO_BENCH_PLOTS"

// options is what the command line says.
type options struct {
	list    string
	only    *regexp.Regexp
	show    bool
	results string
}

func parse(args []string, stderr io.Writer) (options, error) {
	flags := flag.NewFlagSet("runner", flag.ContinueOnError)
	flags.SetOutput(stderr)
	only := flags.String("run", "", "run only steps whose name matches this regular `expression`")
	show := flags.Bool("list", false, "print the steps and what they prove, run nothing")
	results := flags.String("results", "", "write what each step came to into the page of results in this `file`, which keeps what it says of others")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	o := options{show: *show, results: *results, list: flags.Arg(0)}
	if flags.NArg() != 1 || !isList(o.list) {
		return o, fmt.Errorf("name one list of steps after the flags: %s", strings.Join(lists(), ", "))
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-run: %w", err)
	}
	return o, nil
}

// run does what the arguments say; ok is whether every step passed.
func run(ctx context.Context, args []string, out io.Writer) (ok bool, err error) {
	o, err := parse(args, out)
	if errors.Is(err, flag.ErrHelp) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	chosen := choose(steps, o.list, o.only)
	if o.show {
		printList(out, chosen)
		return true, nil
	}
	if len(chosen) == 0 {
		return false, fmt.Errorf("no step of %s matches -run %s; see -list", o.list, o.only)
	}
	logs := filepath.Join("out", "logs", o.list)
	if err := os.RemoveAll(logs); err != nil {
		return false, fmt.Errorf("clearing old logs: %w", err)
	}
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return false, fmt.Errorf("making the folder for logs: %w", err)
	}
	if o.results != "" { // pictures go beside the page
		dir, err := filepath.Abs(filepath.Dir(o.results))
		if err != nil {
			return false, fmt.Errorf("finding the folder for results: %w", err)
		}
		os.Setenv(envPlots, dir)
	}
	begin := time.Now()
	var done []outcome
	commit := describeCommit(ctx)
	for _, s := range chosen {
		ended := runStep(ctx, s, done, logs, out)
		done = append(done, ended)
		if o.results == "" || !ended.ran || ctx.Err() != nil { // one that was broken off says nothing
			continue
		}
		if err := keep(o.results, o.list, ended, describeMachine(), commit, time.Now()); err != nil {
			return false, fmt.Errorf("writing the results: %w", err)
		}
	}
	total := time.Since(begin)
	skipFails := os.Getenv("CI") == "true"
	return printSummary(out, done, total, promised[o.list], skipFails), nil
}

func printList(out io.Writer, chosen []step) {
	for _, s := range chosen {
		fmt.Fprintf(out, "%-18s %-8s at most %-6s %s\n", s.name, s.kind, short(s.limit), s.proves)
	}
}
