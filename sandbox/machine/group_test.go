package machine

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseHierarchy(t *testing.T) {
	for _, c := range []struct {
		reason, line string
		want         hierarchy
		ok           bool
	}{
		{
			"version 1, one controller",
			"32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu",
			hierarchy{"/sys/fs/cgroup/cpu", "cgroup", "cpu"}, true,
		},
		{
			"version 1, two controllers of one hierarchy keep their order",
			"33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct",
			hierarchy{"/sys/fs/cgroup/cpu,cpuacct", "cgroup", "cpu,cpuacct"}, true,
		},
		{
			"version 1, named, no controller",
			"40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd",
			hierarchy{"/sys/fs/cgroup/systemd", "cgroup", "xattr,name=systemd"}, true,
		},
		{
			"hybrid: version 2 beside version 1, no options",
			"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw",
			hierarchy{"/sys/fs/cgroup/unified", "cgroup2", ""}, true,
		},
		{
			"version 2 alone",
			"30 24 0:26 / /sys/fs/cgroup rw,nosuid,nodev shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot",
			hierarchy{"/sys/fs/cgroup", "cgroup2", "nsdelegate,memory_recursiveprot"}, true,
		},
		{
			"several optional fields before the dash",
			"30 24 0:26 / /sys/fs/cgroup rw shared:4 master:1 propagate_from:2 - cgroup2 none ro",
			hierarchy{"/sys/fs/cgroup", "cgroup2", ""}, true,
		},
		{"the folder of the hierarchies is none itself", "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755", hierarchy{}, false},
		{"the word cgroup as a source proves nothing", "31 23 0:28 / /mnt rw - tmpfs cgroup rw", hierarchy{}, false},
		{"no dash", "31 23 0:28 / /sys/fs/cgroup rw,relatime cgroup cgroup rw", hierarchy{}, false},
		{"too few fields before the dash", "31 23 0:28 / - cgroup cgroup rw", hierarchy{}, false},
		{"too few fields after the dash", "31 23 0:28 / /sys/fs/cgroup rw - cgroup cgroup", hierarchy{}, false},
		{"an empty line", "", hierarchy{}, false},
	} {
		got, ok := parseHierarchy(c.line)
		if d := cmp.Diff(c.want, got); d != "" || ok != c.ok {
			t.Errorf("%s: %q: ok=%t, want %t (-want +got):\n%s", c.reason, c.line, ok, c.ok, d)
		}
	}
}

func TestHierarchiesOfThisHost(t *testing.T) {
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		if _, err := os.Stat(filepath.Join(h.Mount, "cgroup.procs")); err != nil {
			t.Errorf("%v is no control-group file system: %v", h, err)
		}
	}
}

// A plain folder stands in for a control-group file system, as few hosts have
// both versions.
func TestMakeGroupFillsCpuset(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "cpuset.cpus"), "0-1\n")
	write(t, filepath.Join(root, "cpuset.mems"), "0\n")
	for range 2 { // the second time finds everything there
		if err := makeGroup(hierarchy{Mount: root, Type: "cgroup"}, "/a/b"); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]string{
		"cpuset.cpus": "0-1\n", "cpuset.mems": "0\n", "a/cpuset.cpus": "0-1\n", "a/cpuset.mems": "0\n", "a/b/cpuset.cpus": "0-1\n", "a/b/cpuset.mems": "0\n",
	}
	if d := cmp.Diff(want, filesBelow(t, root)); d != "" {
		t.Errorf("a group without processors takes no process (-want +got):\n%s", d)
	}
}

func TestMakeGroupDelegates(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "cgroup.controllers"), "memory\n")
	write(t, filepath.Join(root, "a", "cgroup.controllers"), "pids\n")
	if err := makeGroup(hierarchy{Mount: root, Type: "cgroup2"}, "/a/b"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"cgroup.controllers": "memory\n", "cgroup.subtree_control": "+memory",
		"a/cgroup.controllers": "pids\n", "a/cgroup.subtree_control": "+pids",
	}
	if d := cmp.Diff(want, filesBelow(t, root)); d != "" {
		t.Errorf("every level above the group hands on its controllers (-want +got):\n%s", d)
	}
}

// In version 2 a group with processes that hands on controllers of threads makes its children
// threaded, which take no process; plain folders show the order by a step that fails.
func TestStepAsideMovesBeforeItDelegates(t *testing.T) {
	root := t.TempDir()
	h := hierarchy{Mount: root, Type: "cgroup2"}
	write(t, filepath.Join(root, "one", "cgroup.controllers"), "pids\n")
	if err := os.MkdirAll(filepath.Join(root, "one", "init", "cgroup.procs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := stepAside(h, "/one"); err == nil {
		t.Error("an init that does not leave the group is no error")
	}
	want := map[string]string{"one/cgroup.controllers": "pids\n"}
	if d := cmp.Diff(want, filesBelow(t, root)); d != "" {
		t.Errorf("the group hands on controllers while the init is in it (-want +got):\n%s", d)
	}
	if err := os.Remove(filepath.Join(root, "one", "init", "cgroup.procs")); err != nil {
		t.Fatal(err)
	}
	if err := stepAside(h, "/one"); err != nil {
		t.Fatal(err)
	}
	want["one/init/cgroup.procs"], want["one/cgroup.subtree_control"] = "0", "+pids"
	if d := cmp.Diff(want, filesBelow(t, root)); d != "" {
		t.Errorf("the init is in its leaf, then the group hands on its controllers (-want +got):\n%s", d)
	}
}

// TestRootGroupOfAMachineHasNoProcess is a condition of version 2 for handing controllers on to
// the groups of pods, and for all programs of a node to count as one beside them.
func TestRootGroupOfAMachineHasNoProcess(t *testing.T) {
	w := newWorld(t)
	m := w.start(t, w.spec("one", func(s *Spec) { s.PrivateRoot = true }))
	put(t, m, shell("unit", "exec sleep 1000"))
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		group := filepath.Join(h.Mount, m.group())
		if text, err := os.ReadFile(filepath.Join(group, "cgroup.controllers")); err == nil {
			for controller := range strings.FieldsSeq(string(text)) {
				run(t, m, "mkdir -p "+h.Mount+"/kubepods; echo +"+controller+" > "+h.Mount+"/cgroup.subtree_control")
			}
		}
		for path, want := range map[string]int{group: 0, filepath.Join(group, "init"): 2} {
			text, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			if got := len(strings.Fields(string(text))); err != nil || got != want {
				t.Errorf("%s has %d processes, %v, want %d", path, got, err, want)
			}
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// filesBelow is the text of every file below a folder, by relative path.
func filesBelow(t *testing.T, root string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(root, path)
		found[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestGroupsOfASandbox(t *testing.T) {
	w := newWorld(t)
	m := w.start(t, w.spec("one", nil))
	w.start(t, w.spec("two", nil))
	pids, err := m.Processes()
	if d := cmp.Diff([]int{m.PID}, pids); err != nil || d != "" {
		t.Errorf("a machine without units has its init alone: %v (-want +got):\n%s", err, d)
	}
	run(t, m, "for h in /sys/fs/cgroup /sys/fs/cgroup/*; do test ! -f $h/cgroup.procs || mkdir -p $h"+m.group()+"/deep/er; done")
	memory, err := m.Memory()
	if err != nil || memory < 1<<20 || memory > 1<<30 {
		t.Errorf("the memory of an idle machine is %d bytes, %v", memory, err)
	}
	if err := RemoveGroups(w.sandbox); err == nil {
		t.Error("the control groups of running machines were removed")
	}
	if err := errors.Join(KillSandbox(w.sandbox), RemoveGroups(w.sandbox)); err != nil {
		t.Fatal(err)
	}
	if left := groupFolders(t, groupRoot+"/"+w.sandbox); len(left) > 0 {
		t.Errorf("control groups remain: %v", left)
	}
}

// TestGroupsOfWhatIsEnding holds that a group that is busy for a moment more is waited for.
func TestGroupsOfWhatIsEnding(t *testing.T) {
	w := newWorld(t)
	group := groupRoot + "/" + w.sandbox + "/ending"
	if err := makeGroups(group); err != nil {
		t.Fatal(err)
	}
	ends := exec.Command("sleep", "0.5")
	if err := ends.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan error, 1)
	go func() { reaped <- ends.Wait() }()
	for _, folder := range groupFolders(t, group) {
		if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(ends.Process.Pid)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeGroups(group); err != nil {
		t.Error(err)
	}
	if err := <-reaped; err != nil {
		t.Error(err)
	}
}

// groupFolders lists where a control group exists on the host.
func groupFolders(t *testing.T, group string) []string {
	t.Helper()
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, h := range all {
		if _, err := os.Stat(filepath.Join(h.Mount, group)); err == nil {
			found = append(found, filepath.Join(h.Mount, group))
		}
	}
	return found
}
