// Package test holds the scenarios: what a user does with whole clusters, through
// the programs a user has, nothing faked. They need root and take minutes, so they run
// by `make test` and are skipped elsewhere. What can be proven with less is tested
// beside the code it proves.
package test

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

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// verifyLimit bounds the self-test of one cluster.
const verifyLimit = 12 * time.Minute

// TestMain lets this binary also be the probe that scenarios run on nodes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == probeCommand {
		if err := probe(os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	syscall.Umask(0o077) // as shells of hardened hosts have it; sandboxes must not care
	os.Exit(m.Run())
}

// TestTwoClusters has what one sandbox of two alike clusters must do. The parts share
// it, in this order, and each leaves it as it found it.
func TestTwoClusters(t *testing.T) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "two", Clusters: []string{"rome", "milan"}, Nodes: 2})
	box(t, s, "rome", "milan")
	for _, part := range []struct {
		name string
		run  func(*testing.T, *kubetest.SandboxHandle)
	}{
		{"Overlap", overlap},
		{"Isolation", isolation},
		{"Partition", partition},
		{"WAN", wan},
		{"Idempotent", idempotent},
		{"SideBySide", sideBySide},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, s) })
	}
}

// mixedFile is a sandbox of clusters that differ: one whose pod ranges are its own, one
// that cannot be called, one with another network plugin, one as it is by default.
const mixedFile = `clusters:
- name: rome
  nodes: 1
  addons: [coredns]
- name: edge
  nodes: 1
  behindNAT: true
  podRanges: [10.52.0.0/16]
  serviceRanges: [10.53.0.0/16]
  labels: {region: eu-south, provider: acme}
  addons: [coredns]
- name: florence
  nodes: 2
  cni: flannel
- name: milan
  nodes: 2
`

// TestMixedClusters has what a sandbox.yaml can ask for.
func TestMixedClusters(t *testing.T) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "mixed", File: sandboxFile(t, mixedFile)})
	box(t, s, "rome", "edge")
	t.Run("NAT", func(t *testing.T) { behindNAT(t, s) })
	t.Run("Labels", func(t *testing.T) { labels(t, s) })
	t.Run("Flannel", func(t *testing.T) { verify(t, s, "florence") })
	t.Run("Bridge", func(t *testing.T) { verify(t, s, "milan") })
}

// TestVersions holds the older Kubernetes versions and the other IP families.
func TestVersions(t *testing.T) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "versions", File: sandboxFile(t, `clusters:
- name: old
  version: v1.34.4
- name: six
  podRanges: ["fd42::/48"]
  serviceRanges: ["fd43::/112"]
- name: dual
  podRanges: [10.42.0.0/16, "fd42::/48"]
  serviceRanges: [10.43.0.0/16, "fd43::/112"]
`)})
	for _, cluster := range []string{"old", "six", "dual"} {
		t.Run(cluster, func(t *testing.T) { verify(t, s, cluster) })
	}
	if got := s.Kubectl(t, "old", "version", "-o", "json"); !strings.Contains(got, `"gitVersion": "v1.34.4"`) {
		t.Errorf("cluster old does not run v1.34.4: %s", got)
	}
}

// verify runs the sandbox's own self-test of one cluster.
func verify(t *testing.T, s *kubetest.SandboxHandle, cluster string) {
	ctx, cancel := context.WithTimeout(t.Context(), verifyLimit)
	defer cancel()
	out, err := s.Try(ctx, "verify", cluster)
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if !strings.Contains(out, " 0 failed") {
		t.Errorf("the report does not say that nothing failed:\n%s", out)
	}
	t.Log(out)
}

// labels holds that what the file says of a cluster stands on its nodes.
func labels(t *testing.T, s *kubetest.SandboxHandle) {
	got := s.Kubectl(t, "edge", "get", "nodes", "-l", "region=eu-south,provider=acme", "-o", "name")
	if want := "node/edge-1\n"; got != want {
		t.Errorf("nodes with the cluster's labels: %q, want %q", got, want)
	}
}

// idempotent holds that up completes what is missing and touches nothing else.
func idempotent(t *testing.T, s *kubetest.SandboxHandle) {
	before := processes(t, s)
	s.Up(t)
	if after := processes(t, s); !slices.Equal(before, after) {
		t.Errorf("up on a complete sandbox changed first processes:\n%v\n%v", before, after)
	}
	victim := statusOf(t, s).node(t, "rome", "rome-2")
	killed := time.Now()
	if err := killHard(victim.PID); err != nil {
		t.Fatalf("killing rome-2: %v", err)
	}
	eventually(t, 2*time.Minute, "rome-2 is not Ready", func() error {
		if state := statusOf(t, s).node(t, "rome", "rome-2").State; state == "Ready" {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
	s.Up(t)
	after := statusOf(t, s)
	if node := after.node(t, "rome", "rome-2"); node.State != "Ready" || node.PID == victim.PID {
		t.Errorf("rome-2 after up: %+v, want Ready in a new process", node)
	}
	text := s.Kubectl(t, "rome", "get", "lease", "rome-2", "-n", "kube-node-lease", "-o", "jsonpath={.spec.renewTime}")
	if renewed, err := time.Parse(time.RFC3339, text); err != nil || !renewed.After(killed) {
		t.Errorf("up returned before rome-2 was heard again: its Lease is of %s, and it was killed at %s (%v)", text, killed, err)
	}
	for _, line := range processes(t, s) {
		if !strings.HasPrefix(line, "rome-2 ") && !slices.Contains(before, line) {
			t.Errorf("up replaced %s, which ran", line)
		}
	}
}

// sideBySide holds that a second sandbox with clusters of the same name comes and goes
// without the first one noticing.
func sideBySide(t *testing.T, first *kubetest.SandboxHandle) {
	before := processes(t, first)
	t.Run("Second", func(t *testing.T) {
		second := kubetest.Sandbox(t, kubetest.Options{Name: "beside", File: sandboxFile(t, "clusters:\n- name: rome\n  nodes: 1\n  addons: []\n")})
		for _, s := range []*kubetest.SandboxHandle{first, second} {
			if got := s.Kubectl(t, "rome", "get", "--raw", "/readyz"); got != "ok" {
				t.Errorf("the API server of rome in sandbox %s says %q", s.Name, got)
			}
		}
		ours, theirs := statusOf(t, first).Clusters[0].API, statusOf(t, second).Clusters[0].API
		if ours == theirs {
			t.Errorf("both API servers are at %s", ours)
		}
	})
	if got := first.Kubectl(t, "rome", "get", "--raw", "/readyz"); got != "ok" {
		t.Errorf("after the other sandbox is gone, the API server says %q", got)
	}
	if after := processes(t, first); !slices.Equal(before, after) {
		t.Errorf("the other sandbox changed this one:\n%v\n%v", before, after)
	}
}

// TestBadFile holds that a wrong file names its line, field and remedy, and that
// nothing was started for it.
func TestBadFile(t *testing.T) {
	cases := []struct {
		reason, text string
		want         []string
	}{
		{"a misspelt field", "clusters:\n- name: rome\n  node: 2\n", []string{"sandbox.yaml:3:", "node", "nodes"}},
		{"a value that cannot be", "clusters:\n- name: rome\n  nodes: 0\n", []string{"sandbox.yaml:3:", "nodes", "1"}},
		{"all mistakes at once", "clusters:\n- name: Rome\n- name: milan\n  cni: calico\n", []string{"sandbox.yaml:2:", "sandbox.yaml:4:", "flannel"}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			s := kubetest.Reserve(t, kubetest.Options{Name: "bad", File: sandboxFile(t, c.text)})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := s.Try(ctx, s.UpArgs()...)
			if err == nil {
				t.Fatal("up accepted the file")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error does not say %q: %v", part, err)
				}
			}
			if left := marked(s.Name); len(left) != 0 {
				t.Errorf("processes were started: %v", left)
			}
			if _, err := s.Try(ctx, "status"); err == nil {
				t.Error("there is a sandbox for a file that was refused")
			}
		})
	}
}

// sandboxFile writes a sandbox.yaml.
func sandboxFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sandbox.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
