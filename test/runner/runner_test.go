package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestTally(t *testing.T) {
	cases := []struct {
		reason          string
		lines           []string
		passed          int
		failed, skipped []string
	}{
		{"tests and subtests: leaves count", []string{
			began("a", "TestX"), began("a", "TestX/one"), began("a", "TestX/two"), ended("pass", "a", "TestX/one"), ended("pass", "a", "TestX/two"),
			ended("pass", "a", "TestX"), began("a", "TestY"), ended("pass", "a", "TestY"), ended("pass", "a", ""),
		}, 3, nil, nil},
		{"a failed subtest fails its parents, and is one failure", []string{
			began("a", "TestX"), began("a", "TestX/one"), began("a", "TestX/one/deep"), ended("fail", "a", "TestX/one/deep"),
			ended("fail", "a", "TestX/one"), ended("fail", "a", "TestX"), ended("fail", "a", ""),
		}, 0, []string{"a TestX/one/deep"}, nil},
		{"a parent that fails by itself is a failure of its own", []string{
			began("a", "TestX"), began("a", "TestX/one"), ended("pass", "a", "TestX/one"), ended("fail", "a", "TestX"), ended("fail", "a", ""),
		}, 1, []string{"a TestX"}, nil},
		{"a slash in a subtest's own name makes no test of what stands before it", []string{
			began("a", "TestX"), began("a", "TestX/both/ends"), ended("pass", "a", "TestX/both/ends"), ended("pass", "a", "TestX"),
		}, 1, nil, nil},
		{"skips are named", []string{began("a", "TestX"), ended("skip", "a", "TestX"), ended("pass", "a", "")}, 0, nil, []string{"a TestX"}},
		{"a package without tests is nothing", []string{ended("skip", "a", "")}, 0, nil, nil},
		{"a test cut off by a panic elsewhere has not passed", []string{
			began("a", "TestX"), began("a", "TestY"), ended("pass", "a", "TestY"), ended("fail", "a", ""),
		}, 1, []string{"a TestX (did not end)"}, nil},
		{"a package that does not compile is a failure", []string{
			`{"ImportPath":"a [a.test]","Action":"build-output","Output":"x.go:1: undefined\n"}`,
			`{"ImportPath":"a [a.test]","Action":"build-fail"}`, `{"Action":"fail","Package":"a","FailedBuild":"a [a.test]"}`,
		}, 0, []string{"a (the package itself)"}, nil},
		{"failures in one package do not hide another that ended early", []string{
			began("a", "TestX"), ended("fail", "a", "TestX"), ended("fail", "a", ""), ended("fail", "b", ""),
		}, 0, []string{"a TestX", "b (the package itself)"}, nil},
		{"text between the events is no event", []string{"go: downloading x", "{not json", began("a", "TestX"), ended("pass", "a", "TestX")}, 1, nil, nil},
	}
	for _, c := range cases {
		var got tally
		for _, line := range c.lines {
			got.add(line)
		}
		n := got.result()
		if n.passed != c.passed || !slices.Equal(n.failed, c.failed) || !slices.Equal(n.skipped, c.skipped) {
			t.Errorf("%s: %d passed, failed %q, skipped %q; want %d, %q, %q", c.reason, n.passed, n.failed, n.skipped, c.passed, c.failed, c.skipped)
		}
	}
}

// TestTallyKeepsOutput holds that what a failed test said is shown, in order and bounded.
func TestTallyKeepsOutput(t *testing.T) {
	var got tally
	got.add(began("a", "TestX"))
	for i := range 3 * maxOutput {
		got.add(fmt.Sprintf(`{"Action":"output","Package":"a","Test":"TestX","Output":"line %d\n"}`, i))
	}
	got.add(ended("fail", "a", "TestX"))
	lines := got.result().output
	if lines[0] != "line 0" {
		t.Errorf("the first line is %q", lines[0])
	}
	if last := lines[len(lines)-1]; last != "line "+strconv.Itoa(3*maxOutput-1) || len(lines) > 2*maxOutput {
		t.Errorf("kept %d lines ending in %q, want at most %d, the last one among them", len(lines), last, 2*maxOutput)
	}
}

// TestReason holds that the summary says why a test failed, though it logs before and dumps after.
func TestReason(t *testing.T) {
	cases := []struct {
		name string
		says []string
		want []string
	}{
		{"the first and the last of many", []string{"=== RUN   TestX", "    a_test.go:1: one", "    a_test.go:2: two", "    a_test.go:3: three", "    a_test.go:4: four", "    a_test.go:5: five", "    a_test.go:6: six", "    a_test.go:7: seven", "    a_test.go:8: eight", "    a_test.go:9: nine", "--- FAIL: TestX (0.00s)"},
			[]string{"a_test.go:1: one", "a_test.go:2: two", "a_test.go:3: three", "a_test.go:5: five", "a_test.go:6: six", "a_test.go:7: seven", "a_test.go:8: eight", "a_test.go:9: nine"}},
		{"with how it goes on", []string{"    a_test.go:1: running x: exit status 1", "        error: no metrics", "        two", "        three"},
			[]string{"a_test.go:1: running x: exit status 1", "error: no metrics", "two"}},
		{"the last before a dump", []string{"    a_test.go:1: one", "    a_test.go:2: two", "    a_test.go:3: three", "    a_test.go:4: wrong", "    b_test.go:9: milan-2$ kubectl get pods", "        web", "    a_test.go:5: after"},
			[]string{"a_test.go:2: two", "a_test.go:3: three", "a_test.go:4: wrong"}},
		{"a panic", []string{"panic: nil map [recovered]", "goroutine 1"}, []string{"panic: nil map [recovered]"}},
		{"nothing of that kind", []string{"exit status 2", "out of memory"}, []string{"exit status 2", "out of memory"}},
	}
	for _, c := range cases {
		var got tally
		got.add(began("a", "TestX"))
		for _, line := range c.says {
			got.add(fmt.Sprintf(`{"Action":"output","Package":"a","Test":"TestX","Output":%q}`, line+"\n"))
		}
		got.add(ended("fail", "a", "TestX"))
		if said := got.result().reasons["a TestX"]; !slices.Equal(said, c.want) {
			t.Errorf("%s: %q, want %q", c.name, said, c.want)
		}
	}
}

func TestExecute(t *testing.T) {
	cases := []struct {
		reason string
		step   step
		passed int
		failed []string
		err    string
	}{
		{"a command that ends well is one thing that passed", shell("true"), 1, nil, ""},
		{"and one that does not is one that failed", shell("echo why; exit 3"), 0, []string{"step s"}, "exit status 3"},
		{"a command that is not there", step{name: "s", command: []string{"no-such-command"}, limit: time.Minute}, 0, []string{"step s"}, "not found"},
		{"time runs out, also for what the command started", shell("trap '' TERM; sleep 60 & wait; sleep 60"), 0, []string{"step s"}, "limit"},
		{"go test that fails by its tests needs no other reason", goStep(began("a", "TestX")+"\n"+ended("fail", "a", "TestX"), 1), 0, []string{"a TestX"}, ""},
		{"go test that fails without a failed test", goStep("go: no such package", 1), 0, []string{"step s"}, "exit status 1"},
		{"go test that runs no test proves nothing", goStep(ended("skip", "a", ""), 0), 0, []string{"step s"}, "no test"},
		{"and one whose only test is skipped says so", goStep(began("a", "TestX")+"\n"+ended("skip", "a", "TestX"), 0), 0, nil, ""},
		{"packages that cannot be listed", step{name: "s", command: []string{"true"}, limit: time.Minute, packages: func(context.Context) ([]string, error) { return nil, errors.New("no go.mod") }}, 0, []string{"step s"}, "no go.mod"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(c.err, "limit") {
				c.step.limit, c.step.grace = 200*time.Millisecond, 200*time.Millisecond
			}
			var out bytes.Buffer
			o := runStep(t.Context(), c.step, nil, t.TempDir(), &out)
			if o.counts.passed != c.passed || !slices.Equal(o.counts.failed, c.failed) {
				t.Errorf("%d passed, failed %q; want %d, %q", o.counts.passed, o.counts.failed, c.passed, c.failed)
			}
			if got := fmt.Sprint(o.err); (o.err == nil) != (c.err == "") || !strings.Contains(got, c.err) {
				t.Errorf("error %q, want it to contain %q", got, c.err)
			}
		})
	}
}

// TestInterruptEndsTheGroup holds that an interrupt lets every process of a step end by
// itself, and leaves none behind that will not.
func TestInterruptEndsTheGroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	pidFile := filepath.Join(dir, "pid")
	go func() {
		defer cancel()
		await(func() bool {
			text, _ := os.ReadFile(pidFile)
			return strings.HasSuffix(string(text), "\n")
		})
	}()
	var out bytes.Buffer
	asked, ready := filepath.Join(dir, "asked"), filepath.Join(dir, "ready")
	s := shell(`sh -c 'trap "echo yes > ` + asked + `; exit" TERM; : > ` + ready + `; sleep 600 & wait' &
		(trap '' TERM; exec sleep 600) & stubborn=$!
		while [ ! -e ` + ready + ` ]; do sleep 0.01; done
		echo $stubborn > ` + pidFile + `; wait`)
	s.grace = 5 * time.Second
	o := runStep(ctx, s, nil, dir, &out)
	if text, err := os.ReadFile(asked); err != nil || string(text) != "yes\n" {
		t.Errorf("a process of the step was not asked to end: %q, %v", text, err)
	}
	if o.err == nil || !strings.Contains(o.err.Error(), "interrupted") {
		t.Errorf("error %v, want interrupted", o.err)
	}
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if !await(func() bool { return syscall.Kill(pid, 0) != nil || zombie(pid) }) {
		t.Fatalf("process %d of the step still runs", pid)
	}
}

func TestUnmet(t *testing.T) {
	passed := outcome{step: step{name: "build"}}
	failed := outcome{step: step{name: "build"}, err: errors.New("no")}
	s := step{name: "cluster", needs: []string{"tools", "build"}}
	if got := unmet(s, []outcome{passed}); got != "" {
		t.Errorf("waiting for %q after it passed, and for tools that were left out", got)
	}
	if got := unmet(s, []outcome{failed}); got != "build" {
		t.Errorf("got %q, want build: it failed", got)
	}
}

func TestSummary(t *testing.T) {
	done := []outcome{
		{step: step{name: "unit", proves: "logic"}, took: 90 * time.Second, counts: counts{passed: 7, skipped: []string{"a TestRoot"},
			slow: []testCase{{pkg: "a", name: "TestSlow", result: "pass", elapsed: 30 * time.Second}, {pkg: "a", name: "TestQuick", result: "pass"}}}},
		{step: step{name: "bench", proves: "limits"}, took: 10 * time.Second, counts: counts{passed: 1}, shown: []string{"limit: up 50s of 60s"}},
	}
	want := `
Where the time went (1m40s of at most 45m00s):
    1m30s   90%  unit
      10s   10%  bench
The slowest tests:
      30s  a TestSlow
Skipped:
  a TestRoot

8 passed, 0 failed, 1 skipped
`
	var out bytes.Buffer
	if ok := printSummary(&out, done, 100*time.Second, 45*time.Minute, false); !ok {
		t.Error("a skip is no failure on a developer's machine")
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("summary (-want +got):\n%s", diff)
	}
	out.Reset()
	const late = "\nIt took longer than promised: 46m40s, and at most 45m00s with cold caches on two cores.\n"
	if ok := printSummary(&out, done, 2800*time.Second, 45*time.Minute, false); !ok || !strings.Contains(out.String(), late) {
		t.Errorf("a list that takes longer than promised fails: %t, and does not say %q:\n%s", !ok, late, out.String())
	}
	out.Reset()
	if ok := printSummary(&out, done, 100*time.Second, 0, true); ok {
		t.Error("a skip is a failure in CI")
	}
	if !strings.Contains(out.String(), "a TestRoot (skipped") || !strings.HasSuffix(out.String(), "\n8 passed, 1 failed, 0 skipped\n") {
		t.Errorf("the skipped test is not named as a failure:\n%s", out.String())
	}
	var bad tally
	for _, line := range []string{began("a", "TestX"), said("a", "TestX", "=== RUN TestX\n"), said("a", "TestX", "    x_test.go:7: got 1, want 2\n"),
		said("a", "TestX", "--- FAIL: TestX (0.1s)\n"), ended("fail", "a", "TestX")} {
		bad.add(line)
	}
	out.Reset()
	printSummary(&out, []outcome{{step: step{name: "unit"}, counts: bad.result()}}, time.Second, 0, false)
	if want := "Failed:\n  a TestX\n    | x_test.go:7: got 1, want 2\n\n0 passed, 1 failed"; !strings.Contains(out.String(), want) {
		t.Errorf("the end does not say why a test failed:\n%s", out.String())
	}
}

// TestSteps holds what makes the list of steps sound.
func TestSteps(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range steps {
		if s.name == "" || s.proves == "" || s.kind == "" || s.limit == 0 || len(s.command) == 0 || len(s.lists) == 0 {
			t.Errorf("step %q lacks a name, a reason, a kind, a limit, a command or a list", s.name)
		}
		if strings.Contains(s.name+s.proves, "|") {
			t.Errorf("step %s cannot be in a table", s.name)
		}
		if seen[s.name] {
			t.Errorf("two steps are called %s", s.name)
		}
		for _, need := range s.needs {
			if !seen[need] {
				t.Errorf("step %s needs %s, which does not come before it", s.name, need)
			}
		}
		for _, list := range s.lists {
			if !isList(list) {
				t.Errorf("step %s is on the unknown list %q", s.name, list)
			}
			for _, need := range s.needs {
				if len(choose(steps, list, regexp.MustCompile("^"+need+"$"))) == 0 {
					t.Errorf("step %s is on list %s without %s, which it needs", s.name, list, need)
				}
			}
		}
		whole := choose(steps, listTestAll, regexp.MustCompile("^"+s.name+"(-all(-[0-9]+)?)?$"))
		if slices.Contains(s.lists, listTest) && len(whole) == 0 {
			t.Errorf("step %s is in make test, and neither it nor %[1]s-all in make test-all, which runs everything", s.name)
		}
		if i := slices.Index(s.command, "-run"); i >= 0 && slices.Contains(s.command, "./test") {
			if test := strings.Split(s.command[i+1], "/")[0]; !regexp.MustCompile(ownSteps).MatchString(strings.Trim(test, "^$")) {
				t.Errorf("step %s runs %s, and so does the step cluster: ownSteps lacks it", s.name, test)
			}
		}
		if slices.Contains(s.command, "-count=1") {
			racing, same := slices.Contains(s.command, "-race"), slices.Contains(s.command, "-trimpath")
			if racing == same || racing != slices.Contains(s.env, race[0]) || same != slices.Contains(s.env, plain[0]) {
				t.Errorf("step %s compiles by itself what others compile: %v with %v", s.name, s.command, s.env)
			}
		}
		seen[s.name] = true
	}
}

// TestDemo holds that the demo is run with everything else, and has the time to remove its sandbox
// when its own is up.
func TestDemo(t *testing.T) {
	found := choose(steps, listTestAll, regexp.MustCompile("^demo$"))
	if len(found) != 1 {
		t.Fatalf("%d steps of make test-all are called demo", len(found))
	}
	s := found[0]
	if _, err := os.Stat(filepath.Join("../..", s.command[len(s.command)-1])); err != nil || s.grace < time.Minute {
		t.Errorf("it runs %q (%v), and has %s to end", s.command, err, s.grace)
	}
}

// TestParts holds that steps which run parts of the same tests run all parts of them, each once.
func TestParts(t *testing.T) {
	parts, of := map[string][]int{}, map[string]int{}
	for _, s := range steps {
		for _, value := range s.env {
			text, is := strings.CutPrefix(value, "PELAGO_TEST_PART=")
			if !is {
				continue
			}
			var number, most int
			if _, err := fmt.Sscanf(text, "%d/%d", &number, &most); err != nil {
				t.Fatalf("step %s runs part %s: %v", s.name, text, err)
			}
			whole, suffix := strings.TrimSuffix(s.name, fmt.Sprint(number)), strings.Join(s.command, " ")
			if whole == s.name || of[whole] != 0 && of[whole] != most {
				t.Errorf("step %s runs part %s of %d", s.name, text, of[whole])
			}
			parts[whole+suffix], of[whole], of[whole+suffix] = append(parts[whole+suffix], number), most, most
			if !slices.Equal(s.lists, []string{listTestAll}) || s.limit > 30*time.Minute {
				t.Errorf("step %s is on %v and takes up to %s: parts are of make test-all, and half an hour at most", s.name, s.lists, s.limit)
			}
		}
	}
	if len(parts) == 0 {
		t.Error("there are no parts")
	}
	for name, got := range parts {
		var want []int
		for i := range of[name] {
			want = append(want, i+1)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: parts %v are run, want %v", name, got, want)
		}
	}
}

func TestParse(t *testing.T) {
	cases := []struct {
		reason string
		args   []string
		want   string // part of the error
	}{
		{"a list", []string{"test"}, ""},
		{"flags before it", []string{"-run", "^unit", "-list", "test-all"}, ""},
		{"no list", nil, "name one list"},
		{"an unknown list", []string{"tests"}, "test-all"},
		{"flags after the list are not flags", []string{"test", "-list"}, "name one list"},
		{"not an expression", []string{"-run", "(", "test"}, "-run"},
	}
	for _, c := range cases {
		var out bytes.Buffer
		_, err := parse(c.args, &out)
		if (err == nil) != (c.want == "") || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: error %v, want it to contain %q", c.reason, err, c.want)
		}
	}
}

func TestPackages(t *testing.T) {
	text := `{"ImportPath":"github.com/pelago-dev/pelago/internal/kubetest"}
{"ImportPath":"github.com/pelago-dev/pelago/peering","XTestImports":["testing","github.com/pelago-dev/pelago/internal/kubetest"]}
{"ImportPath":"github.com/pelago-dev/pelago/network","TestImports":["github.com/pelago-dev/pelago/internal/kubetest"]}
{"ImportPath":"github.com/pelago-dev/pelago/network/ipam","TestImports":["testing"]}
{"ImportPath":"github.com/pelago-dev/pelago/test","TestImports":["github.com/pelago-dev/pelago/internal/kubetest"]}
`
	with, err := keepPackages(text, withServer)
	if want := []string{slowPackages[0], "github.com/pelago-dev/pelago/internal/kubetest", "github.com/pelago-dev/pelago/peering"}; err != nil || !slices.Equal(with, want) {
		t.Errorf("packages with a server %q, %v; want %q", with, err, want)
	}
	without, err := keepPackages(text, withoutServer)
	if want := []string{"github.com/pelago-dev/pelago/network/ipam"}; err != nil || !slices.Equal(without, want) {
		t.Errorf("packages without %q, %v; want %q", without, err, want)
	}
	if _, err := keepPackages("", withServer); err == nil {
		t.Error("a step without packages passes, and proves nothing")
	}
}

// TestListingEnds holds that the listing of packages is ended with the step, and go list with that.
func TestListingEnds(t *testing.T) {
	ended := false
	s := step{name: "s", command: []string{"true"}, limit: 50 * time.Millisecond, packages: func(ctx context.Context) ([]string, error) {
		select {
		case <-ctx.Done():
			ended = true
		case <-time.After(10 * time.Second):
		}
		return nil, errors.New("signal: killed")
	}}
	if o := runStep(t.Context(), s, nil, t.TempDir(), io.Discard); !ended || !strings.Contains(fmt.Sprint(o.err), "stopped at its limit") {
		t.Errorf("the listing was ended: %t, and the step says %v", ended, o.err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := listPackages(ctx, ".", withoutServer); !errors.Is(err, context.Canceled) {
		t.Errorf("it goes on: %v", err)
	}
}

func testEvent(action, pkg, name string) string {
	return fmt.Sprintf(`{"Action":%q,"Package":%q,"Test":%q}`, action, pkg, name)
}

func began(pkg, name string) string { return testEvent("run", pkg, name) }

func said(pkg, name, text string) string {
	return fmt.Sprintf(`{"Action":"output","Package":%q,"Test":%q,"Output":%q}`, pkg, name, text)
}

func ended(action, pkg, name string) string { return testEvent(action, pkg, name) }

// shell is a step that runs a line of shell.
func shell(line string) step {
	return step{name: "s", command: []string{"sh", "-c", line}, limit: time.Minute}
}

// goStep is a step that prints a stream of test events and exits.
func goStep(output string, code int) step {
	return step{name: "s", goTest: true, limit: time.Minute,
		command: []string{"sh", "-c", `printf '%s\n' "$0"; exit ` + strconv.Itoa(code), output}}
}

// await polls until the condition holds, ten seconds at most.
func await(condition func() bool) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); <-tick.C {
		if condition() {
			return true
		}
	}
	return false
}

func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ")
}
