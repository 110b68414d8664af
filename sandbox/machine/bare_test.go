package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// bare starts a machine without namespaces, which needs no root.
func bare(t *testing.T) *Machine {
	t.Helper()
	sandbox := "test-" + random()
	spec := Spec{Sandbox: sandbox, Name: "one", Dir: shortDir(t), Program: "/proc/self/exe", Bare: true}
	guarded(t, sandbox, spec.Dir)
	t.Cleanup(func() {
		if err := KillSandbox(sandbox); err != nil {
			t.Error(err)
		}
	})
	m, err := Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestBareMachineRunsUnitsOnTheHost(t *testing.T) {
	m := bare(t)
	put(t, m, shell("unit", "sleep 1000 & exec sleep 1001"))
	awaitProcesses(t, m, 3)
	for _, kind := range []string{"net", "pid", "mnt"} {
		host, err := os.Readlink("/proc/self/ns/" + kind)
		if inside := run(t, m, "readlink /proc/self/ns/"+kind); err != nil || inside != host {
			t.Errorf("namespace %s is %s, want the host's, %s; %v", kind, inside, host, err)
		}
	}
	if memory, err := m.Memory(); err != nil || memory < 1<<20 {
		t.Errorf("its memory is %d, %v", memory, err)
	}
	again, err := Start(context.Background(), m.Spec)
	if err != nil || again.PID != m.PID {
		t.Errorf("started twice it has the inits %d and %d, %v", m.PID, again.PID, err)
	}
	for _, h := range mustHierarchies(t) {
		if _, err := os.Stat(h.Mount + m.group()); err == nil {
			t.Errorf("it has a control group in %s", h.Mount)
		}
	}
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if left := Remaining(m.Sandbox); len(left) > 0 {
		t.Errorf("after it was killed %v remain", left)
	}
}

func TestBareMachineComesBackAfterItsInit(t *testing.T) {
	m := bare(t)
	put(t, m, shell("unit", "exec sleep 1000"))
	orphans := awaitProcesses(t, m, 2)
	if err := syscall.Kill(m.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitProcesses(t, m, 1)
	again, err := Start(context.Background(), m.Spec)
	if err != nil {
		t.Fatal(err)
	}
	now, err := again.Processes()
	if err != nil || len(now) != 1 || slices.Contains(orphans, now[0]) {
		t.Errorf("started again it has the processes %v, %v, want a new init alone", now, err)
	}
}

// TestMachineDeepDown: the folder of an ordinary user's machine is as deep as his home.
func TestMachineDeepDown(t *testing.T) {
	sandbox := "test-" + random()
	spec := Spec{Sandbox: sandbox, Name: "one", Dir: filepath.Join(shortDir(t), strings.Repeat("deep/", 30)), Program: "/proc/self/exe", Bare: true}
	t.Cleanup(func() {
		if err := KillSandbox(sandbox); err != nil {
			t.Error(err)
		}
	})
	m, err := Start(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if got := run(t, m, "echo here"); got != "here" {
		t.Errorf("it says %q", got)
	}
}

// TestStarted holds that no clock which was set makes a machine younger than what it has said.
func TestStarted(t *testing.T) {
	const tick = 10 * time.Millisecond
	before := time.Now()
	m := bare(t)
	after := time.Now()
	started := func() time.Time {
		at, err := m.Started()
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	if at := started(); at.Before(before.Add(-2*tick)) || at.After(after) {
		t.Errorf("it was started at %s, want between %s and %s", at, before, after)
	}
	for _, written := range []time.Time{after.Add(-time.Hour), after.Add(time.Hour)} {
		if err := os.Chtimes(m.file(), written, written); err != nil {
			t.Fatal(err)
		}
		want := written
		if written.After(after) { // the clock was set back since
			want = before
		}
		if at := started(); at.Before(want.Add(-2*tick)) || at.After(want.Add(after.Sub(before))) {
			t.Errorf("its clock said %s, and it was started at %s, want %s", written, at, want)
		}
	}
	m.PID = 1 << 30
	if _, err := m.Started(); err == nil {
		t.Error("a machine that does not run has a start")
	}
}

// awaitProcesses waits until a machine has so many processes.
func awaitProcesses(t *testing.T, m *Machine, want int) (pids []int) {
	t.Helper()
	eventually(t, "processes", func() (err error) {
		if pids, err = m.Processes(); err == nil && len(pids) != want {
			err = fmt.Errorf("they are %v, want %d", pids, want)
		}
		return err
	})
	return pids
}

func mustHierarchies(t *testing.T) []hierarchy {
	t.Helper()
	all, err := hierarchies()
	if err != nil {
		t.Fatal(err)
	}
	return all
}
