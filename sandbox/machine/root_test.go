package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// privateSpec is a machine with a root of its own, a disk and a window to a
// folder of the host.
func privateSpec(w world, window string) Spec {
	return w.spec("node", func(s *Spec) {
		s.PrivateRoot = true
		s.Disk = []string{"/var/lib/kubelet", "/etc/cni/net.d"}
		s.Visible = append(s.Visible, window)
	})
}

func TestPrivateRootKeepsTheHostClean(t *testing.T) {
	w := newWorld(t)
	m := w.start(t, privateSpec(w, shortDir(t)))
	name := "pelago-test-" + random()
	before, err := os.ReadFile("/etc/hostname")
	if err != nil {
		t.Fatal(err)
	}
	folders := []string{"/", "/etc", "/tmp", "/opt", "/usr/bin", "/var/lib", "/var/log", "/root", "/run", "/home", "/srv", "/var/lib/kubelet"}
	for _, folder := range folders {
		run(t, m, "mkdir -p "+folder+"; echo x > "+folder+"/"+name)
	}
	run(t, m, "echo x >> /etc/hostname; rm /etc/passwd")
	for _, folder := range folders {
		path := filepath.Join(folder, name)
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the host has %s, which a machine wrote: %v", path, err)
			_ = os.Remove(path)
		}
	}
	after, err := os.ReadFile("/etc/hostname")
	if d := cmp.Diff(string(before), string(after)); err != nil || d != "" {
		t.Errorf("/etc/hostname of the host changed: %v (-before +after):\n%s", err, d)
	}
	if _, err := os.Stat("/etc/passwd"); err != nil {
		t.Errorf("a machine removed a file of the host: %v", err)
	}
}

func TestPrivateRootHidesTheHost(t *testing.T) {
	w := newWorld(t)
	secret := filepath.Join(shortDir(t), "secret") // below /tmp, which is the machine's own
	write(t, secret, "x")
	m := w.start(t, privateSpec(w, shortDir(t)))
	got := run(t, m, "test ! -e "+secret+" && ls -A /run /.host && stat -c %a /tmp && test -c /dev/null && echo fine")
	if d := cmp.Diff("/.host:\n\n/run:\n1777\nfine", got); d != "" {
		t.Errorf("the machine's view (-want +got):\n%s", d)
	}
	for line := range strings.SplitSeq(run(t, m, "cat /proc/self/mountinfo"), "\n") {
		if fields := strings.Fields(line); fields[4] == "/" && !strings.Contains(line, "overlay") {
			t.Errorf("the root is no overlay: %s", line)
		}
		if !strings.Contains(line, " shared:") {
			t.Errorf("a mount that containers would not pass on: %s", line)
		}
	}
}

func TestDiskOutlivesMemory(t *testing.T) {
	w := newWorld(t)
	spec := privateSpec(w, shortDir(t))
	m := w.start(t, spec)
	run(t, m, "echo kept > /var/lib/kubelet/a; echo kept > /etc/cni/net.d/b; echo lost > /etc/c; echo lost > /tmp/d")
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	again := w.start(t, spec)
	if again.PID == m.PID {
		t.Errorf("the machine was not started again: PID %d", again.PID)
	}
	got := run(t, again, "cat /var/lib/kubelet/a /etc/cni/net.d/b; ls /etc/c /tmp/d 2>&1 | wc -l; ls -d /etc/c /tmp/d 2>/dev/null || true")
	if d := cmp.Diff("kept\nkept\n2", got); d != "" {
		t.Errorf("after a power cut (-want +got):\n%s", d)
	}
	want := map[string]string{"var-lib-kubelet/a": "kept\n", "etc-cni-net.d/b": "kept\n"}
	if d := cmp.Diff(want, filesBelow(t, filepath.Join(spec.Dir, "disk"))); d != "" {
		t.Errorf("the disk on the host (-want +got):\n%s", d)
	}
}

func TestVisibleFolderIsTheHosts(t *testing.T) {
	w := newWorld(t)
	window := shortDir(t)
	write(t, filepath.Join(window, "in"), "from the host\n")
	m := w.start(t, privateSpec(w, window))
	got := run(t, m, "cd "+window+"; cat in; echo from the machine > out; test -s "+m.file()+"; echo here > "+m.Dir+"/own")
	if d := cmp.Diff("from the host", got); d != "" {
		t.Errorf("what the machine reads (-want +got):\n%s", d)
	}
	for path, want := range map[string]string{filepath.Join(window, "out"): "from the machine\n", filepath.Join(m.Dir, "own"): "here\n"} {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("the host reads %q in %s, %v, want %q", text, path, err, want)
		}
	}
}

func TestPretendedFiles(t *testing.T) {
	w := newWorld(t)
	const setting = "/proc/sys/vm/overcommit_memory"
	before, err := os.ReadFile(setting)
	if err != nil {
		t.Fatal(err)
	}
	m := w.start(t, w.spec("node", func(s *Spec) {
		s.PrivateRoot = true
		s.Pretend = map[string]string{setting: "42\n", "/proc/sys/kernel/panic": "77\n", "/proc/sys/no/such": "1\n"}
	}))
	if d := cmp.Diff("42\n77", run(t, m, "cat "+setting+" /proc/sys/kernel/panic")); d != "" {
		t.Errorf("pretended settings (-want +got):\n%s", d)
	}
	run(t, m, "echo 43 > "+setting)
	after, err := os.ReadFile(setting)
	if d := cmp.Diff(string(before), string(after)); err != nil || d != "" {
		t.Errorf("the host's setting changed: %v (-before +after):\n%s", err, d)
	}
}

func TestLinks(t *testing.T) {
	w := newWorld(t)
	plugins := shortDir(t)
	write(t, filepath.Join(plugins, "bridge"), "the bridge plugin")
	write(t, filepath.Join(plugins, "portmap"), "the portmap plugin")
	m := w.start(t, w.spec("node", func(s *Spec) {
		s.PrivateRoot, s.Visible = true, append(s.Visible, plugins)
		s.Links = map[string]string{plugins: "/opt/cni/bin"}
	}))
	want := "bridge\nportmap\n" + plugins + "/portmap\nthe bridge plugin"
	if d := cmp.Diff(want, run(t, m, "cd /opt/cni/bin; ls; readlink portmap; cat bridge")); d != "" {
		t.Errorf("links in the machine (-want +got):\n%s", d)
	}
}

func TestPrivateRootHasItsOwnGroups(t *testing.T) {
	w := newWorld(t)
	m := w.start(t, privateSpec(w, shortDir(t)))
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		run(t, m, "mkdir "+h.Mount+"/kubepods")
		if _, err := os.Stat(filepath.Join(h.Mount, m.group(), "kubepods")); err != nil {
			t.Errorf("the root of %s is not the machine's own group: %v", h.Mount, err)
		}
		if _, err := os.Stat(filepath.Join(h.Mount, "kubepods", w.sandbox)); err == nil {
			t.Errorf("the machine made a group of the host in %s", h.Mount)
		}
	}
}
