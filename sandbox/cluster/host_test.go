package cluster

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// onOwnMounts gives the test a view of the host's files of its own, in which some folders are
// empty file systems. Whatever the test does has to be done by its own goroutine.
func onOwnMounts(t *testing.T, dirs ...string) {
	t.Helper()
	requireRoot(t)
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// ownBase keeps sandboxes in a folder of the test.
func ownBase(t *testing.T) string {
	t.Helper()
	before := Base
	t.Cleanup(func() { Base = before })
	Base = filepath.Join(t.TempDir(), "base")
	return Base
}

// TestDownLetsServicesStartAgain: an installation that crashed has left its policy.
func TestDownLetsServicesStartAgain(t *testing.T) {
	name := randomName(t)
	onOwnMounts(t, "/usr/sbin", "/run")
	const file = "/usr/sbin/policy-rc.d"
	for text, goes := range map[string]bool{
		"#!/bin/sh\n# Made while packages for a sandbox are installed.\nexit 101\n": true,
		"#!/bin/sh\nexit 101\n": false,
	} {
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := Down(name); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); (err != nil) != goes {
			t.Errorf("after down the policy %q: %v, want it gone: %t", text, err, goes)
		}
	}
}
