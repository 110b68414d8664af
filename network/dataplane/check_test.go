package dataplane

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		reason string
		change func(*Config)
		want   string
	}{
		{"all is there", func(*Config) {}, ""},
		{"nothing is wanted", func(c *Config) { *c = Config{} }, ""},
		{"one node has no VXLAN", func(c *Config) {
			c.Others, c.Routes, c.Node.VNI, c.Node.Port = nil, c.Routes[:3], 0, 0
		}, ""},
		{"hardware addresses are made of names", func(c *Config) { c.Node.Name = "" }, "node.name: empty"},
		{"a VXLAN needs a port", func(c *Config) { c.Node.Port = 0 }, "node.port: 0"},
		{"a VXLAN needs a number", func(c *Config) { c.Node.VNI = 1 << 24 }, "node.vni: 16777216"},
		{"IPv6 needs 1280", func(c *Config) { c.Node.MTU = 1000 }, "node.mtu: 1000"},
		{"one VXLAN has one family", func(c *Config) { c.Others[0].Underlay = netip.MustParseAddr("fd19::2") }, "others: rome-2 has underlay fd19::2"},
		{"two nodes at one address", func(c *Config) { c.Others[0].Underlay = c.Others[1].Underlay }, "have the same underlay 192.0.2.3"},
		{"a node is not its own other", func(c *Config) { c.Others[0].Name = "rome-1" }, `"rome-1" is empty or there twice`},
		{"a packet goes to one node", func(c *Config) { c.Others[2].Owns = prefixes("10.42.9.7/32") }, "rome-3 and rome-4 both own 10.42.9.7/32"},
		{"a packet goes to one node", func(c *Config) { c.Others[2].Owns = prefixes("10.42.0.0/20") }, "others.owns: 10.42.0.0/20 and 10.42.2.0/24 overlap"},
		{"no address is owned twice", func(c *Config) { c.Node.Owns = addrs("10.42.9.7") }, "node.owns: rome-3 owns 10.42.9.7"},
		{"probes have two ends", func(c *Config) { c.Gateways[0].ProbePeer = netip.Addr{} }, "probes go from 169.254.0.4 to invalid IP"},
		{"two sources of one family", func(c *Config) { c.Node.Addresses = addrs("192.0.2.1", "192.0.2.9") }, "node.addresses: 192.0.2.9"},
		{"views are disjoint", func(c *Config) { c.Routes[3].Prefix = prefixes("10.81.3.0/24")[0] }, "routes: 10.81.0.0/16 and 10.81.3.0/24 overlap"},
		{"host bits say that somebody was mistaken", func(c *Config) { c.Pods[0] = netip.MustParsePrefix("10.42.1.0/16") }, "pods: 10.42.1.0/16"},
		{"a route leads one way", func(c *Config) { c.Routes[3].Gateway = "milan" }, "routes: 10.50.0.0/16 has both a node and a gateway"},
		{"what nobody is gateway of cannot be reached", func(c *Config) { c.Routes[3].Node = "" }, ""},
		{"to a node there is", func(c *Config) { c.Routes[3].Node = "rome-9" }, `node "rome-9" is none of the others`},
		{"to a gateway that is here", func(c *Config) { c.Routes[0].Gateway = "bern" }, `gateway "bern" is not on this node`},
		{"translation keeps the size", func(c *Config) { c.Gateways[0].Views[0].View = prefixes("10.81.0.0/17")[0] }, "gateways: milan: view 10.81.0.0/17 and range 10.42.0.0/16 differ in size"},
		{"translation is not ambiguous", func(c *Config) { c.Gateways[0].Views[1].Real = prefixes("10.42.7.0/24")[0] }, "gateways: milan: ranges: 10.42.0.0/16 and 10.42.7.0/24 overlap"},
		{"a device's name has 15 characters", func(c *Config) { c.Gateways[0].Tunnel = "pelago-wireguard" }, `tunnel "pelago-wireguard"`},
		{"the tunnel is not the veth", func(c *Config) { c.Gateways[0].Tunnel = insideName }, `tunnel "pelago-host"`},
		{"transit is beside pods", func(c *Config) { c.Gateways[0].Transit = prefixes("10.42.5.0/24") }, "gateways: milan: pods and transit: 10.42.0.0/16 and 10.42.5.0/24 overlap"},
		{"an element is one", func(c *Config) { c.Gateways[0].Here = addrs("10.42.1.1", "10.42.1.1") }, "gateways: milan: address 10.42.1.1"},
		{"IPv4 is written as such", func(c *Config) { c.Gateways[0].There = addrs("::ffff:10.42.1.1") }, "gateways: milan: address ::ffff:10.42.1.1"},
		{"a door is at one address", func(c *Config) { c.Gateways[0].Doors = append(c.Gateways[0].Doors, c.Gateways[0].Doors[0]) }, "gateways: milan: a door from 10.43.0.2:443 to 192.0.2.1:6443"},
		{"a door leads somewhere", func(c *Config) { c.Gateways[0].Doors[0].To = netip.AddrPort{} }, "gateways: milan: a door from 10.43.0.2:443 to invalid AddrPort"},
		{"a line", func(c *Config) { c.Gateways[0].Line = someLine() }, ""},
		{"a line is between two ends", func(c *Config) { c.Gateways[1].Line = someLine() }, "gateways: oslo: line: the tunnel's ends have no addresses"},
		{"a line of both families", func(c *Config) { six(c).Views = addrs("10.43.0.9", "fd43::9") }, ""},
		{"a view is of a family that the tunnel's ends have", func(c *Config) { line(c).Views = addrs("fd43::9") }, "gateways: milan: line: its view fd43::9 is of a family in which the tunnel has no ends"},
		{"one view of a family", func(c *Config) { line(c).Views = addrs("10.43.0.9", "10.43.0.10") }, "gateways: milan: line: views: 10.43.0.10 is no address or the second one of its family"},
		{"ends of IPv6 are two", func(c *Config) { six(c); c.Gateways[0].LinePeer = c.Gateways[0].LineAt }, "gateways: milan: lines go from fd46:c73d:1b8d::4 to fd46:c73d:1b8d::4, which are not two"},
		{"and both are of IPv6", func(c *Config) { six(c); c.Gateways[0].LinePeer = netip.MustParseAddr("169.254.0.6") }, "gateways: milan: lines go from fd46:c73d:1b8d::4 to 169.254.0.6, which are not two"},
		{"callers call something", func(c *Config) { line(c).Views = nil }, "gateways: milan: line: there are callers or ports, and no view"},
		{"no pod is an end", func(c *Config) { line(c).Views = addrs("10.81.0.9") }, "gateways: milan: line: its view 10.81.0.9 is one of a pod"},
		{"no door is an end", func(c *Config) { line(c).Views = addrs("10.43.0.2") }, "gateways: milan: line: its view 10.43.0.2 is where a door is"},
		{"an element is one", func(c *Config) { line(c).Callers = addrs("10.42.1.1", "10.42.1.1") }, "gateways: milan: line: caller 10.42.1.1"},
		{"a port is one", func(c *Config) { line(c).Ports = []uint16{443, 443} }, "gateways: milan: line: port 443"},
		{"a port is one", func(c *Config) { line(c).Ports = []uint16{0} }, "gateways: milan: line: port 0"},
		{"a door of a line is at one port", func(c *Config) { l := line(c); l.Doors[0].Port = l.Doors[1].Port }, "gateways: milan: line: a door from port 443"},
		{"a door of a line leads somewhere", func(c *Config) { line(c).Doors[0].To = netip.AddrPort{} }, "gateways: milan: line: a door from port 8443 to invalid AddrPort"},
		{"a path", func(c *Config) { *c = pathed() }, ""},
		{"translation of our own keeps the size", func(c *Config) { path(c).Own[0].View = prefixes("10.84.0.0/17")[0] }, "gateways: path: own: view 10.84.0.0/17 and range 10.42.0.0/16 differ in size"},
		{"and is not ambiguous", func(c *Config) { path(c).Own[1] = View{prefixes("10.84.3.0/24")[0], prefixes("10.99.0.0/24")[0]} }, "gateways: path: own views: 10.84.0.0/16 and 10.84.3.0/24 overlap"},
		{"nor the other way round", func(c *Config) { path(c).Own[1] = View{prefixes("10.99.0.0/24")[0], prefixes("10.42.7.0/24")[0]} }, "gateways: path: own ranges and views: 10.42.0.0/16 and 10.42.7.0/24 overlap"},
		{"what is ours is nobody's view", func(c *Config) { path(c).Views[0].View = prefixes("10.42.0.0/16")[0] }, "gateways: path: own ranges and views: 10.42.0.0/16 and 10.42.0.0/16 overlap"},
		{"a path is for pods alone", func(c *Config) { path(c).External = addrs("10.43.0.1") }, "gateways: path: with own views there is nothing but pods"},
		{"and for those that may", func(c *Config) { path(c).Limited = false }, "gateways: path: with own views it has to be limited"},
		{"nobody is in two parties", func(c *Config) {
			g := &c.Gateways[0]
			g.Parties = append(g.Parties, Party{There: g.Parties[0].There[:1]})
		}, "gateways: milan: parties: 10.42.8.8 is no address or there twice"},
		{"a range is of one party", func(c *Config) {
			g := &c.Gateways[0]
			g.Parties = append(g.Parties, Party{Ranges: prefixes("10.90.7.0/24")})
		}, "gateways: milan: parties: 10.90.0.0/16 and 10.90.7.0/24 overlap"},
		{"a party speaks with addresses", func(c *Config) { c.Gateways[0].Parties[0].With = addrs("::ffff:10.42.1.1") }, "gateways: milan: parties: ::ffff:10.42.1.1 is no address"},
		{"a door of each family may be at one port", func(c *Config) {
			l := six(c)
			l.Doors = append(l.Doors, LineDoor{Port: 443, To: port("[fd19::1]:443")})
		}, ""},
		{"a door of a line is of a family that the tunnel's ends have", func(c *Config) { line(c).Doors[0].To = port("[fd19::1]:443") }, "gateways: milan: line: a door from port 8443 to [fd19::1]:443"},
		{"a peering has one gateway", func(c *Config) { c.Gateways[1].Peering = "milan" }, `peering "milan" is empty or there twice`},
	} {
		config := full()
		c.change(&config)
		err := config.Check()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.reason, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrInvalid)):
			t.Errorf("%s: got %v, want %s", c.reason, err, c.want)
		}
	}
}

// six gives a config a line, and the tunnel ends of IPv6.
func six(c *Config) *Line {
	c.Gateways[0].LineAt, c.Gateways[0].LinePeer = addrs("fd46:c73d:1b8d::4")[0], addrs("fd46:c73d:1b8d::5")[0]
	return line(c)
}

// line gives a config one.
func line(c *Config) *Line {
	c.Gateways[0].Line = someLine()
	return c.Gateways[0].Line
}

// path gives a config a direct path.
func path(c *Config) *Gateway {
	*c = pathed()
	return &c.Gateways[len(c.Gateways)-1]
}

func TestFake(t *testing.T) {
	var f Fake
	if err := f.Set(t.Context(), full()); err != nil {
		t.Error(err)
	}
	bad := full()
	bad.Node.Name = ""
	if err := f.Set(t.Context(), bad); !errors.Is(err, ErrInvalid) {
		t.Errorf("the real one would not take this: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Set(ctx, full()); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	full := errors.New("the kernel is full")
	f.Fail = func(Config) error { return full }
	if err := f.Set(t.Context(), Config{}); !errors.Is(err, full) {
		t.Error(err)
	}
	if got := f.Configs(); len(got) != 1 || got[0].Node.Name != "rome-1" {
		t.Errorf("it remembers %v", got)
	}
}
