package cluster

import (
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/sandbox/config"
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
		t.Cleanup(func() {
			if err := syscall.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		})
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

// TestLimitsAreRestored: what somebody else has set meanwhile stays.
func TestLimitsAreRestored(t *testing.T) {
	ownBase(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	before := limits
	t.Cleanup(func() { limits = before })
	limits = map[string]int{path("low"): 8192, path("raised"): 8192, path("lowered"): 8192, path("again"): 8192, path("high"): 8192}
	set := func(values map[string]string) {
		for name, value := range values {
			if err := os.WriteFile(path(name), []byte(value), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	check := func(reason string, want map[string]string) {
		t.Helper()
		got := maps.Clone(want)
		for name := range got {
			text, err := os.ReadFile(path(name))
			if err != nil {
				t.Fatal(err)
			}
			got[name] = string(text)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", reason, d)
		}
	}
	if err := os.MkdirAll(Base, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, restore := range []bool{true, false} { // a power cut has left an empty file
		if err := os.WriteFile(limitsFile(), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if !restore {
			continue
		}
		if err := restoreLimits(); err != nil {
			t.Errorf("without old values: %v", err)
		}
	}
	set(map[string]string{"low": "128\n", "raised": "128\n", "lowered": "128\n", "again": "128\n", "high": "65536\n"})
	for range 2 {
		if err := raiseLimits(); err != nil {
			t.Fatal(err)
		}
	}
	check("raised", map[string]string{"low": "8192", "raised": "8192", "lowered": "8192", "again": "8192", "high": "65536\n"})
	set(map[string]string{"again": "1024\n"})
	if err := raiseLimits(); err != nil {
		t.Fatal(err)
	}
	check("raised once more", map[string]string{"low": "8192", "again": "8192"})
	set(map[string]string{"raised": "65536\n", "lowered": "4096\n"})
	if err := restoreLimits(); err != nil {
		t.Fatal(err)
	}
	check("restored", map[string]string{"low": "128", "raised": "65536\n", "lowered": "4096\n", "again": "1024", "high": "65536\n"})
	if _, err := os.Stat(limitsFile()); err == nil {
		t.Error("the old values are remembered still")
	}
}

func TestBaseIsAFileSystemOfItsOwn(t *testing.T) {
	name, base := randomName(t), ownBase(t)
	if err := os.MkdirAll(base, 0o755); err != nil {
		t.Fatal(err)
	}
	onOwnMounts(t, base)
	lost := filepath.Join(base, "lost+found")
	if err := os.Mkdir(lost, 0o700); err != nil {
		t.Fatal(err)
	}
	down := func() {
		if err := Down(name); err != nil {
			t.Errorf("down: %v", err)
		}
		if _, err := os.Stat(dirOf(name)); err == nil {
			t.Error("the sandbox is there still")
		}
	}
	if _, err := Prepare(name, config.Sandbox{Clusters: wanted(t, 1, "rome")}); err != nil {
		t.Errorf("up beside lost+found: %v", err)
	}
	if all, err := Names(); err != nil || cmp.Diff([]string{name}, all) != "" {
		t.Errorf("sandboxes are %v, %v, want %s", all, err, name)
	}
	down()
	if err := os.Remove(lost); err != nil {
		t.Errorf("what is not ours is gone: %v", err)
	}
	if _, err := Prepare(name, config.Sandbox{Clusters: wanted(t, 1, "rome")}); err != nil {
		t.Fatal(err)
	}
	down() // and the folder is empty, yet cannot be removed
}

// TestBaseAndCacheBehindLinks: a node sees the file systems on which they lie, and at the places
// where they lie there.
func TestBaseAndCacheBehindLinks(t *testing.T) {
	name, base := randomName(t), ownBase(t)
	elsewhere, built := t.TempDir(), t.TempDir()
	kube := filepath.Join(built, "v1", "kube")
	if err := os.MkdirAll(filepath.Dir(kube), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(kube, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	cache := base + "-cache"
	for link, to := range map[string]string{base: elsewhere, cache: built} {
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	s, err := Prepare(name, config.Sandbox{Clusters: wanted(t, 1, "rome")})
	if err != nil {
		t.Fatal(err)
	}
	s.Clusters[0].use(filepath.Join(cache, "v1", "kube"))
	spec := s.Clusters[0].nodeSpec(1)
	got := []string{s.Dir(), spec.Dir, spec.Program, s.Clusters[0].Kube, spec.Visible[0]}
	box := filepath.Join(elsewhere, name)
	want := []string{box, filepath.Join(box, "rome-1"), filepath.Join(box, "bin", "pelago-sandbox"), kube, filepath.Dir(kube)}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("places of a node's files (-want +got):\n%s", d)
	}
	if err := Down(name); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(box); err == nil {
		t.Errorf("%s remains", box)
	}
	if to, err := os.Readlink(base); err != nil || to != elsewhere {
		t.Errorf("the link, which is not ours, leads to %q, %v", to, err)
	}
}

func TestLastDownRemovesTheBase(t *testing.T) {
	name, base := randomName(t), ownBase(t)
	if _, err := Prepare(name, config.Sandbox{Clusters: wanted(t, 1, "rome")}); err != nil {
		t.Fatal(err)
	}
	if err := Down(name); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(base); err == nil {
		t.Errorf("%s remains", base)
	}
}
