package kubetest

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"
)

// Own starts an API server for one test, which ends with it: for tests of programs that
// see all nodes of a cluster, which no names keep apart.
func Own(t testing.TB) *APIServer {
	t.Helper()
	program, err := findProgram()
	if err != nil {
		t.Fatal(err)
	}
	owner, err := lookup(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	dir := t.TempDir()
	s, err := start(ctx, dir, program, owner)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.end(t) })
	config, err := loadConfig(s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return &APIServer{Config: config, Kubeconfig: s.Kubeconfig, Startup: s.startup}
}

// end ends a server and waits until it is gone, with what it wrote.
func (s server) end(t testing.TB) {
	_ = syscall.Kill(s.Process.PID, syscall.SIGTERM)
	for begin := time.Now(); s.Process.alive(); {
		if time.Since(begin) > 10*time.Second {
			_ = syscall.Kill(-s.Process.PID, syscall.SIGKILL)
			t.Errorf("an API server (process %d) did not end", s.Process.PID)
			return
		}
		_ = pause(context.Background())
	}
}
