package main

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestFormat holds that the step format passes only if gofmt has read every file and would change none.
func TestFormat(t *testing.T) {
	found := choose(steps, listCheck, regexp.MustCompile("^format$"))
	if len(found) != 1 {
		t.Fatalf("%d steps of make check are called format", len(found))
	}
	for _, c := range []struct {
		reason, text string
		without      string // a program that is not there
		ok           bool
	}{
		{"formatted", "package a\n", "", true},
		{"not formatted", "package   a\n", "", false},
		{"not Go", "package\n", "", false},
		{"no gofmt", "package a\n", "gofmt", false},
		{"no git", "package a\n", "git", false},
	} {
		s, tools := found[0], t.TempDir()
		s.dir = t.TempDir()
		for name, text := range map[string]string{"file of a.go": c.text, "gone.go": "package a\n"} {
			if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][]string{{"init", "-q"}, {"add", "gone.go"}} {
			git := exec.Command("git", args...)
			git.Dir = s.dir
			if out, err := git.CombinedOutput(); err != nil {
				t.Fatalf("git %s: %v: %s", args[0], err, out)
			}
		}
		if err := os.Remove(filepath.Join(s.dir, "gone.go")); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"bash", "git", "xargs", "gofmt", "ls"} {
			path, err := exec.LookPath(name)
			if err != nil {
				t.Fatal(err)
			}
			if name == c.without {
				continue
			}
			if err := os.Symlink(path, filepath.Join(tools, name)); err != nil {
				t.Fatal(err)
			}
		}
		s.env = append(s.env, "PATH="+tools)
		if o := runStep(context.Background(), s, nil, t.TempDir(), io.Discard); o.ok() != c.ok {
			text, _ := os.ReadFile(o.log)
			t.Errorf("%s: passed %t, want %t: %v\n%s", c.reason, o.ok(), c.ok, o.err, text)
		}
	}
}
