package dataplane

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// alone is a node without a world around it.
func alone(t *testing.T) (*Kernel, Options, Config) {
	t.Helper()
	host, held := netnstest.NewPlace(t, "host"), &netns.Held{}
	options := Options{Host: host.File, Namespaces: held}
	kernel, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kernel.Close)
	t.Cleanup(func() {
		names, _ := held.List()
		for _, name := range names {
			_ = held.Remove(name)
		}
	})
	host.Address("lo", "192.0.2.1/32")
	host.Sysctl("ipv6/conf/all/forwarding", "1")
	return kernel, options, Config{
		Node: Node{
			Name: "a", Underlay: netip.MustParseAddr("192.0.2.1"), VNI: 7, Port: 4790, MTU: 1450,
			Addresses: addrs("192.0.2.1"),
		},
		Others: []Other{{Name: "b", Underlay: netip.MustParseAddr("192.0.2.2")}, {Name: "c", Underlay: netip.MustParseAddr("192.0.2.3")}},
		Pods:   []netip.Prefix{podRange(true), podRange(false)},
	}
}

// TestRangesChangeOwner moves ranges that touch between nodes in one step, and asks a new
// process what is in the kernel.
func TestRangesChangeOwner(t *testing.T) {
	kernel, options, c := alone(t)
	for _, owns := range [][2][]netip.Prefix{
		{prefixes("10.42.2.0/24", "fd42:0:0:2::/64"), prefixes("10.42.3.0/24", "fd42:0:0:3::/64")},
		{prefixes("10.42.3.0/24", "fd42:0:0:3::/64"), prefixes("10.42.2.0/24", "fd42:0:0:2::/64")},
		{prefixes("10.42.2.0/23"), prefixes("10.42.2.7/32", "10.42.4.0/24", "10.42.255.0/24")},
		{prefixes("10.42.2.0/25"), prefixes("10.42.2.128/25", "10.42.3.0/24", "10.42.4.0/23")},
		{nil, nil},
	} {
		c.Others[0].Owns, c.Others[1].Owns = owns[0], owns[1]
		if err := kernel.Set(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		again, err := New(options)
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Set(t.Context(), c); err != nil || again.writes.Load() != 0 {
			t.Errorf("%v: a new process: %v, %d writes", owns, err, again.writes.Load())
		}
		again.Close()
	}
}

// TestManyNodes measures 100 other nodes and 100 peers, of which 5 have their gateway here.
func TestManyNodes(t *testing.T) {
	kernel, _, c := alone(t)
	c.Others = nil
	for i := range 100 {
		c.Others = append(c.Others, Other{
			Name: fmt.Sprintf("node-%d", i), Underlay: netip.AddrFrom4([4]byte{192, 0, 3, byte(i)}),
			Owns: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 42, byte(i), 0}), 24)},
		})
		view := View{View: viewRange(100+i, true), Real: podRange(true)}
		r := Route{Prefix: view.View, Node: c.Others[i].Name}
		if i < 5 {
			r.Node, r.Gateway = "", fmt.Sprintf("peer-%d", i)
			c.Gateways = append(c.Gateways, Gateway{Peering: r.Gateway, Tunnel: tunnelName, MTU: 1420, Views: []View{view}})
		}
		c.Routes = append(c.Routes, r)
	}
	for _, what := range []string{"all", "nothing"} {
		start, before := time.Now(), kernel.writes.Load()
		if err := kernel.Set(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		writes := kernel.writes.Load() - before
		t.Logf("%s new: %s, %d writes", what, time.Since(start).Round(100*time.Microsecond), writes)
		if what == "nothing" && writes != 0 {
			t.Errorf("%d writes", writes)
		}
	}
}

// TestLess takes from a config one thing of each kind, and counts what is there; of views
// each has the route that leads nowhere besides.
func TestLess(t *testing.T) {
	kernel, options, c := alone(t)
	file, err := netns.Copy(options.Host)
	if err != nil {
		t.Fatal(err)
	}
	host := netnstest.OpenPlace(t, "host", file)
	for i := range c.Others {
		c.Others[i].Owns = []netip.Prefix{podSubnet(i, true), podSubnet(i, false)}
	}
	for i, v4 := range []bool{true, true, true, false, false, false} {
		r := Route{Prefix: viewRange(70+i, v4), Node: "b"}
		if i%3 == 2 {
			r.Node, r.Gateway = "", "p"
		}
		c.Routes = append(c.Routes, r)
	}
	c.Gateways = []Gateway{{Peering: "p", Tunnel: tunnelName, MTU: 1420}, {Peering: "q", Tunnel: tunnelName, MTU: 1420}}
	c.Node.Addresses = nil
	less := c
	less.Others, less.Gateways = c.Others[:1], c.Gateways[:1]
	less.Routes = append(append([]Route(nil), c.Routes[1:3]...), c.Routes[4:]...)
	for _, step := range []struct {
		config Config
		want   map[string]int
	}{
		{c, map[string]int{"views": 12, "ways": 4, "rules": 6, "neighbours": 8, "forwards": 2, "veths": 2}},
		{less, map[string]int{"views": 8, "ways": 2, "rules": 4, "neighbours": 4, "forwards": 1, "veths": 1}},
		{c, map[string]int{"views": 12, "ways": 4, "rules": 6, "neighbours": 8, "forwards": 2, "veths": 2}},
	} {
		if err := kernel.Set(t.Context(), step.config); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(step.want, count(host)); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
}

func podSubnet(i int, v4 bool) netip.Prefix {
	bits := 64
	if v4 {
		bits = 24
	}
	return netip.PrefixFrom(podAt(42, i, 0, v4), bits)
}

// count counts what is ours without asking the code that made it.
func count(p *place) map[string]int {
	p.T.Helper()
	n := map[string]int{}
	links, err := p.Kernel.LinkList()
	p.Must(err)
	for _, l := range links {
		if l.Type() == "veth" {
			n["veths"]++
		}
		if l.Type() != "veth" && l.Type() != "vxlan" {
			continue
		}
		for _, family := range []int{unix.AF_INET, unix.AF_INET6, unix.AF_BRIDGE} {
			list, err := p.Kernel.NeighList(l.Attrs().Index, family)
			p.Must(err)
			for _, e := range list {
				switch {
				case family == unix.AF_BRIDGE && l.Type() == "vxlan":
					n["forwards"]++
				case family != unix.AF_BRIDGE && e.State == netlink.NUD_PERMANENT:
					n["neighbours"]++
				}
			}
		}
	}
	for _, v4 := range families {
		routes, err := p.Kernel.RouteListFiltered(familyOf(v4), &netlink.Route{}, netlink.RT_FILTER_TABLE)
		p.Must(err)
		for _, r := range routes {
			switch {
			case r.Table == viewTable:
				n["views"]++
			case r.Table >= nodeTables:
				n["ways"]++
			}
		}
		rules, err := p.Kernel.RuleList(familyOf(v4))
		p.Must(err)
		for _, r := range rules {
			if r.Table == viewTable || r.Table >= nodeTables {
				n["rules"]++
			}
		}
	}
	return n
}
