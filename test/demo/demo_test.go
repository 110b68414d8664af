// Package demo holds what the demo is made of: its clusters, its workloads and its words.
// Here is only their test.
package demo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
