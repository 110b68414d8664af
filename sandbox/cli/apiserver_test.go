package cli

import (
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/sandbox/build"
)

// fakeKube makes a script be Kubernetes, for a cache that has to build it.
func fakeKube(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	kube := filepath.Join(dir, "script")
	compiler := "#!/bin/sh\nwhile test $# -gt 0; do test \"$1\" != -o || cp " + kube + " \"$2\"; shift; done\n"
	for path, text := range map[string]string{kube: "#!/bin/sh\n" + script, filepath.Join(dir, "go"): compiler} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":/usr/bin:/bin")
	t.Setenv(build.CacheVariable, filepath.Join(dir, "cache"))
}

// TestAPIServerTakesNoFolderOfSomebodys: it removes its folder at the end.
func TestAPIServerTakesNoFolderOfSomebodys(t *testing.T) {
	fakeKube(t, "test \"$1\" != etcd || exec sleep 1000\nexit 7\n")
	dir := t.TempDir()
	letter := filepath.Join(dir, "letter")
	if err := os.WriteFile(letter, []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := program("apiserver", "--dir", dir)
	if want := "--dir " + dir + " has letter in it"; got.code != 1 || !strings.Contains(got.stderr, want) || !strings.Contains(got.stderr, "name a folder that is empty") {
		t.Errorf("with a folder that is in use: %+v, want %q and the remedy", got, want)
	}
	if text, err := os.ReadFile(letter); err != nil || string(text) != "dear" {
		t.Errorf("what was in the folder is %q, %v", text, err)
	}
	if got := program("apiserver", "--dir", letter); got.code != 1 || !strings.Contains(got.stderr, "--dir") {
		t.Errorf("with a file: %+v", got)
	}
	for reason, own := range map[string]string{"a folder that is empty": t.TempDir(), "a folder that is not there": filepath.Join(t.TempDir(), "deep", "er")} {
		if got := program("apiserver", "--dir", own); got.code != 1 || !strings.Contains(got.stderr, "ended: exit status 7") {
			t.Errorf("%s: %+v, want that Kubernetes is run", reason, got)
		}
		if _, err := os.Stat(own); err == nil {
			t.Errorf("%s is there still", reason)
		}
	}
}

// TestTerminalCloses: what a command has made is tidied up.
func TestTerminalCloses(t *testing.T) {
	// These tests may themselves run below nohup.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	begun := filepath.Join(t.TempDir(), "begun")
	fakeKube(t, ": > "+begun+"\nexec sleep 1000\n")
	dir := t.TempDir()
	done := make(chan output, 1)
	go func() { done <- program("apiserver", "--dir", dir) }()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	end := time.Now().Add(time.Minute)
	for _, err := os.Stat(begun); err != nil; _, err = os.Stat(begun) {
		if <-tick.C; time.Now().After(end) {
			t.Fatal("the command does not begin")
		}
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-done:
		if _, err := os.Stat(dir); err == nil || got.code != 1 {
			t.Errorf("%s is there still, %+v", dir, got)
		}
	case <-time.After(time.Minute):
		t.Error("the command goes on")
	}
}

func TestTerminalMayCloseUnderNohup(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer signal.Reset(syscall.SIGHUP)
	if slices.Contains(endings(), os.Signal(syscall.SIGHUP)) {
		t.Error("SIGHUP ends a program that was started to ignore it")
	}
}
