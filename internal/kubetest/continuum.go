package kubetest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// pelagoLimit bounds one command of the command line, which has deadlines of its own.
const pelagoLimit = 4 * time.Minute

// Continuum is a sandbox with Pelago in every cluster, as its users hold it: the
// program pelago and a kubeconfig for each cluster.
type Continuum struct {
	*SandboxHandle
	// Clients and Configs are an administrator's access to each cluster, Files the
	// paths of kubeconfigs with it.
	Clients map[string]client.WithWatch
	Configs map[string]*rest.Config
	Files   map[string]string

	pelago string
}

// NewContinuum takes hold of the clusters of a sandbox that runs Pelago.
func NewContinuum(t testing.TB, s *SandboxHandle, clusters ...string) *Continuum {
	t.Helper()
	c := &Continuum{
		SandboxHandle: s, pelago: filepath.Join(filepath.Dir(Program(t)), "pelago"),
		Files: map[string]string{}, Clients: map[string]client.WithWatch{}, Configs: map[string]*rest.Config{},
	}
	dir := t.TempDir()
	for _, cluster := range clusters {
		c.Files[cluster] = filepath.Join(dir, cluster+".kubeconfig")
		if err := os.WriteFile(c.Files[cluster], []byte(s.Run(t, "kubeconfig", cluster)), 0o600); err != nil {
			t.Fatal(err)
		}
		c.Configs[cluster] = s.Config(t, cluster)
		made, err := client.NewWithWatch(c.Configs[cluster], client.Options{Scheme: Scheme()})
		if err != nil {
			t.Fatal(err)
		}
		c.Clients[cluster] = made
	}
	return c
}

// With holds the same clusters with the command line of another build, from a folder.
func (c *Continuum) With(dir string) *Continuum {
	other := *c
	other.pelago = filepath.Join(dir, "pelago")
	return &other
}

// Result is what a command did.
type Result struct {
	// Out and Errs are what it wrote to standard output and standard error.
	Out, Errs string
	// Code is its exit code, Took how long it ran.
	Code int
	Took time.Duration
}

// TryPelago runs pelago in a cluster, and reports how it ended.
func (c *Continuum) TryPelago(t testing.TB, cluster string, args ...string) Result {
	t.Helper()
	return c.command(t, cluster, c.pelago, args...)
}

// Shell runs a line as a person would who pasted it.
func (c *Continuum) Shell(t testing.TB, cluster, line string) Result {
	t.Helper()
	return c.command(t, cluster, "/bin/sh", "-c", line)
}

func (c *Continuum) command(t testing.TB, cluster, program string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), pelagoLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Files[cluster], "PATH="+filepath.Dir(c.pelago)+":"+os.Getenv("PATH"))
	begin := time.Now()
	err := cmd.Run()
	r := Result{Out: out.String(), Errs: errs.String(), Took: time.Since(begin)}
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit):
		r.Code = exit.ExitCode()
	default:
		t.Fatalf("running %s: %v", program, err)
	}
	return r
}

// Pelago runs pelago in a cluster; it must succeed. It returns standard output.
func (c *Continuum) Pelago(t testing.TB, cluster string, args ...string) string {
	t.Helper()
	r := c.TryPelago(t, cluster, args...)
	if r.Code != 0 {
		t.Fatalf("pelago %s in %s ended with %d\n%s%s", strings.Join(args, " "), cluster, r.Code, r.Out, r.Errs)
	}
	return r.Out
}

// Invite makes an invitation in a provider and returns the line that uses it.
func (c *Continuum) Invite(t testing.TB, provider string, args ...string) string {
	t.Helper()
	line := c.Pelago(t, provider, append([]string{"generate", "peer-command"}, args...)...)
	if strings.Count(strings.TrimSpace(line), "\n") != 0 || !strings.HasPrefix(line, "pelago peer ") {
		t.Fatalf("generate peer-command prints %q, want one line that begins with pelago peer", line)
	}
	return strings.TrimSpace(line)
}
