package plan

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/tunnel"
)

var update = flag.Bool("update", false, "write the golden files anew")

func addrs(texts ...string) (out []netip.Addr) {
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// views are written real, view, real, view.
func views(texts ...string) (out []ipam.View) {
	for pair := range slices.Chunk(prefixes(texts...), 2) {
		out = append(out, ipam.View{Real: pair[0], View: pair[1]})
	}
	return out
}

// rome has some nodes with a pod range each, and two peers.
func rome(nodes int) Input {
	in := Input{
		Node: "rome-1", Pods: prefixes("10.42.0.0/16"), External: prefixes("10.43.0.0/24"),
		Peerings: []Peering{
			{
				Key: "milan", Role: Consumer, Views: views("10.50.0.0/16", "10.50.0.0/16", "10.51.0.0/24", "10.51.0.0/24"),
				ListenPort: 51820, Secret: "milan-key", Peer: tunnel.PublicKey{1}, Endpoints: []string{"198.51.100.7:51820", "milan.example:51820"},
			},
			{
				Key: "oslo", Role: Provider, Views: views("10.60.0.0/16", "10.60.0.0/16"),
				ListenPort: 51821, Secret: "oslo-key", Peer: tunnel.PublicKey{2}, NextPeer: tunnel.PublicKey{3},
			},
		},
	}
	for i := 1; i <= nodes; i++ {
		in.Nodes = append(in.Nodes, Node{
			Name: fmt.Sprintf("rome-%d", i), Addresses: addrs(fmt.Sprintf("192.0.2.%d", i)), Alive: true, MTU: 1500,
			Ranges: prefixes(fmt.Sprintf("10.42.%d.0/24", i)),
		})
	}
	return in
}

// pathed is rome as one of three providers of oslo's, with paths to both others.
func pathed() Input {
	in := rome(3)
	p := &in.Peerings[1]
	p.Views = append(p.Views, views("10.85.0.0/16", "10.91.0.0/16", "10.86.0.0/16", "10.86.0.0/16")...)
	p.Limited, p.Here, p.There = true, addrs("10.42.1.7"), addrs("10.60.3.3", "10.85.3.3")
	p.ShutHere = addrs("10.42.1.8")
	for i, to := range []string{"10.85.0.0/16", "10.86.0.0/16"} {
		p.Paths = append(p.Paths, Path{
			Key: fmt.Sprint("oslo.", i+1), Prefixes: prefixes(to), Own: views("10.42.0.0/16", "10.84.0.0/16"), Here: p.Here, There: p.There,
			First: i == 0, Alive: i == 0, ListenPort: uint16(51822 + i), Secret: fmt.Sprint("oslo-key-", i+1), Peer: tunnel.PublicKey{byte(4 + i)}, Endpoints: []string{"203.0.113.7:51820"},
		})
	}
	return in
}

// dual is rome with IPv6 beside IPv4, and milan with the same ranges.
func dual(nodes int) Input {
	in := rome(nodes)
	in.Pods, in.External = append(in.Pods, prefixes("fd42::/48")...), append(in.External, prefixes("fd43::/112")...)
	in.Peerings = in.Peerings[:1]
	in.Peerings[0].Views = views("10.42.0.0/16", "10.81.0.0/16", "10.43.0.0/24", "10.83.0.0/24", "fd42::/48", "fd81::/48", "fd43::/112", "fd83::/112")
	for i := range in.Nodes {
		n := &in.Nodes[i]
		n.Addresses, n.Ranges = append(n.Addresses, addrs(fmt.Sprintf("2001:db8::%d", i+1))...), append(n.Ranges, prefixes(fmt.Sprintf("fd42:0:0:%d::/64", i+1))...)
	}
	return in
}

// text is a plan to read.
func (p Plan) text() string {
	var b strings.Builder
	b.WriteString(p.Config.String())
	for _, t := range p.Tunnels {
		c := t.Config
		fmt.Fprintf(&b, "\n# tunnel of %s\n%s mtu %d port %d key of secret %s peer %s next %s keepalive %s endpoints %v\n",
			t.Peering, c.Name, c.MTU, c.ListenPort, t.Secret, c.Peer, c.NextPeer, c.Keepalive, c.Endpoints)
	}
	for _, q := range p.Probes {
		fmt.Fprintf(&b, "probe %s from %s to %s\n", q.Peering, q.At, q.Peer)
	}
	b.WriteString("\n")
	for _, key := range slices.Sorted(mapKeys(p.Gateways)) {
		fmt.Fprintf(&b, "gateway of %s: %q\n", key, p.Gateways[key])
	}
	for _, q := range p.Problems {
		fmt.Fprintln(&b, "problem:", q)
	}
	return b.String()
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		name  string
		input func() Input
	}{
		{"one-node", func() Input { return rome(1) }},
		{"three-nodes", func() Input { // with the gateway of one peering here, and of another there
			in := rome(3)
			in.Peerings[1].Key = "naples"
			return in
		}},
		{"identical-ranges", func() Input {
			in := rome(2)
			in.Node, in.Peerings = "rome-2", in.Peerings[:1]
			in.Peerings[0].Views = views("10.42.0.0/16", "10.81.0.0/16", "10.43.0.0/24", "10.83.0.0/24")
			return in
		}},
		{"dual", func() Input {
			in := dual(2)
			in.Node = "rome-2"
			return in
		}},
		{"limited", func() Input {
			in := rome(2)
			p := &in.Peerings[0]
			in.Node = "rome-2"
			p.Limited, p.Here, p.There = true, addrs("10.42.1.7", "10.42.2.9"), addrs("10.50.3.3")
			p.Transit = prefixes("10.60.0.0/16")
			in.Nodes[1].Pods = addrs("10.42.9.4", "10.42.1.200")
			in.Nodes[0].Pods = addrs("10.42.2.200", "10.42.9.5")
			return in
		}},
		{"guarded", func() Input {
			in := rome(1)
			in.Peerings[0].Guard = &dataplane.Guard{
				HereIn: addrs("10.42.1.7", "127.0.0.1"), ThereOut: addrs("10.50.3.3"), Free: []netip.AddrPort{netip.MustParseAddrPort("10.51.0.2:443")},
				Entries: []dataplane.Entry{
					{Name: "shop/db", Pods: addrs("10.42.1.7"), Peers: append(prefixes("10.50.3.3/32", "10.50.3.0/24"), netip.Prefix{}), Protocol: 6, Ports: []dataplane.Ports{{First: 80, Last: 90}, {First: 85, Last: 95}}},
					{Name: "twice"}, {Name: "twice"},
					{Name: "shop/backwards", Protocol: 6, Ports: []dataplane.Ports{{First: 9, Last: 1}}},
				},
			}
			return in
		}},
		{"callers", func() Input { // of a provider, and of a consumer that opens something to those of its own
			in := rome(1)
			milan, oslo := &in.Peerings[0], &in.Peerings[1]
			milan.Limited, milan.Here, milan.There, milan.Open = true, addrs("10.42.1.7"), addrs("10.50.3.3"), addrs("10.42.1.7", "10.60.1.1")
			oslo.Limited, oslo.Here, oslo.There, oslo.Callers = true, addrs("10.42.1.8"), addrs("10.60.3.3"), addrs("10.42.1.8", "10.42.1.9")
			return in
		}},
		{"line", func() Input { // of a consumer whose gateway is elsewhere, and of an invitation with nothing else
			in := rome(3)
			in.Node = "rome-1"
			in.Peerings[0].Line = calling("10.43.0.9")
			in.Peerings[0].Line.Callers = addrs("10.42.1.7", "10.42.1.7", "127.0.0.1")
			in.Peerings[1] = Peering{Key: "invitation-5", Role: Provider, Closed: true, ListenPort: 51821, Secret: "invitation-5", Peer: tunnel.PublicKey{2}, Line: answering()}
			return in
		}},
		{"path", func() Input { // to two other providers of oslo's, one of which answers
			in := rome(2)
			in.Node = "rome-2"
			in.Peerings = pathed().Peerings[1:]
			return in
		}},
		{"node-gone", func() Input {
			in := rome(3)
			in.Peerings[1].Key = "naples"
			in.Nodes = append(in.Nodes[:1], in.Nodes[2]) // milan's gateway was on rome-2
			return in
		}},
		{"nobody-alive", func() Input {
			in := rome(2)
			in.Nodes[0].Alive, in.Nodes[1].Alive = false, false
			return in
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Compute(c.input())
			file := filepath.Join("testdata", c.name+".txt")
			if *update {
				if err := os.WriteFile(file, []byte(p.text()), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), p.text()); d != "" {
				t.Errorf("(-want +got), -update writes it anew:\n%s", d)
			}
			if err := p.Config.Check(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestProblems holds that what cannot be is told of with the object's name, costs that
// part alone, and leaves a config that can be set, on every node.
func TestProblems(t *testing.T) {
	for _, c := range []struct {
		reason string
		change func(*Input)
		want   []string
	}{
		{"all is well", func(*Input) {}, nil},
		{"a pod is at one node", func(in *Input) {
			in.Nodes[0].Pods, in.Nodes[1].Pods = addrs("10.42.9.1", "10.42.9.2"), addrs("10.42.9.1")
		}, []string{"node rome-1: its address 10.42.9.1 is also one of node rome-2", "node rome-2: its address 10.42.9.1 is also one of node rome-1"}},
		{"an address is of a node or of a pod elsewhere", func(in *Input) { in.Nodes[2].Pods = addrs("192.0.2.1") },
			[]string{"node rome-3: its address 192.0.2.1 is also one of node rome-1"}},
		{"an address is of one node", func(in *Input) { in.Nodes[2].Addresses = addrs("192.0.2.2") },
			[]string{
				"node rome-2: its address 192.0.2.2 is also one of node rome-3", "node rome-3: its address 192.0.2.2 is also one of node rome-2",
				"node rome-2: it has no address of IPv4 that is its own", "node rome-3: it has no address of IPv4 that is its own",
			}},
		{"a node without a live agent was replaced", func(in *Input) { in.Nodes[2].Alive, in.Nodes[2].Addresses = false, addrs("192.0.2.2") },
			[]string{"node rome-3: its address 192.0.2.2 is also one of node rome-2", "node rome-3: it has no address of IPv4 that is its own"}},
		{"ranges are of one node", func(in *Input) { in.Nodes[1].Ranges = prefixes("10.42.0.0/20") },
			[]string{
				"node rome-1: its pods' range 10.42.1.0/24 overlaps 10.42.0.0/20 of node rome-2", "node rome-2: its pods' range 10.42.0.0/20 overlaps 10.42.1.0/24 of node rome-1",
				"node rome-2: its pods' range 10.42.0.0/20 overlaps 10.42.3.0/24 of node rome-3", "node rome-3: its pods' range 10.42.3.0/24 overlaps 10.42.0.0/20 of node rome-2",
			}},
		{"a range has no host bits", func(in *Input) { in.Nodes[1].Ranges = []netip.Prefix{netip.MustParsePrefix("10.42.2.1/24")} }, []string{"node rome-2: its pods' range 10.42.2.1/24"}},
		{"a node is reached by an address", func(in *Input) { in.Nodes[2].Addresses = nil }, []string{"node rome-3: it has no address of IPv4"}},
		{"by one of the family that the others have", func(in *Input) { in.Nodes[2].Addresses = addrs("2001:db8::3") }, []string{"node rome-3: it has no address of IPv4"}},
		{"a link-local address is everywhere", func(in *Input) { in.Nodes[2].Addresses = append(in.Nodes[2].Addresses, addrs("fe80::1")...) }, []string{"node rome-3: its address fe80::1 is none by which"}},
		{"a name is of one node", func(in *Input) { in.Nodes[2].Name = "rome-2" }, []string{"node rome-2: 2 nodes have this name", "peering"}},
		{"a node has a name", func(in *Input) { in.Nodes[2].Name = "" }, []string{"nodes: one has no name"}},
		{"this node is known", func(in *Input) { in.Node = "rome-9" }, []string{"node rome-9: it is not among the nodes"}},
		{"a key is of one peering", func(in *Input) { in.Peerings[1].Key = "milan" }, []string{"peering milan: 2 peerings have this key"}},
		{"a peering has a key", func(in *Input) { in.Peerings[1].Key = "" }, []string{"peerings: one has no key"}},
		{"a peering has two sides", func(in *Input) { in.Peerings[1].Role = "boss" }, []string{`peering oslo: its role "boss"`}},
		{"views are disjoint", func(in *Input) {
			in.Peerings[1].Views = views("10.50.7.0/24", "10.50.7.0/24", "10.61.0.0/16", "10.61.0.0/16")
		},
			[]string{"peering oslo: its view 10.50.7.0/24 overlaps 10.50.0.0/16 of peering milan"}},
		{"a view is none of our pods", func(in *Input) { in.Peerings[1].Views = views("10.42.0.0/24", "10.42.0.0/24") }, []string{"peering oslo: its view 10.42.0.0/24 overlaps 10.42.0.0/16 of the pods here"}},
		{"nor all that there is", func(in *Input) { in.Peerings[1].Views = views("10.0.0.0/8", "10.0.0.0/8") },
			[]string{"peering oslo: its view 10.0.0.0/8 overlaps 10.42.0.0/16 of the pods here"}},
		{"a peer's ranges are disjoint", func(in *Input) {
			in.Peerings[1].Views = views("10.42.0.0/16", "10.60.0.0/16", "10.42.1.0/24", "10.61.1.0/24")
		}, []string{"peering oslo: its ranges 10.42.0.0/16 and 10.42.1.0/24 overlap"}},
		{"a view is as large as the range", func(in *Input) { in.Peerings[1].Views = views("10.60.0.0/17", "10.60.0.0/16") }, []string{"peering oslo: 10.60.0.0/16 is no view of 10.60.0.0/17"}},
		{"transit is a view of another peering", func(in *Input) {
			in.Peerings[1].Transit = prefixes("10.42.3.0/24", "10.50.0.0/16", "10.50.0.0/17", "10.60.0.0/16")
		}, []string{"peering oslo: its transit 10.42.3.0/24 is no", "peering oslo: its transit 10.50.0.0/17 is no", "peering oslo: its transit 10.60.0.0/16 is no"}},
		{"who is reached has an address", func(in *Input) { in.Peerings[1].Limited, in.Peerings[1].Here = true, addrs("10.42.1.1", "127.0.0.1") }, []string{"peering oslo: the address 127.0.0.1 that may be reached"}},
		{"a door of the peer's has an address and a port", func(in *Input) {
			in.Peerings[1].Limited, in.Peerings[1].Closed = true, true
			in.Peerings[1].Calls = []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:443"), netip.MustParseAddrPort("10.99.0.2:443"), netip.MustParseAddrPort("10.99.0.2:0")}
		}, []string{"peering oslo: its peer's door 10.99.0.2:0 has no port", "peering oslo: its peer's door 127.0.0.1:443"}},
		{"who is shut has an address", func(in *Input) {
			in.Peerings[1].ShutHere, in.Peerings[1].ShutThere = addrs("127.0.0.1"), addrs("127.0.0.1")
		}, []string{"peering oslo: the address 127.0.0.1"}},
		{"a door is in the external range, and not where all else is", func(in *Input) {
			in.Peerings[1].Doors = []dataplane.Door{door("10.43.0.2:443", "192.0.2.9:6443"), door("10.43.0.1:443", "192.0.2.9:6443"), door("10.44.0.2:443", "192.0.2.9:6443"), door("10.43.0.2:443", "192.0.2.8:6443")}
		}, []string{"peering oslo: its door from 10.43.0.1:443", "peering oslo: its door from 10.43.0.2:443 to 192.0.2.8:6443 is there twice", "peering oslo: its door from 10.44.0.2:443"}},
		{"a door leads somewhere", func(in *Input) {
			in.Peerings[1].Doors = []dataplane.Door{door("10.43.0.2:443", "127.0.0.1:6443"), door("10.43.0.3:443", "192.0.2.9:0"), door("10.43.0.4:443", "[fd19::1]:443")}
		}, []string{"peering oslo: its door from 10.43.0.2:443", "peering oslo: its door from 10.43.0.3:443", "peering oslo: its door from 10.43.0.4:443"}},
		{"a tunnel has its own port", func(in *Input) { in.Peerings[1].ListenPort = 51820 }, []string{"peering oslo: its port 51820 is that of peering milan"}},
		{"a tunnel needs the other's key", func(in *Input) { in.Peerings[1].Peer = tunnel.PublicKey{} }, []string{"peering oslo: the peer has published no key yet"}},
		{"an endpoint has a port", func(in *Input) { in.Peerings[0].Endpoints = []string{"milan.example"} }, []string{`peering milan: its peer's endpoint "milan.example"`}},
		{"a peer is at no address of this node's own", func(in *Input) {
			in.Peerings[0].Endpoints = []string{"127.0.0.1:53", "[fe80::1]:53", "0.0.0.0:53", "[::ffff:127.0.0.1]:53"}
		}, []string{"peering milan: its peer's endpoint 0.0.0.0:53", "peering milan: its peer's endpoint 127.0.0.1:53", "peering milan: its peer's endpoint [::ffff:127.0.0.1]:53", "peering milan: its peer's endpoint [fe80::1]:53"}},
		{"a tunnel does not go through a tunnel", func(in *Input) { in.Peerings[0].Endpoints = append(in.Peerings[0].Endpoints, "10.60.1.1:5") }, []string{"peering milan: its peer's endpoint 10.60.1.1:5 is an address of a view"}},
		{"one external range of a family", func(in *Input) { in.External = prefixes("10.43.0.0/24", "10.44.0.0/24") }, []string{"cluster: its external range 10.44.0.0/24 is the second one of IPv4"}},
		{"an external range with IPv4 in it", func(in *Input) { in.External = prefixes("::/80") }, []string{"cluster: its external range ::/80 holds addresses of IPv4 in an IPv6 form"}},
		{"nobody is alive", func(in *Input) {
			for i := range in.Nodes {
				in.Nodes[i].Alive = false
			}
		}, []string{"peering milan: no node with a live agent", "peering oslo: no node with a live agent"}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			in := rome(3)
			c.change(&in)
			p := Compute(in)
			if err := p.Config.Check(); err != nil {
				t.Error(err)
			}
			for _, problem := range p.Problems {
				if !slices.ContainsFunc(c.want, func(w string) bool { return strings.HasPrefix(problem.String(), w) }) {
					t.Errorf("unexpected: %s", problem)
				}
			}
			for _, w := range c.want {
				if w != "peering" && !slices.ContainsFunc(p.Problems, func(q Problem) bool { return strings.HasPrefix(q.String(), w) }) {
					t.Errorf("not told of %q but of %v", w, p.Problems)
				}
			}
			for _, g := range p.Config.Gateways { // the others work
				if g.Peering != "oslo" && g.Peering != "milan" {
					t.Errorf("a gateway of %q", g.Peering)
				}
			}
			if _, ok := p.Gateways["milan"]; !ok && c.reason != "a key is of one peering" {
				t.Error("milan has lost its part")
			}
		})
	}
}

// TestLeftOut looks at what is left of what several claim.
func TestLeftOut(t *testing.T) {
	in := rome(3)
	in.Nodes[1].Pods, in.Nodes[2].Pods = addrs("10.42.9.1", "10.42.9.2", "192.0.2.2"), addrs("10.42.9.1", "10.42.9.3")
	in.Nodes[2].Addresses = append(in.Nodes[2].Addresses, addrs("10.42.9.2")...) // a pod's of rome-2
	in.Nodes[1].Alive = false
	in.Nodes[1].Pods = append(in.Nodes[1].Pods, addrs("10.42.2.9")...) // in its own range
	in.Nodes[1].Ranges = append(in.Nodes[1].Ranges, prefixes("10.42.8.8/32")...)
	owns := map[string][]netip.Prefix{}
	for _, o := range Compute(in).Config.Others {
		owns[o.Name] = o.Owns
	}
	want := map[string][]netip.Prefix{
		"rome-2": prefixes("10.42.2.0/24", "192.0.2.2/32", "10.42.8.8/32"),
		"rome-3": prefixes("10.42.3.0/24", "192.0.2.3/32", "10.42.9.2/32", "10.42.9.1/32", "10.42.9.3/32"),
	}
	if d := cmp.Diff(want, owns, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestMTU(t *testing.T) {
	for _, c := range []struct {
		reason        string
		nodes         []Node
		vxlan, tunnel int
	}{
		{"what an Ethernet leaves", []Node{{Addresses: addrs("192.0.2.1"), MTU: 1500}}, 1450, 1440},
		{"nothing is known", []Node{{Addresses: addrs("192.0.2.1")}}, 1450, 1440},
		{"over IPv6", []Node{{Addresses: addrs("2001:db8::1"), MTU: 1500}}, 1430, 1420},
		{"the tunnel may go over IPv6", []Node{{Addresses: addrs("192.0.2.1", "2001:db8::1"), MTU: 1500}}, 1450, 1420},
		{"of the node that carries least", []Node{{Addresses: addrs("192.0.2.1"), MTU: 1500}, {Addresses: addrs("192.0.2.2"), MTU: 1400}}, 1350, 1340},
		{"large between nodes, not outside", []Node{{Addresses: addrs("192.0.2.1"), MTU: 9000}}, 8950, 1440},
		{"what IPv6 needs", []Node{{Addresses: addrs("192.0.2.1", "2001:db8::1"), MTU: 1300}}, 1280, 1280},
	} {
		in := rome(0)
		for i, n := range c.nodes {
			n.Name, n.Alive = fmt.Sprintf("rome-%d", i+1), true
			in.Nodes = append(in.Nodes, n)
		}
		found := false
		for i := range in.Nodes {
			in.Node = in.Nodes[i].Name
			p := Compute(in)
			if p.Config.Node.MTU != c.vxlan {
				t.Errorf("%s: VXLAN has %d, want %d", c.reason, p.Config.Node.MTU, c.vxlan)
			}
			for _, r := range p.Config.Routes {
				if r.MTU != c.tunnel {
					t.Errorf("%s: route has %d, want %d", c.reason, r.MTU, c.tunnel)
				}
			}
			for j, g := range p.Config.Gateways {
				found = true
				if g.MTU != c.tunnel || p.Tunnels[j].Config.MTU != c.tunnel {
					t.Errorf("%s: gateway has %d, tunnel %d, want %d", c.reason, g.MTU, p.Tunnels[j].Config.MTU, c.tunnel)
				}
			}
		}
		if !found {
			t.Errorf("%s: no gateway", c.reason)
		}
	}
}

// TestRoles holds that both sides of a peering expect probes where the other sends them.
func TestRoles(t *testing.T) {
	in := rome(1)
	consumer := Compute(in).Probes[0]
	in.Peerings[0].Role = Provider
	provider := Compute(in).Probes[0]
	if consumer.At != provider.Peer || consumer.Peer != provider.At || consumer.At == consumer.Peer {
		t.Errorf("consumer %v, provider %v", consumer, provider)
	}
}

func TestOrderHasNoMeaning(t *testing.T) {
	in := dual(3)
	in.Nodes[1].Pods = addrs("10.42.1.9", "10.42.9.1")
	want := Compute(in).text()
	for range 20 {
		shuffle(in.Nodes)
		shuffle(in.Pods)
		shuffle(in.External)
		shuffle(in.Peerings)
		for _, n := range in.Nodes {
			shuffle(n.Ranges)
			shuffle(n.Pods)
		}
		for _, p := range in.Peerings {
			shuffle(p.Views)
		}
		if d := cmp.Diff(want, Compute(in).text()); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	}
}

func shuffle[T any](list []T) {
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

func calling(view string) *dataplane.Line {
	l := &dataplane.Line{Callers: addrs("10.42.1.7", "10.42.2.7"), Ports: []uint16{8443, 443}}
	if view != "" {
		l.Views = addrs(view)
	}
	return l
}

func answering(more ...dataplane.LineDoor) *dataplane.Line {
	return &dataplane.Line{Doors: append([]dataplane.LineDoor{{Port: 8443, To: netip.MustParseAddrPort("10.42.1.8:8443"), PerSecond: 5, Burst: 20}, lineDoor(443, "192.0.2.1:6443")}, more...)}
}

func lineDoor(at uint16, to string) dataplane.LineDoor {
	return dataplane.LineDoor{Port: at, To: netip.MustParseAddrPort(to)}
}

func door(at, to string) dataplane.Door {
	return dataplane.Door{At: netip.MustParseAddrPort(at), To: netip.MustParseAddrPort(to)}
}
