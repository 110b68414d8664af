package test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// status is the part of `status -o json` that scenarios read.
type status struct {
	Clusters []struct {
		Name      string
		API       string
		State     string
		MemoryPSS int64
		Network   []netip.Prefix
		Nodes     []node
	}
}

type node struct {
	Name      string
	State     string
	Addresses []string
	PID       int
}

func statusOf(t *testing.T, s *kubetest.SandboxHandle) status {
	t.Helper()
	var now status
	s.JSON(t, &now, "status", "-o", "json")
	return now
}

func (s status) node(t *testing.T, cluster, name string) node {
	t.Helper()
	for _, c := range s.Clusters {
		for _, n := range c.Nodes {
			if c.Name == cluster && n.Name == name {
				return n
			}
		}
	}
	t.Fatalf("status has no node %s in cluster %s: %+v", name, cluster, s)
	return node{}
}

// address is the first address of the first node of a cluster.
func (s status) address(t *testing.T, cluster string) string {
	t.Helper()
	return s.node(t, cluster, cluster+"-1").Addresses[0]
}

// networks are the ranges of a cluster's own network: of its nodes, API server and load balancers.
func (s status) networks(t *testing.T, cluster string) []netip.Prefix {
	t.Helper()
	for _, c := range s.Clusters {
		if c.Name == cluster {
			return c.Network
		}
	}
	t.Fatalf("status has no cluster %s: %+v", cluster, s)
	return nil
}

// api is the host and port of a cluster's API server.
func (s status) api(t *testing.T, cluster string) string {
	t.Helper()
	for _, c := range s.Clusters {
		if c.Name == cluster {
			return hostPort(t, c.API)
		}
	}
	t.Fatalf("status has no cluster %s: %+v", cluster, s)
	return ""
}

// processes lists the nodes with their first process; a node that was restarted has
// another one.
func processes(t *testing.T, s *kubetest.SandboxHandle) []string {
	t.Helper()
	var lines []string
	for _, c := range statusOf(t, s).Clusters {
		for _, n := range c.Nodes {
			lines = append(lines, fmt.Sprintf("%s %d %s", n.Name, n.PID, n.State))
		}
	}
	slices.Sort(lines)
	return lines
}

// patience ends a wait for what never comes, where how long it takes is no promise: a busy machine is
// several times as slow as one that has nothing else to do.
const patience = 3 * time.Minute

// eventually polls until try succeeds, and fails the test with its last error.
func eventually(t *testing.T, limit time.Duration, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		begin := time.Now()
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waiting %s until %s: %v", limit, what, err)
		}
		pause(begin)
	}
}

// pause waits after an attempt that began at a time: longer after one that took long, as a busy machine is not
// to be busy with asking.
func pause(begin time.Time) {
	<-time.After(max(200*time.Millisecond, min(2*time.Since(begin), 2*time.Second)))
}
