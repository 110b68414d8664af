// Package demo holds what the demo is made of: its clusters, its workloads and its words.
// Here is only their test.
package demo

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// script runs lines after the words of the demo, with a pelago-sandbox that prints a kubeconfig.
func script(t *testing.T, lines string) (out, keys string) {
	t.Helper()
	keys = t.TempDir()
	tools := t.TempDir()
	if err := os.WriteFile(filepath.Join(tools, "pelago-sandbox"), []byte("#!/bin/sh\necho secret\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail; umask 022; . ./words.sh\n"+lines)
	c.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "keys="+keys)
	text, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return string(text), keys
}

// TestKeys holds that kubeconfigs of administrators are nobody else's to read, while other
// files are made as usual.
func TestKeys(t *testing.T) {
	_, keys := script(t, `key rome; : >"$keys/other"`)
	for name, want := range map[string]os.FileMode{"rome": 0o600, "other": 0o644} {
		info, err := os.Stat(filepath.Join(keys, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %o", name, info, err, want)
		}
	}
	text, err := os.ReadFile("../demo.sh")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "pelago-sandbox kubeconfig") && !strings.Contains(line, "umask 077") {
			t.Errorf("it writes a kubeconfig for everybody to read: %s", line)
		}
	}
}

// TestWords holds that commands are shown as people type them, and that nothing is shown which
// a terminal obeys.
func TestWords(t *testing.T) {
	for line, want := range map[string]string{
		`typed pelago-sandbox kubectl rome -- get pods -n shop`: "pelago-sandbox kubectl rome -- get pods -n shop\n",
		`typed sh -c 'echo I am $(hostname)'`:                   "sh -c 'echo I am $(hostname)'\n",
		`typed kubectl -o 'jsonpath={.items[0]}' '' "it's"`:     "kubectl -o 'jsonpath={.items[0]}' '' 'it'\\''s'\n",
		`typed echo $'a\e[31mb\tc\nd'`:                          "echo 'a[31mbcd'\n",
		`clean $'pelago peer \e]0;title\amilan\r --token x'`:    "pelago peer ]0;titlemilan --token x\n",
		`show true 'a b'`: "$ true 'a b'\n",
		`at rome printenv KUBECONFIG | sed "s,$keys/,,"; say $'one' 'two'`: "rome$ printenv KUBECONFIG\nrome\n\none two\n",
	} {
		if got, _ := script(t, line); got != want {
			t.Errorf("%s shows %q, want %q", line, got, want)
		}
	}
	// What is shown can be typed: the shell reads the same words.
	if got, _ := script(t, `set -- 'a b' "it's" '$HOME' '*' ''; eval "again=($(typed "$@"))"; [ "${again[*]@Q}" = "${*@Q}" ] && echo same`); got != "same\n" {
		t.Errorf("what is typed again is %q", got)
	}
}

// TestPastProxies holds that what the demo runs reaches the sandbox where there is a proxy, by the
// ranges that the sandbox has.
func TestPastProxies(t *testing.T) {
	source, err := os.ReadFile("../../sandbox/address/address.go")
	if err != nil {
		t.Fatal(err)
	}
	var ranges []string
	for _, found := range regexp.MustCompile(`Space[46] = netip.MustParsePrefix\("(.*)"\)`).FindAllStringSubmatch(string(source), -1) {
		ranges = append(ranges, found[1])
	}
	if len(ranges) != 2 {
		t.Fatalf("the ranges of sandboxes are %q", ranges)
	}
	all := strings.Join(ranges, ",")
	for set, want := range map[string]string{
		"": all, "NO_PROXY=a,b": "a,b," + all, "no_proxy=a": "a," + all, "NO_PROXY='*' no_proxy='*'": "*",
	} {
		got, _ := script(t, "unset NO_PROXY no_proxy; export "+set+"; past_proxies; sh -c 'echo \"$NO_PROXY $no_proxy\"'")
		if !strings.HasSuffix(got, want+" "+want+"\n") {
			t.Errorf("with %q the exceptions are %q, want %q twice", set, got, want)
		}
	}
	text, err := os.ReadFile("../demo.sh")
	if err != nil || !strings.Contains(string(text), "\npast_proxies\n") {
		t.Errorf("the demo goes through proxies (%v)", err)
	}
}

// TestUndo holds that the demo goes on from wherever it was interrupted: before it looks at anything
// the link is whole, and the tenant, if there is one, may use milan.
func TestUndo(t *testing.T) {
	for tenant, want := range map[string]string{"true": "link heal rome milan\npelago uncordon tenant rome\n", "false": "link heal rome milan\n"} {
		got, _ := script(t, `pelago-sandbox() { case $1 in link) echo "$@" >>$keys/told ;; *) `+tenant+` ;; esac; }
pelago() { echo pelago "$@" >>$keys/told; }
undo; cat $keys/told`)
		if got != want {
			t.Errorf("with a tenant %s it does\n%s, want\n%s", tenant, got, want)
		}
	}
	text, err := os.ReadFile("../demo.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nshow pelago-sandbox up ")
	before, _, found := strings.Cut(after, "\nsay ")
	if !found || !strings.HasSuffix(before, "\nundo\n") {
		t.Errorf("between up and the first look the demo does\n%s", before)
	}
}

// whole runs whole.sh with a demo of these lines, in a tree of its own, and returns what the sandbox was
// told, in order.
func whole(t *testing.T, down, demo string, during func(*exec.Cmd, io.Reader)) (told string, err error) {
	t.Helper()
	root := t.TempDir()
	text, err := os.ReadFile("whole.sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"test/demo/whole.sh": string(text), "test/demo.sh": "echo demo of $PELAGO_DEMO_SANDBOX >>told\n" + demo + "\n",
		"bin/pelago-sandbox": "#!/bin/sh\necho \"$@\" >>told\n" + down + "\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.CommandContext(t.Context(), "bash", filepath.Join(root, "test/demo/whole.sh"))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	if during != nil {
		during(c, out)
	}
	if _, err := io.Copy(io.Discard, out); err != nil {
		t.Error(err)
	}
	err = c.Wait()
	text, _ = os.ReadFile(filepath.Join(root, "told"))
	return string(text), err
}

// TestWhole holds that the demo as a test has a sandbox of its own, which goes however it ends.
func TestWhole(t *testing.T) {
	const gone = "--name demo down\ndemo of demo\n--name demo down\n"
	for _, c := range []struct {
		reason, down, demo string
		code               int
	}{
		{"it ends well", "", "true", 0},
		{"it fails, and says so", "", "exit 3", 3},
		{"what it leaves cannot be removed", `[ ! -e again ] && : >again || exit 4`, "true", 4},
	} {
		told, err := whole(t, c.down, c.demo, nil)
		var exit *exec.ExitError
		code := 0
		if errors.As(err, &exit) {
			code = exit.ExitCode()
		}
		if told != gone || code != c.code {
			t.Errorf("%s: exit code %d (%v), not %d, and the sandbox was told\n%s", c.reason, code, err, c.code, told)
		}
	}
	told, err := whole(t, "", "echo begun; exec sleep 600", func(c *exec.Cmd, out io.Reader) {
		line := make([]byte, len("begun"))
		if _, err := io.ReadFull(out, line); err != nil || string(line) != "begun" {
			t.Errorf("it says %q (%v)", line, err)
		}
		if err := syscall.Kill(-c.Process.Pid, syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	})
	if told != gone || err == nil {
		t.Errorf("its time is up (%v), and the sandbox was told\n%s", err, told)
	}
}

// TestOwnSandbox holds that the demo names its sandbox to all that it runs, if it has one of its own.
func TestOwnSandbox(t *testing.T) {
	text, err := os.ReadFile("../demo.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, part, found := strings.Cut(string(text), "if [ -n \"${PELAGO_DEMO_SANDBOX")
	part, _, ended := strings.Cut(part, "\nfi\n")
	if !found || !ended {
		t.Fatal("there is no such part in it")
	}
	part = "if [ -n \"${PELAGO_DEMO_SANDBOX" + part + "\nfi\n"
	for name, want := range map[string]string{"": "kubectl rome -- get nodes\n", "demo": "--name demo kubectl rome -- get nodes\n"} {
		tools := t.TempDir()
		if err := os.WriteFile(filepath.Join(tools, "pelago-sandbox"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		c := exec.CommandContext(t.Context(), "bash", "-c", "set -euo pipefail; . ./words.sh; keys=.\n"+part+"show pelago-sandbox kubectl rome -- get nodes | tail -1")
		c.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "PELAGO_DEMO_SANDBOX="+name)
		if out, err := c.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("with a sandbox called %q it runs pelago-sandbox %q (%v)", name, out, err)
		}
	}
}
