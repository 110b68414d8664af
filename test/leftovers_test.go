package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// cleanLimit is how long the kernel may take to let go of what was removed.
const cleanLimit = 20 * time.Second

// TestCleanliness holds that down removes everything, after an ordinary life of a
// sandbox and after up and all it started were killed half way.
func TestCleanliness(t *testing.T) {
	kubetest.RequireClusters(t)
	s := kubetest.Reserve(t, kubetest.Options{Name: "clean", File: sandboxFile(t, `clusters:
- name: rome
  nodes: 1
- name: edge
  nodes: 1
  behindNAT: true
  cni: flannel
  addons: [coredns]
`)})
	s.Up(t) // what up installs stays, on purpose; it does not count as left over
	s.Run(t, "down")
	before := takeInventory(t)

	t.Run("AfterUp", func(t *testing.T) {
		s.Up(t)
		s.Run(t, "link", "set", "rome", "edge", "--delay", "5ms")
		s.Run(t, "node", "stop", "rome", "rome-1")
		if during := takeInventory(t); len(during.more(before)) < 10 || len(marked(s.Name)) == 0 {
			t.Fatalf("a running sandbox adds only %q: the inventory does not see it", during.more(before))
		}
		s.Run(t, "down")
		expectClean(t, s, before)
	})
	t.Run("AfterKillInTheMiddle", func(t *testing.T) {
		killUp(t, s)
		s.Run(t, "down")
		expectClean(t, s, before)
	})
	t.Run("Twice", func(t *testing.T) {
		s.Run(t, "down") // nothing to remove is no error
		expectClean(t, s, before)
	})
}

// killUp starts a sandbox and kills the command with everything it started as soon as
// containers begin to run.
func killUp(t *testing.T, s *kubetest.SandboxHandle) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	up := s.Command(ctx, s.UpArgs()...)
	up.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	defer up.Wait()
	defer syscall.Kill(-up.Process.Pid, syscall.SIGKILL)
	eventually(t, 4*time.Minute, "up has started containers", func() error {
		started := marked(s.Name)
		if !slices.ContainsFunc(started, func(p markedProcess) bool { return strings.HasPrefix(p.name, "containerd-shim") }) {
			return fmt.Errorf("it has started %v", started)
		}
		return nil
	})
	if err := syscall.Kill(-up.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatalf("up had ended before it was killed: %v", err)
	}
	for _, p := range marked(s.Name) {
		syscall.Kill(p.pid, syscall.SIGKILL) // gone already is as good
	}
}

func expectClean(t *testing.T, s *kubetest.SandboxHandle, before inventory) {
	t.Helper()
	eventually(t, cleanLimit, "nothing of the sandbox is left", func() error {
		if left := marked(s.Name); len(left) > 0 {
			return fmt.Errorf("processes are left: %v", left)
		}
		if left := takeInventory(t).more(before); len(left) > 0 {
			return fmt.Errorf("left behind:\n  %s", strings.Join(left, "\n  "))
		}
		return nil
	})
}
