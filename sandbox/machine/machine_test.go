package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMachineIsAComputerOfItsOwn(t *testing.T) {
	w := newWorld(t)
	m := w.start(t, w.spec("rome-1", func(s *Spec) {
		s.Sysctls = map[string]string{"net/ipv4/ip_forward": "1"}
	}))
	if d := cmp.Diff("rome-1", run(t, m, "hostname")); d != "" {
		t.Errorf("host name (-want +got):\n%s", d)
	}
	for _, kind := range []string{"net", "mnt", "pid", "uts", "ipc", "cgroup"} {
		host, err := os.Readlink("/proc/self/ns/" + kind)
		if inside := run(t, m, "readlink /proc/self/ns/"+kind); err != nil || inside == host {
			t.Errorf("namespace %s is the host's: %s, %v", kind, host, err)
		}
	}
	if first := run(t, m, `tr '\0' ' ' </proc/1/cmdline`); !strings.Contains(first, InitCommand) || !strings.HasSuffix(first, "ready") {
		t.Errorf("process 1 is %q", first)
	}
	if all := strings.Fields(run(t, m, "cd /proc; echo [0-9]*")); len(all) > 3 {
		t.Errorf("/proc shows processes of others: %v", all)
	}
	links := strings.Fields(run(t, m, "cd /proc/sys/net/ipv4/conf; echo *"))
	if d := cmp.Diff([]string{"all", "default", "lo"}, links); d != "" {
		t.Errorf("interfaces of a new machine (-want +got):\n%s", d)
	}
	if got := run(t, m, "cat /proc/sys/net/ipv4/ip_forward; cat /proc/1/environ | tr '\\0' '\\n' | grep "+Marker); got != "1\n"+Marker+"="+w.sandbox+"/rome-1" {
		t.Errorf("forwarding and marker are %q", got)
	}
}

func TestMachineIsInItsControlGroups(t *testing.T) {
	w := newWorld(t)
	m := w.start(t, w.spec("one", nil))
	put(t, m, shell("unit", "exec sleep 1000"))
	pids, err := m.Processes()
	if err != nil || len(pids) != 2 || pids[0] != m.PID {
		t.Fatalf("processes are %v, %v, want the init %d and one more", pids, err, m.PID)
	}
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		got := strings.Count(string(text), ":"+m.group()+"/init\n")
		if err != nil || got != len(all) {
			t.Errorf("process %d is in its group in %d of %d hierarchies: %v\n%s", pid, got, len(all), err, text)
		}
	}
	for line := range strings.SplitSeq(run(t, m, "cat /proc/self/cgroup"), "\n") {
		if !strings.HasSuffix(line, ":/init") {
			t.Errorf("the machine does not see its group as the root of all groups: %q", line)
		}
	}
}

func TestStartTwiceIsOneMachine(t *testing.T) {
	w := newWorld(t)
	spec := w.spec("one", nil)
	first, again := w.start(t, spec), w.start(t, spec)
	if d := cmp.Diff(first, again); d != "" {
		t.Errorf("the second start (-first +second):\n%s", d)
	}
	loaded, up, err := Load(spec.Dir)
	if err != nil || !up {
		t.Fatalf("it runs: %t, %v", up, err)
	}
	if d := cmp.Diff(first, loaded); d != "" {
		t.Errorf("the machine as loaded (-started +loaded):\n%s", d)
	}
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	loaded, up, err = Load(spec.Dir)
	if err != nil || up || loaded.PID != 0 {
		t.Errorf("a killed machine: up %t, PID %d, %v", up, loaded.PID, err)
	}
}

func TestLoadWithoutMachine(t *testing.T) {
	if _, _, err := Load(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("loading from an empty folder: %v", err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "machine.json"), "{")
	if _, _, err := Load(dir); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("loading nonsense does not name the file: %v", err)
	}
}

func TestMachineThatCannotStart(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		reason, name string
		change       func(*Spec)
		want         []string
	}{
		{"the init ends at once and says nothing", "mute", func(s *Spec) { s.Program = "/bin/false" }, []string{"machine mute ended at once"}},
		{"the init says why", "wrong", func(s *Spec) { s.Sysctls = map[string]string{"net/ipv4/ip_forward": "perhaps"} }, []string{"machine wrong ended at once", "preparing machine wrong", "setting net/ipv4/ip_forward"}},
		{"the kernel lacks a setting", "lacking", func(s *Spec) { s.Sysctls = map[string]string{"net/no/such/setting": "1"} }, []string{"machine lacking ended at once", "setting net/no/such/setting"}},
		{"a folder it should see is missing", "blind", func(s *Spec) { s.PrivateRoot, s.Visible = true, []string{"/no/such/folder"} }, []string{"machine blind ended at once", "/no/such/folder"}},
		{"there is no program", "none", func(s *Spec) { s.Program = "/no/such/program" }, []string{"starting machine none"}},
	} {
		_, err := Start(context.Background(), w.spec(c.name, c.change))
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", c.reason, err, want)
			}
		}
		if left := Remaining(w.sandbox); len(left) > 0 {
			t.Errorf("%s: processes %v remain", c.reason, left)
		}
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	script := filepath.Join(w.dir, "stubborn")
	write(t, script, "#!/bin/sh\nexec sleep 1000\n")
	if err := os.Chmod(script, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err := Start(ctx, w.spec("one", func(s *Spec) { s.Program = script }))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v, want that of the context", err)
	}
	if left := Remaining(w.sandbox); len(left) > 0 {
		t.Errorf("processes %v remain", left)
	}
}

// A unit that does all it can to outlive its machine: new sessions, parents
// that end, an environment without the marker.
const clinging = `
setsid sh -c 'setsid sleep 1000 & echo daemon' &
env -i /bin/sh -c 'setsid /bin/sleep 1000 & echo unmarked' &
(trap '' TERM HUP INT; sleep 1000) &
wait; exec sleep 1000`

func TestKillEndsEverything(t *testing.T) {
	w := newWorld(t)
	m := w.start(t, w.spec("one", func(s *Spec) { s.PrivateRoot = true }))
	other := w.start(t, w.spec("two", nil))
	put(t, m, shell("clinging", clinging))
	var pids []int
	eventually(t, "all processes run", func() error {
		var err error
		if pids, err = m.Processes(); err == nil && len(pids) < 5 { // the init, the unit and its three sleepers
			err = fmt.Errorf("there are %v", pids)
		}
		return err
	})
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if alive(pid) {
			t.Errorf("process %d outlived the machine", pid)
		}
	}
	if left, err := m.Processes(); len(left) != 0 || err != nil {
		t.Errorf("the machine still has %v, %v", left, err)
	}
	if left := Remaining(w.sandbox); len(left) != 1 || left[0] != other.PID {
		t.Errorf("processes of the sandbox are %v, want the other machine's init %d", left, other.PID)
	}
	if err := m.Kill(); err != nil {
		t.Errorf("killing what is dead: %v", err)
	}
}

func TestKillSandboxAfterACrash(t *testing.T) {
	w, neighbour := newWorld(t), newWorld(t)
	one, two := w.start(t, w.spec("one", func(s *Spec) { s.PrivateRoot = true })), w.start(t, w.spec("two", nil))
	stays := neighbour.start(t, neighbour.spec("one", nil))
	put(t, one, shell("clinging", clinging))
	// What a command of the user leaves in a machine: inside by its namespaces
	// and its marker, not a child of its init.
	visitor, err := syscall.ForkExec("/usr/bin/nsenter", []string{"nsenter", "--target", strconv.Itoa(two.PID), "--net", "sleep", "1000"},
		&syscall.ProcAttr{Env: []string{"PATH=/usr/bin:/bin", Marker + "=" + w.sandbox + "/two"}})
	if err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() { _, _ = syscall.Wait4(visitor, nil, 0, nil); close(gone) }()
	if err := syscall.Kill(one.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(KillSandbox(w.sandbox), RemoveGroups(w.sandbox)); err != nil {
		t.Fatal(err)
	}
	<-gone
	if left := Remaining(w.sandbox); len(left) != 0 {
		t.Errorf("processes %v remain", left)
	}
	if left := groupFolders(t, groupRoot+"/"+w.sandbox); len(left) != 0 {
		t.Errorf("control groups remain: %v", left)
	}
	if !alive(stays.PID) {
		t.Error("another sandbox lost its machine")
	}
	if got := groupFolders(t, stays.group()); len(got) == 0 {
		t.Error("another sandbox lost its control groups")
	}
}

func TestSandboxNamesThatBeginAlike(t *testing.T) {
	w := newWorld(t)
	longer := w
	longer.sandbox += "-more"
	m := longer.start(t, longer.spec("one", nil))
	t.Cleanup(func() {
		if err := errors.Join(KillSandbox(longer.sandbox), RemoveGroups(longer.sandbox)); err != nil {
			t.Error(err)
		}
	})
	if err := KillSandbox(w.sandbox); err != nil {
		t.Fatal(err)
	}
	if !alive(m.PID) {
		t.Errorf("killing sandbox %s killed %s", w.sandbox, longer.sandbox)
	}
}
