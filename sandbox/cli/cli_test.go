package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/pelago-dev/pelago/sandbox/machine"
)

func TestHelp(t *testing.T) {
	for _, c := range visible(tree()) {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		got := program(args...)
		if got.code != 0 || got.stderr != "" {
			t.Errorf("help of %s ends with %d and says %q", c.CommandPath(), got.code, got.stderr)
		}
		if !c.HasParent() {
			golden(t, "help.txt", got.out)
			if bare := program(); bare.out != got.out || bare.code != 0 {
				t.Errorf("without arguments the program does not show its help: %+v", bare)
			}
		}
	}
}

func TestEveryCommandIsDescribed(t *testing.T) {
	for _, c := range visible(tree()) {
		path := c.CommandPath()
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || strings.ToUpper(c.Short[:1]) != c.Short[:1] {
			t.Errorf("%s: its short text is %q; want a line that begins with a capital and ends without a full stop", path, c.Short)
		}
		if c.Example == "" {
			t.Errorf("%s has no example", path)
		}
		for line := range strings.SplitSeq(c.Example, "\n") {
			if !strings.HasPrefix(line, "  pelago-sandbox ") {
				t.Errorf("%s: the line of its example %q is no command", path, line)
			}
		}
		if c.HasParent() && !strings.Contains(c.Example, path) {
			t.Errorf("%s: its example shows another command: %q", path, c.Example)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s: flag --%s is not described", path, f.Name)
			}
		})
	}
}

// TestExamplesAreUnderstood parses every example as the program would.
func TestExamplesAreUnderstood(t *testing.T) {
	quoted := regexp.MustCompile(`"[^"]*"`)
	for _, c := range visible(tree()) {
		for line := range strings.SplitSeq(c.Example, "\n") {
			line, _, _ = strings.Cut(quoted.ReplaceAllString(line, "quoted"), " >")
			line = strings.ReplaceAll(line, "$$", "4711")
			words := strings.Fields(line)
			command, rest, err := tree().Find(words[1:])
			if err != nil {
				t.Errorf("%q: %v", line, err)
				continue
			}
			if err := command.ParseFlags(rest); err != nil {
				t.Errorf("%q: %v", line, err)
			} else if err := command.ValidateArgs(command.Flags().Args()); err != nil {
				t.Errorf("%q: %v", line, err)
			}
		}
	}
}

func TestVersion(t *testing.T) {
	if d := cmp.Diff(output{0, "pelago-sandbox version v1.2.3\n", ""}, program("--version"), cmp.AllowUnexported(output{})); d != "" {
		t.Errorf("version (-want +got):\n%s", d)
	}
}

func TestNameStandsAnywhere(t *testing.T) {
	name := nobody(t)
	for _, c := range []struct {
		reason string
		args   []string
	}{
		{"before the command", []string{"--name", name, "status"}},
		{"after the command", []string{"status", "--name", name}},
		{"with an equals sign", []string{"status", "--name=" + name, "-o", "json"}},
		{"between a group and its command", []string{"link", "--name", name, "cut", "rome", "milan"}},
		{"between arguments", []string{"node", "stop", "rome", "--name", name, "rome-1"}},
		{"after arguments", []string{"kubeconfig", "rome", "--name", name}},
		{"before the dashes", []string{"kubectl", "rome", "--name", name, "--", "get", "pods"}},
		{"what follows the dashes belongs to the other program", []string{"run", "--name", name, "rome", "--", "cmd", "--name", "other", "-n", "x", "--node"}},
		{"the last one counts", []string{"--name", "other", "api", "pause", "rome", "--name", name}},
	} {
		got := program(c.args...)
		if want := "sandbox " + name + ": no such sandbox"; got.code != 1 || got.out != "" || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %q ends with %+v, want %q", c.reason, c.args, got, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	name := "--name=" + nobody(t)
	for _, c := range []struct {
		reason string
		args   []string
		want   string
	}{
		{"an unknown command", []string{"upp"}, `unknown command "upp" for "pelago-sandbox"`},
		{"it suggests what was meant", []string{"statsu"}, "status"},
		{"an unknown command of a group", []string{"link", "cutt", "rome", "milan"}, `unknown command "cutt" for "pelago-sandbox link"`},
		{"of another group", []string{"node", "restart", "rome", "rome-1"}, `unknown command "restart" for "pelago-sandbox node"`},
		{"of the API servers", []string{"api", "stop", "rome"}, `unknown command "stop" for "pelago-sandbox api"`},
		{"of images", []string{"image", "push"}, `unknown command "push" for "pelago-sandbox image"`},
		{"an unknown flag", []string{"up", "--cluster", "rome"}, "unknown flag: --cluster"},
		{"a version that is none", []string{"build", "--versions", "latest"}, "--versions: "},
		{"an unknown short flag", []string{"status", "-x"}, "unknown shorthand flag"},
		{"a flag without its value", []string{"up", "--nodes"}, "flag needs an argument: --nodes"},
		{"a number that is none", []string{"up", "--nodes", "two"}, `invalid argument "two" for "--nodes"`},
		{"too many arguments", []string{"up", "rome"}, `unknown command "rome" for "pelago-sandbox up"`},
		{"too few arguments", []string{"link", "cut", "rome"}, "accepts 2 arg(s), received 1"},
		{"no cluster", []string{"kubectl"}, "requires at least 1 arg(s)"},
		{"no command to run", []string{"run", "rome", "--"}, "requires at least 2 arg(s)"},
		{"an output that does not exist", []string{"status", "-o", "yaml"}, `--output "yaml": use json`},
		{"the same for links", []string{"link", "show", "-o", "wide"}, `--output "wide": use json`},
		{"a loss that is none", []string{"link", "set", "rome", "milan", "--loss", "much"}, `--loss "much": use a share`},
		{"a rate without its unit", []string{"link", "set", "rome", "milan", "--rate", "100"}, `--rate "100": use a number and a unit`},
		{"a delay without its unit", []string{"link", "set", "rome", "milan", "--delay", "50"}, `invalid argument "50" for "--delay"`},
		{"a file and flags", []string{"up", name, "-f", "x.yaml", "--nodes", "1"}, "--file describes the clusters; leave out --nodes"},
		{"a file that is not there", []string{"up", name, "-f", "/no/such/file.yaml"}, "reading --file: open /no/such/file.yaml"},
		{"clusters that cannot be", []string{"up", name, "--clusters", "Rome"}, "Rome"},
		{"two clusters of one name", []string{"up", name, "--clusters", "rome,rome"}, "rome"},
		{"no nodes", []string{"up", name, "--nodes", "0"}, "nodes"},
		{"a name that cannot be", []string{"status", "--name", "../x"}, "use at most 20 lower-case letters"},
		{"an API server nowhere", []string{"apiserver"}, "--dir is missing"},
	} {
		got := program(c.args...)
		if got.code != 1 || got.out != "" || !strings.HasPrefix(got.stderr, "Error: ") || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%s: %q ends with %d, %q, %q; want %q", c.reason, c.args, got.code, got.out, got.stderr, c.want)
		}
		if strings.Contains(got.stderr, "Usage:") {
			t.Errorf("%s: the mistake is hidden behind the usage:\n%s", c.reason, got.stderr)
		}
	}
}

func TestDownOfNothingIsFine(t *testing.T) {
	name := nobody(t)
	got := program("down", "--name", name)
	if got.code != 0 || !strings.HasPrefix(got.out, "Sandbox "+name+" is gone (") {
		t.Errorf("down of what is not there: %+v", got)
	}
}

func TestInitIsNoCommandOfTheTree(t *testing.T) {
	got := program(machine.InitCommand)
	if got.code != 1 || !strings.Contains(got.stderr, "usage: machine-init FILE") {
		t.Errorf("the init without a file: %+v", got)
	}
	if got := program(machine.InitCommand, "/no/such/file"); got.code != 1 || !strings.Contains(got.stderr, "/no/such/file") {
		t.Errorf("the init with a file that is not there: %+v", got)
	}
}

func TestExitStatusIsHandedOn(t *testing.T) {
	for _, c := range []struct {
		reason, script string
		want           int
	}{
		{"success", "exit 0", 0},
		{"failure", "exit 1", 1},
		{"another number", "exit 42", 42},
		{"the largest", "exit 255", 255},
		{"a signal is a failure", "kill -KILL $$", 1},
	} {
		e := &env{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}}
		err := e.execute(context.Background(), nil, "/bin/sh", "-c", c.script)
		var code exitCode
		if c.want == 0 && err != nil || c.want != 0 && (!errors.As(err, &code) || int(code) != c.want) {
			t.Errorf("%s: %q ends with %v, want %d", c.reason, c.script, err, c.want)
		}
	}
	e := &env{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}}
	var code exitCode
	if err := e.execute(context.Background(), nil, "/no/such/program"); err == nil || errors.As(err, &code) {
		t.Errorf("a program that is not there: %v, want an error to print", err)
	}
}

func TestExecuteHandsOnItsStreams(t *testing.T) {
	var out, stderr bytes.Buffer
	e := &env{in: strings.NewReader("asked\n"), out: &out, err: &stderr}
	err := e.execute(context.Background(), []string{"KUBECONFIG=/the/file"}, "/bin/sh", "-c", `read line; echo "$line $KUBECONFIG $HOME"; echo problem >&2`)
	if err != nil || out.String() != "asked /the/file "+os.Getenv("HOME")+"\n" || stderr.String() != "problem\n" {
		t.Errorf("out %q, error output %q, %v", out.String(), stderr.String(), err)
	}
}

func TestExecuteEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out := &ending{at: "ready\n", end: cancel}
	e := &env{in: strings.NewReader(""), out: out, err: out}
	err := e.execute(ctx, nil, "/bin/sh", "-c", `trap 'echo tidy; exit 7' TERM; echo ready; while :; do sleep 0.05; done`)
	var code exitCode
	if !errors.As(err, &code) || code != 7 || out.said.String() != "ready\ntidy\n" {
		t.Errorf("after SIGTERM: %v, %q", err, out.said.String())
	}
}

// ending is what a program writes, until when a context lasts: it ends with a line.
type ending struct {
	said strings.Builder
	at   string
	end  context.CancelFunc
}

func (e *ending) Write(p []byte) (int, error) {
	n, err := e.said.Write(p)
	if strings.Contains(e.said.String(), e.at) {
		e.end()
	}
	return n, err
}

func TestWatchedProcess(t *testing.T) {
	watched := exec.Command("/bin/sh", "-c", "read line")
	in, err := watched.StdinPipe()
	if err == nil {
		err = watched.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := whileAlive(context.Background(), watched.Process.Pid)
	defer cancel()
	select {
	case <-ctx.Done():
		t.Fatal("the watch ended before the process")
	case <-time.After(500 * time.Millisecond):
	}
	in.Close() // it ends, and stays a zombie until it is waited for
	select {
	case <-ctx.Done():
	case <-time.After(time.Minute):
		t.Error("the watch outlived the process")
	}
	_ = watched.Wait()
}

func TestToolsFolder(t *testing.T) {
	dir := t.TempDir()
	kube := filepath.Join(dir, "the kube program")
	if err := os.WriteFile(kube, []byte("#!/bin/sh\nfor a; do echo \"[$a]\"; done; exit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := linkTools(dir, kube); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(filepath.Join(dir, "tools", "kubectl"), "get", "a b", "").CombinedOutput()
	var exit *exec.ExitError
	if d := cmp.Diff("[kubectl]\n[get]\n[a b]\n[]\n", string(out)); !errors.As(err, &exit) || exit.ExitCode() != 3 || d != "" {
		t.Errorf("kubectl of the tools folder: %v (-want +got):\n%s", err, d)
	}
}

func TestRootIsNeeded(t *testing.T) {
	if os.Geteuid() == 0 {
		ordinaryUser(t)
		return
	}
	for _, args := range [][]string{{"up"}, {"down"}, {"status"}, {"run", "rome", "--", "true"}} {
		if got := program(args...); got.code != 1 || !strings.Contains(got.stderr, "this needs root") {
			t.Errorf("%q as an ordinary user: %+v", args, got)
		}
	}
}

// ordinaryUser runs this test again as nobody.
func ordinaryUser(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp("", "cli-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	copied := filepath.Join(dir, "cli.test")
	self, err := os.ReadFile("/proc/self/exe")
	if err := errors.Join(err, os.Chmod(dir, 0o755), os.WriteFile(copied, self, 0o755)); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(copied, "-test.run=^TestRootIsNeeded$")
	command.Dir = dir
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
}
