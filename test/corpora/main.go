// Command corpora fuzzes what reads what a peer sends, and keeps a part of what it finds
// for the repository. Fuzzing leaves the inputs that it finds interesting in Go's cache,
// thousands of them, where they are lost. For every fuzz test of the product this
// program takes those that run through code that neither its seeds nor the inputs kept
// so far do, smallest first and few, and puts them into testdata/fuzz beside the test,
// where every go test tries them again. It removes nothing there and commits nothing.
//
//	go run ./test/corpora -time 30s
//
// Packages as arguments, like ./network/dns, bound it to these, in this order. Without a
// time it fuzzes nothing and takes what test/fuzz.sh has found.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// buildLimit bounds how long a test may take to compile, tryLimit one input.
	buildLimit = 15 * time.Minute
	tryLimit   = time.Minute
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "corpora:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("corpora", flag.ContinueOnError)
	fuzzing := flags.Duration("time", 0, "how long to fuzz with each test; not at all if 0")
	if err := flags.Parse(args); err != nil {
		return err
	}
	targets, err := findTargets(os.DirFS("."), flags.Args())
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		return errors.New("no fuzz tests found; run it in the root of the repository, with packages like ./network/dns if any")
	}
	cache, err := output(ctx, "go", "env", "GOCACHE")
	if err != nil {
		return err
	}
	module, err := output(ctx, "go", "list", "-m")
	if err != nil {
		return err
	}
	var failed []error
	for _, t := range targets {
		k := keeper{target: t, module: module, found: filepath.Join(cache, "fuzz", module, t.dir), time: *fuzzing}
		if err := k.keep(ctx); err != nil {
			failed = append(failed, fmt.Errorf("keeping what was found for ./%s: %w", t.dir, err))
		}
	}
	return errors.Join(failed...)
}

// target is a package with its fuzz tests.
type target struct {
	dir   string
	names []string
}

var fuzzTest = regexp.MustCompile(`(?m)^func (Fuzz\w*)\(`)

// findTargets finds the fuzz tests of the product: the sandbox reads nothing that a peer
// sends, and out/ is nobody's.
func findTargets(files fs.FS, only []string) ([]target, error) {
	order := map[string]int{}
	for i, dir := range only {
		order[path.Clean(filepath.ToSlash(dir))] = i + 1
	}
	names := map[string][]string{}
	err := fs.WalkDir(files, ".", func(file string, entry fs.DirEntry, err error) error {
		switch dir := path.Dir(file); {
		case err != nil:
			return err
		case entry.IsDir() && (file == "sandbox" || file == "out" || file == ".git" || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(file, "_test.go") || len(order) > 0 && order[dir] == 0:
			return nil
		default:
			text, err := fs.ReadFile(files, file)
			for _, match := range fuzzTest.FindAllSubmatch(text, -1) {
				names[dir] = append(names[dir], string(match[1]))
			}
			return err
		}
	})
	if err != nil {
		return nil, fmt.Errorf("finding fuzz tests: %w", err)
	}
	var targets []target
	for dir, each := range names {
		slices.Sort(each)
		targets = append(targets, target{dir: dir, names: each})
	}
	slices.SortFunc(targets, func(a, b target) int {
		return cmp.Or(cmp.Compare(order[a.dir], order[b.dir]), strings.Compare(a.dir, b.dir))
	})
	return targets, nil
}

// keeper keeps inputs of the fuzz tests of one package.
type keeper struct {
	target
	// module is the one of the package.
	module string
	// found is the folder of what fuzzing has found, with one of each test.
	found string
	// time is how long to fuzz with each test.
	time time.Duration
	// binary is the compiled test, profile where it writes what it has covered.
	binary, profile string
}

// keep looks at each fuzz test of a package. One that fails keeps none of the others from
// being looked at.
func (k *keeper) keep(ctx context.Context) error {
	scratch, err := os.MkdirTemp("", "corpora-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	k.binary, k.profile = filepath.Join(scratch, "test"), filepath.Join(scratch, "profile")
	if err := k.build(ctx); err != nil {
		return err
	}
	var failed []error
	for _, name := range k.names {
		failed = append(failed, k.fuzz(ctx, name), k.keepOf(ctx, name))
	}
	return errors.Join(failed...)
}

// build compiles the tests once, with what guides fuzzing in packages of the module, and
// what counts which statements of the package run. The rest is compiled as always: it is
// most of the code, and none of ours.
func (k *keeper) build(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, buildLimit)
	defer cancel()
	_, err := output(ctx, "go", "test", "-c", "-cover", "-gcflags="+k.module+"/...=-d=libfuzzer", "-o", k.binary, "./"+k.dir)
	return err
}

// fuzz fuzzes with one test. An input that it fails with is in testdata/fuzz then.
func (k *keeper) fuzz(ctx context.Context, name string) error {
	if k.time <= 0 {
		return nil
	}
	found, err := filepath.Abs(k.found)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, k.time+tryLimit)
	defer cancel()
	command := exec.CommandContext(ctx, k.binary, "-test.run", "^$", "-test.fuzz", "^"+name+"$", "-test.fuzzcachedir", found,
		"-test.fuzztime", k.time.String(), "-test.fuzzminimizetime", "1s", "-test.parallel", "1")
	command.Dir = filepath.FromSlash(k.dir)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("fuzzing with %s: %w\n%s", name, err, out)
	}
	return nil
}

// keepOf keeps something of what was found with one test.
func (k *keeper) keepOf(ctx context.Context, name string) error {
	kept, err := readInputs(k.home(name))
	if err != nil {
		return err
	}
	found, err := readInputs(filepath.Join(k.found, name))
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(i input) bool {
		return slices.ContainsFunc(kept, func(have input) bool { return have.name == i.name })
	})
	room := mostInputs - len(kept)
	if len(found) == 0 || room <= 0 {
		fmt.Printf("./%s %s: keeps %d as before\n", k.dir, name, len(kept))
		return nil
	}
	chosen, err := k.pick(ctx, name, candidates(found), room)
	if err != nil {
		return err
	}
	for _, i := range chosen {
		if err := k.put(name, i); err != nil {
			return err
		}
	}
	fmt.Printf("./%s %s: keeps %d, and %d more of %d found\n", k.dir, name, len(kept), len(chosen), len(found))
	return nil
}

// pick tries inputs of a fuzz test one by one, and chooses.
func (k *keeper) pick(ctx context.Context, name string, tried []input, room int) ([]input, error) {
	known, err := k.cover(ctx, name, "")
	if err != nil {
		return nil, err
	}
	for i := range tried {
		if err := k.put(name, tried[i]); err != nil {
			return nil, err
		}
		tried[i].covers, err = k.cover(ctx, name, tried[i].name)
		err = errors.Join(err, os.Remove(filepath.Join(k.home(name), tried[i].name)))
		if err != nil {
			return nil, err
		}
	}
	return choose(known, tried, room), nil
}

// cover runs one input of a fuzz test, or if it has no name the seeds and all that are
// kept, and returns what of the package was covered.
func (k *keeper) cover(ctx context.Context, name, one string) (places, error) {
	which := "^" + name + "$"
	if one != "" {
		which += "/^" + one + "$"
	}
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	command := exec.CommandContext(ctx, k.binary, "-test.run", which, "-test.coverprofile", k.profile)
	command.Dir = filepath.FromSlash(k.dir)
	if out, err := command.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("trying %s: %w\n%s", strings.TrimSuffix(name+"/"+one, "/"), err, out)
	}
	profile, err := os.Open(k.profile)
	if err != nil {
		return nil, err
	}
	defer profile.Close()
	return readProfile(profile)
}

// home is where the inputs of a fuzz test are kept.
func (k *keeper) home(name string) string {
	return filepath.Join(filepath.FromSlash(k.dir), "testdata", "fuzz", name)
}

// put writes an input where the test finds it.
func (k *keeper) put(name string, i input) error {
	if err := os.MkdirAll(k.home(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(k.home(name), i.name), i.data, 0o644)
}

// readInputs reads all inputs of a folder, if there is one.
func readInputs(dir string) ([]input, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var all []input
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, input{name: entry.Name(), data: data})
	}
	return all, nil
}

// output runs a command and returns what it says, without the end of the line.
func output(ctx context.Context, name string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, name, args...)
	var errs bytes.Buffer
	command.Stderr = &errs
	out, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, errs.Bytes())
	}
	return strings.TrimSpace(string(out)), nil
}
