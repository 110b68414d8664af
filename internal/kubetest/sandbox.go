package kubetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// EnvClusters must be 1 for tests that start clusters: they need root and minutes.
	EnvClusters = "PELAGO_CLUSTER_TESTS"
	// EnvKeep, if 1, leaves sandboxes running after the test, under names that do not
	// change, so that the next run continues with them.
	EnvKeep = "PELAGO_KEEP"

	upLimit      = 15 * time.Minute
	downLimit    = 2 * time.Minute
	commandLimit = 5 * time.Minute
)

// Options says which sandbox a test wants.
type Options struct {
	// Name tells the sandboxes of one run apart, and is part of the sandbox's name:
	// at most 10 characters.
	Name string
	// Clusters are the names of the clusters and Nodes the nodes of each (0 means the
	// sandbox's default). They go unused when File names a sandbox.yaml.
	Clusters []string
	Nodes    int
	File     string
	// Pelago installs it in every cluster; the image must have been built.
	Pelago bool
}

// SandboxHandle is a sandbox that belongs to one test and its subtests. Its methods
// fail the given test when the command fails.
type SandboxHandle struct {
	// Name is the sandbox's name, for --name.
	Name string

	program string
	options Options
}

// Sandbox starts a sandbox and takes it down when the test ends, or when the test
// binary is killed. The test is skipped, and under CI=true fails, unless it runs as
// root with $PELAGO_CLUSTER_TESTS=1.
func Sandbox(t testing.TB, o Options) *SandboxHandle {
	t.Helper()
	s := Reserve(t, o)
	s.Up(t)
	return s
}

// Reserve is Sandbox without starting it: the name is taken, and whatever the test
// starts under it is taken down.
func Reserve(t testing.TB, o Options) *SandboxHandle {
	t.Helper()
	RequireClusters(t)
	s := &SandboxHandle{Name: "test-" + o.Name + "-" + randomName()[:4], program: Program(t), options: o}
	if os.Getenv(EnvKeep) == "1" {
		s.Name = "test-" + o.Name
		t.Logf("keeping sandbox %s; remove it with: bin/pelago-sandbox down --name %s", s.Name, s.Name)
		return s
	}
	guard, err := downAfterDeath(s.program, s.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), downLimit)
		defer cancel()
		out, err := s.Try(ctx, "down")
		if err != nil {
			t.Errorf("taking down sandbox %s: %v\n%s", s.Name, err, out)
		}
		guard.release(err == nil)
	})
	return s
}

// RequireClusters skips the test, loudly, where clusters cannot run or were not asked
// for. Under CI=true it fails the test instead: nothing may be left out there.
func RequireClusters(t testing.TB) {
	t.Helper()
	why := ""
	switch {
	case os.Getenv(EnvClusters) != "1":
		why = "cluster tests run with " + EnvClusters + "=1 as root, or by `make test`"
	case os.Geteuid() != 0:
		why = "clusters need root; run `make test` as root"
	}
	switch {
	case why == "":
	case os.Getenv("CI") == "true":
		t.Fatal(why)
	default:
		t.Skip(why)
	}
}

// Up starts the sandbox, or completes it. It may be called again.
func (s *SandboxHandle) Up(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), upLimit)
	defer cancel()
	begin := time.Now()
	if out, err := s.Try(ctx, s.UpArgs()...); err != nil {
		t.Fatalf("starting sandbox %s: %v\n%s", s.Name, err, out)
	}
	t.Logf("sandbox %s is up after %s", s.Name, time.Since(begin).Round(100*time.Millisecond))
}

// UpArgs are the arguments of the up command for this sandbox, without its name.
func (s *SandboxHandle) UpArgs() []string {
	args := []string{"up"}
	if s.options.Pelago {
		args = append(args, "--pelago")
	}
	if s.options.File != "" {
		return append(args, "-f", s.options.File)
	}
	if len(s.options.Clusters) > 0 {
		args = append(args, "--clusters", strings.Join(s.options.Clusters, ","))
	}
	if s.options.Nodes > 0 {
		args = append(args, "--nodes", strconv.Itoa(s.options.Nodes))
	}
	return args
}

// Command prepares pelago-sandbox with the given arguments for this sandbox. When ctx
// ends it is asked to stop, and killed ten seconds later.
func (s *SandboxHandle) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.program, append([]string{"--name", s.Name}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// Try runs a command of this sandbox. It returns what the command wrote to standard
// output; the error ends with what it wrote to standard error.
func (s *SandboxHandle) Try(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := s.Command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("running pelago-sandbox %s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// Run runs a command of this sandbox, such as Run(t, "link", "cut", "rome", "milan"),
// and returns its standard output.
func (s *SandboxHandle) Run(t testing.TB, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	out, err := s.Try(ctx, args...)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// Kubectl runs kubectl of one cluster and returns its standard output.
func (s *SandboxHandle) Kubectl(t testing.TB, cluster string, args ...string) string {
	t.Helper()
	return s.Run(t, append([]string{"kubectl", cluster, "--"}, args...)...)
}

// Config returns an administrator's access to one cluster.
func (s *SandboxHandle) Config(t testing.TB, cluster string) *rest.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(s.Run(t, "kubeconfig", cluster)), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := loadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// JSON runs a command that prints JSON and decodes it into value, a pointer.
func (s *SandboxHandle) JSON(t testing.TB, value any, args ...string) {
	t.Helper()
	out := s.Run(t, args...)
	if err := json.Unmarshal([]byte(out), value); err != nil {
		t.Fatalf("decoding the output of pelago-sandbox %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}
