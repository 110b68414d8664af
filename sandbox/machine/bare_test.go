package machine

import (
	"context"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
)

// bare starts a machine without namespaces, which needs no root.
func bare(t *testing.T) *Machine {
	t.Helper()
	sandbox := "test-" + random()
	spec := Spec{Sandbox: sandbox, Name: "one", Dir: shortDir(t), Program: "/proc/self/exe", Bare: true}
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
