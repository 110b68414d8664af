package bench

import (
	"fmt"
	"net/netip"
	"os"
	"testing"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// fabricSide is a cluster with our network: plans, and what applies them.
type fabricSide struct {
	*netnstest.Cluster
	in      plan.Input
	secret  tunnel.Secret
	outside []netip.Addr
	table   *ipam.Table
	key     string
	spaces  []*os.File // of the gateway
}

// fabric makes two clusters with our network, whose pods are in ranges of numbers, and returns
// the ways between pods on the gateways' nodes and off them.
func fabric(t *testing.T, open opener, name string, numbers ...int) []*line {
	t.Helper()
	lines, _ := fabricOf(t, open, name, numbers...)
	return lines
}

// fabricOf is fabric that returns the clusters as well.
func fabricOf(t *testing.T, open opener, name string, numbers ...int) (lines []*line, sides [2]*fabricSide) {
	t.Helper()
	world := newInternet(t)
	for i, role := range []plan.Role{plan.Consumer, plan.Provider} {
		sides[i] = newFabricSide(t, world, fmt.Sprintf("%s%d", name[:2], i+1), numbers[i], numbers[1-i], role)
	}
	for i, s := range sides {
		s.meet(sides[1-i])
		s.apply(t, open)
	}
	from, to := sides[0], sides[1]
	g, h := from.gateway(t), to.gateway(t)
	seen := func(node int) string {
		a, ok := from.table.View(from.key, netnstest.PodAddr(to.Number, node, 5, true))
		if !ok {
			t.Fatal("a pod has no view")
		}
		return a.String()
	}
	return []*line{
		{name: name + ", on the gateway", from: from.Nodes[g].Pod, server: newServer(t, to.Nodes[h].Pod), at: seen(h)},
		{name: name + ", off the gateway", from: from.Nodes[1-g].Pod, server: newServer(t, to.Nodes[1-h].Pod), at: seen(1 - h)},
	}, sides
}

func newFabricSide(t *testing.T, world *internet, name string, number, peer int, role plan.Role) *fabricSide {
	t.Helper()
	own := []netip.Prefix{netnstest.Range(number, true)}
	s := &fabricSide{Cluster: netnstest.NewClusterOf(t, name, number), key: "peer"}
	var err error
	if s.secret, err = tunnel.NewSecret(); err != nil {
		t.Fatal(err)
	}
	nodes := []netip.Prefix{netip.MustParsePrefix("192.168.0.0/24")}
	results := ipam.Allocate(ipam.Own{Pods: own, Nodes: nodes, Pools: []netip.Prefix{netip.MustParsePrefix("10.80.0.0/12")}},
		[]ipam.Peering{{Key: s.key, Ranges: []string{netnstest.Range(peer, true).String()}}})
	s.table = ipam.NewTable(results)
	s.in.Pods = own
	s.in.Peerings = []plan.Peering{{Key: s.key, Role: role, Views: results[s.key].Views, ListenPort: 7100, Secret: "key"}}
	for i, n := range s.Nodes {
		s.outside = append(s.outside, world.join(n))
		s.in.Nodes = append(s.in.Nodes, plan.Node{Name: n.Name, Addresses: []netip.Addr{netnstest.NodeAddr(i, true)}, Alive: true, MTU: 1500,
			Ranges: []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", number, i+1))}})
	}
	return s
}

// meet tells a side of its peer, and limits it to the pods there are, as the product does.
func (s *fabricSide) meet(peer *fabricSide) {
	p := &s.in.Peerings[0]
	p.Peer, p.Limited = peer.secret.Public(), true
	for i := range s.Nodes {
		p.Endpoints = append(p.Endpoints, fmt.Sprintf("%s:7100", peer.outside[i]))
		p.Here = append(p.Here, netnstest.PodAddr(s.Number, i, 5, true))
		p.There = append(p.There, netnstest.PodAddr(peer.Number, i, 5, true))
	}
}

// opener opens the tunnels of a node, each in the space of its number, and has them closed at the end.
type opener func(t *testing.T, s *fabricSide, n *netnstest.Node, tunnels []plan.Tunnel, spaces []*os.File)

// openTunnels has them in this process.
func openTunnels(t *testing.T, s *fabricSide, n *netnstest.Node, tunnels []plan.Tunnel, spaces []*os.File) {
	t.Helper()
	for i, c := range tunnels {
		d, err := tunnel.New(tunnel.Options{Namespace: spaces[i], Host: n.File, Userspace: true})
		n.Must(err)
		c.Config.PrivateKey = s.secret
		n.Must(d.Set(c.Config))
		t.Cleanup(func() { _ = d.Close() })
	}
}

// apply makes all nodes what their plans say.
func (s *fabricSide) apply(t *testing.T, open opener) {
	t.Helper()
	for _, n := range s.Nodes {
		held := &netns.Held{}
		kernel, err := dataplane.New(dataplane.Options{Host: n.File, Namespaces: held})
		n.Must(err)
		t.Cleanup(kernel.Close)
		in := s.in
		in.Node = n.Name
		made := plan.Compute(in)
		for _, problem := range made.Problems {
			t.Errorf("%s: %s", n.Name, problem)
		}
		n.Must(kernel.Set(t.Context(), made.Config))
		var spaces []*os.File
		for _, c := range made.Tunnels {
			space, err := held.Open(c.Peering)
			n.Must(err)
			spaces = append(spaces, space)
			s.spaces = append(s.spaces, space)
			t.Cleanup(func() { _ = space.Close(); _ = held.Remove(c.Peering) })
		}
		if len(spaces) > 0 {
			open(t, s, n, made.Tunnels, spaces)
		}
		n.Must(kernel.Set(t.Context(), made.Config)) // with the tunnel's device
	}
}

func (s *fabricSide) gateway(t *testing.T) int {
	t.Helper()
	in := s.in
	in.Node = s.Nodes[0].Name
	name := plan.Compute(in).Gateways[s.key]
	for i, n := range s.Nodes {
		if n.Name == name {
			return i
		}
	}
	t.Fatalf("%s has no gateway", s.Name)
	return 0
}
