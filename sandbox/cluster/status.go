package cluster

import (
	"context"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/sandbox/internet"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// Status is what a sandbox looks like now.
type Status struct {
	Name     string          `json:"name"`
	Profile  string          `json:"profile,omitempty"`
	Clusters []ClusterStatus `json:"clusters"`
	// Links are the pairs of clusters that differ from a plain wire.
	Links []internet.Link `json:"links"`
	// MemoryPSS is the memory of the internet, in bytes.
	MemoryPSS int64 `json:"memoryPSS"`
}

// ClusterStatus is one cluster.
type ClusterStatus struct {
	Name          string            `json:"name"`
	Version       string            `json:"version"`
	API           string            `json:"api"`
	State         string            `json:"state"` // Ready, NotReady, Unreachable, Stopped
	Labels        map[string]string `json:"labels,omitempty"`
	CNI           string            `json:"cni"`
	BehindNAT     bool              `json:"behindNAT,omitempty"`
	Network       []netip.Prefix    `json:"network"`
	PodRanges     []netip.Prefix    `json:"podRanges"`
	ServiceRanges []netip.Prefix    `json:"serviceRanges"`
	Nodes         []NodeStatus      `json:"nodes"`
	// Hollow counts the hollow nodes, if there are any.
	Hollow *HollowStatus `json:"hollow,omitempty"`
	// ControlPID is the first process of the control plane's machine.
	ControlPID int `json:"controlPID"`
	// MemoryPSS is the memory of the whole cluster, in bytes.
	MemoryPSS int64 `json:"memoryPSS"`
}

// NodeStatus is one node.
type NodeStatus struct {
	Name      string       `json:"name"`
	State     string       `json:"state"` // Ready, NotReady, Stopped
	Addresses []netip.Addr `json:"addresses"`
	PodRanges []string     `json:"podRanges"`
	// PID is the first process of the node's machine on the host; its root is
	// the node's file system, its namespaces are the node's.
	PID       int   `json:"pid"`
	MemoryPSS int64 `json:"memoryPSS"`
}

// States of clusters and nodes.
const (
	Ready       = "Ready"
	NotReady    = "NotReady"
	Unreachable = "Unreachable"
	Stopped     = "Stopped"
)

// Status looks at the sandbox; it waits at most 3 s for each API server.
func (s *Sandbox) Status(ctx context.Context) Status {
	status := Status{Name: s.Name, Profile: s.Profile, Links: s.Links, Clusters: []ClusterStatus{}}
	if status.Links == nil {
		status.Links = []internet.Link{}
	}
	if m, up, err := machine.Load(s.internetDir()); err == nil && up {
		status.MemoryPSS, _ = m.Memory()
	}
	for _, c := range s.Clusters {
		status.Clusters = append(status.Clusters, c.status(ctx))
	}
	return status
}

func (c *Cluster) status(ctx context.Context) ClusterStatus {
	out := ClusterStatus{
		Name: c.Name, Version: c.Version, API: "https://" + c.API(), State: Stopped, Labels: c.Labels, CNI: c.CNI, BehindNAT: c.BehindNAT,
		PodRanges: c.PodRanges, ServiceRanges: c.ServiceRanges, Nodes: []NodeStatus{}, Network: []netip.Prefix{},
	}
	if !c.loopback() {
		out.Network = c.Net.Prefix().Prefixes()
	}
	var since time.Time // when the control plane was started
	for _, name := range []string{c.ControlName(), c.NATName()} {
		if m, up, err := machine.Load(c.machineDir(name)); err == nil && up {
			memory, _ := m.Memory()
			out.MemoryPSS += memory
			if name == c.ControlName() {
				out.ControlPID, out.State = m.PID, Unreachable
				since, _ = m.Started() // or it has just ended
			}
		}
	}
	var said map[string]time.Time
	if out.ControlPID != 0 {
		said, out.State = c.nodesHeard(ctx)
	}
	out.Hollow = c.hollowStatus(said, since)
	if h := out.Hollow; h != nil && h.Ready < h.Nodes && out.State == Ready {
		out.State = NotReady
	}
	for i := 1; i <= c.Nodes; i++ {
		node := c.nodeStatus(i, said[c.NodeName(i)])
		out.MemoryPSS += node.MemoryPSS
		if node.State != Ready && out.State == Ready {
			out.State = NotReady
		}
		out.Nodes = append(out.Nodes, node)
	}
	return out
}

// nodesHeard asks the API server when the nodes that are ready have said so.
func (c *Cluster) nodesHeard(ctx context.Context) (map[string]time.Time, string) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	client, err := c.Client()
	if err != nil {
		return nil, Unreachable
	}
	nodes, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, Unreachable
	}
	return heard(nodes.Items), Ready
}

// nodeStatus is that of a node which has said, at a time, that it is ready.
func (c *Cluster) nodeStatus(i int, said time.Time) NodeStatus {
	out := NodeStatus{Name: c.NodeName(i), State: Stopped, Addresses: c.families(c.Net.Node(i))}
	for _, prefix := range c.PodPrefixes(i) {
		out.PodRanges = append(out.PodRanges, prefix.String())
	}
	m, up, err := machine.Load(c.machineDir(out.Name))
	if err != nil || !up {
		return out
	}
	out.PID, out.State = m.PID, NotReady
	out.MemoryPSS, _ = m.Memory()
	if since, err := m.Started(); err == nil && ofThisLife(said, since) {
		out.State = Ready
	}
	return out
}
