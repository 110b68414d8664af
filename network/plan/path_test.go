package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// TestPathProblems holds that of paths what cannot be is told of, and costs that path alone: what it would
// carry goes by the peering's own gateway.
func TestPathProblems(t *testing.T) {
	vethLow, vethHigh := alike(t, dataplane.Device)
	tunnelLow, tunnelHigh := alike(t, tunnelDevice)
	const of = 1 // the peering with paths
	path := func(in *Input, i int) *Path { return &in.Peerings[of].Paths[i] }
	for _, c := range []struct {
		reason string
		change func(*Input)
		want   []string
		made   []string
	}{
		{"all is well", func(*Input) {}, nil, []string{"oslo.1", "oslo.2"}},
		{"a path has a key", func(in *Input) { path(in, 0).Key = "" }, []string{"peering oslo: a direct path has no key"}, []string{"oslo.2"}},
		{"a key is of one path", func(in *Input) { path(in, 1).Key = "oslo.1" }, []string{"path oslo.1: 2 paths or peerings have this key"}, nil},
		{"and of no peering", func(in *Input) { path(in, 1).Key = "milan" }, []string{"path milan: 2 paths or peerings have this key"}, []string{"oslo.1"}},
		{"a consumer has some too", func(in *Input) { in.Peerings[of].Role = Consumer }, nil, []string{"oslo.1", "oslo.2"}},
		{"where nothing passes there is none", func(in *Input) { in.Peerings[of].Closed = true }, nil, nil},
		{"the other end has a key", func(in *Input) { path(in, 0).Peer = tunnel.PublicKey{} }, []string{"path oslo.1: the other end has published no key yet"}, []string{"oslo.2"}},
		{"a port is of one tunnel", func(in *Input) { path(in, 1).ListenPort = 51822 }, []string{"path oslo.2: its port is that of path oslo.1"}, []string{"oslo.1"}},
		{"and peerings go before paths", func(in *Input) { path(in, 0).ListenPort = 51820 }, []string{"path oslo.1: its port is that of peering milan"}, []string{"oslo.2"}},
		{"a device is of one path", func(in *Input) { path(in, 0).Key, path(in, 1).Key = vethHigh, vethLow },
			[]string{"path " + vethHigh + ": its device " + dataplane.Device(vethLow) + " is that of path " + vethLow}, []string{vethLow}},
		{"or peering", func(in *Input) { in.Peerings[0].Key, path(in, 0).Key = vethHigh, vethLow },
			[]string{"path " + vethLow + ": its device " + dataplane.Device(vethLow) + " is that of peering " + vethHigh}, []string{"oslo.2"}},
		{"a tunnel's device is of one path", func(in *Input) { path(in, 0).Key, path(in, 1).Key = tunnelHigh, tunnelLow },
			[]string{"path " + tunnelHigh + ": its tunnel's device " + tunnelDevice(tunnelLow) + " is that of path " + tunnelLow}, []string{tunnelLow}},
		{"or peering", func(in *Input) { in.Peerings[0].Key, path(in, 0).Key = tunnelHigh, tunnelLow },
			[]string{"path " + tunnelLow + ": its tunnel's device " + tunnelDevice(tunnelLow) + " is that of peering " + tunnelHigh}, []string{"oslo.2"}},
		{"it leads to what we see", func(in *Input) { path(in, 0).Prefixes = prefixes("10.99.0.0/16") },
			[]string{"path oslo.1: it leads to 10.99.0.0/16, of which there is no view", "path oslo.1: there is nothing that it could carry"}, []string{"oslo.2"}},
		{"to whole ranges", func(in *Input) { path(in, 0).Prefixes = prefixes("10.85.1.0/24", "10.85.0.0/16") },
			[]string{"path oslo.1: it leads to 10.85.1.0/24, of which there is no view"}, []string{"oslo.1", "oslo.2"}},
		{"where no other one does", func(in *Input) { path(in, 1).Prefixes = prefixes("10.85.0.0/16", "10.86.0.0/16") },
			[]string{"path oslo.2: it leads to 10.85.0.0/16, as path oslo.1 does"}, []string{"oslo.1", "oslo.2"}},
		{"what is not made holds no prefix", func(in *Input) {
			path(in, 0).Peer = tunnel.PublicKey{}
			path(in, 1).Prefixes = prefixes("10.85.0.0/16", "10.86.0.0/16")
		}, []string{"path oslo.1: the other end has published no key yet"}, []string{"oslo.2"}},
		{"of the families of pods here", func(in *Input) {
			in.Peerings[of].Views = append(in.Peerings[of].Views, views("fd85::/48", "fd91::/48")...)
			path(in, 0).Prefixes = append(path(in, 0).Prefixes, prefixes("fd85::/48")...)
		}, []string{"path oslo.1: it leads to fd85::/48, and has no view of pods here in IPv6"}, []string{"oslo.1", "oslo.2"}},
		{"our pods are seen", func(in *Input) { path(in, 0).Own = nil }, []string{"path oslo.1: it leads to", "path oslo.1: there is nothing"}, []string{"oslo.2"}},
		{"as a range of the same size", func(in *Input) { path(in, 0).Own = views("10.42.0.0/16", "10.84.0.0/17") },
			[]string{"path oslo.1: 10.84.0.0/17 is no view of 10.42.0.0/16", "path oslo.1: it leads to", "path oslo.1: there is nothing"}, []string{"oslo.2"}},
		{"and of the same family", func(in *Input) { path(in, 0).Own = views("10.42.0.0/16", "fd84::/16") },
			[]string{"path oslo.1: fd84::/16 is no view of 10.42.0.0/16", "path oslo.1: it leads to", "path oslo.1: there is nothing"}, []string{"oslo.2"}},
		{"and are ours", func(in *Input) { path(in, 0).Own = views("10.50.0.0/16", "10.84.0.0/16") },
			[]string{"path oslo.1: 10.50.0.0/16 is seen as 10.84.0.0/16, and is no range of pods here", "path oslo.1: it leads to", "path oslo.1: there is nothing"}, []string{"oslo.2"}},
		{"once", func(in *Input) {
			path(in, 0).Own = views("10.42.1.0/24", "10.84.1.0/24", "10.42.0.0/16", "10.84.0.0/16", "10.42.1.0/24", "10.70.0.0/24")
		}, []string{"path oslo.1: 10.42.1.0/24 as 10.70.0.0/24 overlaps another", "path oslo.1: 10.42.1.0/24 as 10.84.1.0/24 overlaps another"}, []string{"oslo.1", "oslo.2"}},
		{"who is reached has an address", func(in *Input) { path(in, 0).Here = addrs("127.0.0.1") }, []string{"peering oslo: the address 127.0.0.1"}, []string{"oslo.1", "oslo.2"}},
		{"an endpoint is a peer's", func(in *Input) {
			path(in, 0).Endpoints = []string{"nowhere", "127.0.0.1:53", "10.85.0.1:5", "10.91.0.1:5", "10.42.1.1:5", "10.43.0.9:5", "192.0.2.3:5", "[::ffff:192.0.2.3]:5", "192.0.2.77:5", "oslo.example:7"}
		}, []string{
			`path oslo.1: its peer's endpoint "nowhere"`, "path oslo.1: its peer's endpoint 127.0.0.1:53 is none by which", "path oslo.1: its peer's endpoint 10.91.0.1:5 is an address of a view",
			"path oslo.1: its peer's endpoint 10.42.1.1:5 is the address of a pod here", "path oslo.1: its peer's endpoint 10.43.0.9:5 is an external address",
			"path oslo.1: its peer's endpoint 192.0.2.3:5 is the address of a node here", "path oslo.1: its peer's endpoint [::ffff:192.0.2.3]:5 is the address of a node here",
		}, []string{"oslo.1", "oslo.2"}},
		{"there are not too many", func(in *Input) {
			for i := range maxPaths {
				more := *path(in, 1)
				more.Key, more.Prefixes, more.ListenPort = fmt.Sprintf("oslo.1%02d", i), prefixes(fmt.Sprintf("10.%d.0.0/16", 100+i)), 0
				in.Peerings[of].Views = append(in.Peerings[of].Views, views(more.Prefixes[0].String(), more.Prefixes[0].String())...)
				in.Peerings[of].Paths = append(in.Peerings[of].Paths, more)
			}
		}, []string{"peering oslo: it has 18 direct paths, of which the first 16 are made"}, []string{"oslo.1", "oslo.100", "oslo.101", "oslo.102", "oslo.103", "oslo.104", "oslo.105",
			"oslo.106", "oslo.107", "oslo.108", "oslo.109", "oslo.110", "oslo.111", "oslo.112", "oslo.113", "oslo.114"}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			in := pathed()
			c.change(&in)
			var made []string
			for _, n := range in.Nodes {
				in.Node = n.Name
				p := Compute(in)
				if err := p.Config.Check(); err != nil {
					t.Error(err)
				}
				var problems []string
				for _, q := range p.Problems {
					problems = append(problems, q.String())
				}
				for _, q := range problems {
					if !slices.ContainsFunc(c.want, func(w string) bool { return strings.HasPrefix(q, w) }) {
						t.Errorf("unexpected: %s", q)
					}
				}
				for _, w := range c.want {
					if !slices.ContainsFunc(problems, func(q string) bool { return strings.HasPrefix(q, w) }) {
						t.Errorf("not told of %q but of %q", w, problems)
					}
				}
				for _, g := range p.Config.Gateways {
					if n.Name != p.Gateways["oslo"] && len(g.Own) > 0 {
						t.Errorf("a path's gateway %s is on %s, and that of its peering on %s", g.Peering, n.Name, p.Gateways["oslo"])
					}
					if len(g.Own) > 0 {
						made = append(made, g.Peering)
					}
				}
				for _, r := range p.Config.Routes { // nothing is unreachable for want of a path
					if r.Node == "" && r.Gateway == "" {
						t.Errorf("%s has no way to %s", n.Name, r.Prefix)
					}
				}
			}
			if d := cmp.Diff(c.made, made); d != "" {
				t.Errorf("made (-want +got):\n%s", d)
			}
		})
	}
}

// TestPathRoutes holds that a path takes what it leads to while it is alive, on the node of its gateway alone.
func TestPathRoutes(t *testing.T) {
	for _, alive := range []bool{true, false} {
		in := pathed()
		in.Peerings[1].Paths[0].Alive = alive
		for _, n := range in.Nodes {
			in.Node = n.Name
			p := Compute(in)
			for _, r := range p.Config.Routes {
				want := dataplane.Route{Prefix: r.Prefix, Node: p.Gateways["oslo"], MTU: r.MTU}
				if n.Name == p.Gateways["oslo"] {
					want.Node, want.Gateway = "", "oslo"
					if alive && r.Prefix == netip.MustParsePrefix("10.91.0.0/16") {
						want.Gateway = "oslo.1"
					}
				}
				if slices.ContainsFunc(in.Peerings[1].Views, func(v ipam.View) bool { return v.View == r.Prefix }) && r != want {
					t.Errorf("alive %t, %s: %+v, want %+v", alive, n.Name, r, want)
				}
			}
		}
	}
}

// TestPathLetsPassWhatThePeeringDoes compares the gateways of a path and of its peering.
func TestPathLetsPassWhatThePeeringDoes(t *testing.T) {
	in := pathed()
	p := &in.Peerings[1]
	p.Guard = &dataplane.Guard{HereIn: addrs("10.42.1.7")}
	p.ShutThere = addrs("10.85.9.9")
	in.Node = Compute(in).Gateways["oslo"]
	gateways := map[string]dataplane.Gateway{}
	for _, g := range Compute(in).Config.Gateways {
		gateways[g.Peering] = g
	}
	want := gateways["oslo"]
	got := gateways["oslo.1"]
	if d := cmp.Diff([]any{want.Guard, want.ShutHere, want.ShutThere, want.Here, want.FromHere, want.FromThere, want.MTU},
		[]any{got.Guard, got.ShutHere, got.ShutThere, got.Here, got.FromHere, got.FromThere, got.MTU}, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Errorf("(-of the peering +of the path):\n%s", d)
	}
	if !got.Limited || !slices.Equal(got.There, addrs("10.85.3.3")) { // and nobody of 10.60
		t.Errorf("limited %t, there %v", got.Limited, got.There)
	}
	for _, key := range []string{"oslo.1", "oslo.2"} { // ends by who is first
		first := key == "oslo.1"
		if g := gateways[key]; (g.ProbeAt == consumerEnd) != first || (g.ProbePeer == providerEnd) != first {
			t.Errorf("%s: probes from %s to %s", key, g.ProbeAt, g.ProbePeer)
		}
	}
}
