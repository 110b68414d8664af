package dataplane

import (
	"flag"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// full is a node with something of everything.
func full() Config {
	view := func(v, r string) View { return View{netip.MustParsePrefix(v), netip.MustParsePrefix(r)} }
	return Config{
		Node: Node{
			Name: "rome-1", Underlay: addrs("192.0.2.1")[0], Addresses: addrs("192.0.2.1", "2001:db8::1"),
			Owns: addrs("10.42.2.77"),
			VNI:  7077, Port: 4790, MTU: 1450,
		},
		Others: []Other{
			{Name: "rome-2", Underlay: addrs("192.0.2.2")[0], Owns: prefixes("10.42.2.0/24", "192.0.2.2/32", "fd42:0:0:2::/64")},
			{Name: "rome-3", Underlay: addrs("192.0.2.3")[0], Owns: prefixes("10.42.9.7/32", "10.42.9.8/32")},
			{Name: "rome-4", Underlay: addrs("192.0.2.4")[0]},
		},
		Pods: prefixes("10.42.0.0/16", "fd42::/48"),
		Routes: []Route{
			{Prefix: prefixes("10.81.0.0/16")[0], Gateway: "milan", MTU: 1400},
			{Prefix: prefixes("10.83.0.0/24")[0], Gateway: "milan", MTU: 1400},
			{Prefix: prefixes("fd81::/48")[0], Gateway: "milan"},
			{Prefix: prefixes("10.50.0.0/16")[0], Node: "rome-2"},
			{Prefix: prefixes("10.51.0.0/16")[0]},
		},
		Gateways: []Gateway{
			{
				Peering: "milan", Tunnel: "wg-milan", MTU: 1400, External: addrs("10.43.0.1", "fd43::1"), Limited: true,
				Port: 7100, Known: addrs("198.51.100.7", "2001:db8::7"), Begin: 5000,
				Probe: 7001, ProbeAt: addrs("169.254.0.4")[0], ProbePeer: addrs("169.254.0.5")[0],
				Transit: prefixes("10.90.0.0/16"),
				Views:   []View{view("10.81.0.0/16", "10.42.0.0/16"), view("10.83.0.0/24", "10.43.0.0/24"), view("fd81::/48", "fd42::/48")},
				Doors: []Door{{At: port("10.43.0.2:443"), To: port("192.0.2.1:6443"), From: addrs("10.42.8.9")},
					{At: port("[fd43::2]:443"), To: port("[fd19::1]:6443")},
					{At: port("10.43.0.5:53"), To: port("192.0.2.50:53"), UDP: true, Most: 9, From: addrs("10.42.8.9")}},
				Mapped: prefixes("10.43.0.4/30"),
				Here:   addrs("10.42.2.7", "10.42.1.3", "fd42::7"), There: addrs("10.42.8.8"),
				Guard:   someGuard(),
				Parties: []Party{{There: addrs("10.42.8.8", "fd42::8"), Ranges: prefixes("10.90.0.0/16"), With: addrs("10.42.2.7", "10.90.1.1")}},
			},
			{Peering: "oslo", Tunnel: "wg-oslo", MTU: 1400, Views: []View{view("10.90.0.0/16", "10.90.0.0/16")}},
		},
	}
}

// someGuard has an entry of each kind.
func someGuard() *Guard {
	return &Guard{
		HereIn: addrs("10.42.2.7", "10.42.1.3"), HereOut: addrs("10.42.1.3"), ThereIn: addrs("10.42.8.8", "fd42::8"),
		Entries: []Entry{
			{Name: "web-in", Pods: addrs("10.42.2.7", "fd42::7"), Peers: prefixes("10.42.8.8/32", "10.43.0.0/25", "fd42::8/128"), Protocol: 6, Ports: []Ports{{8080, 8090}, {443, 443}}},
			{Name: "all-out", Out: true, Pods: addrs("10.42.1.3"), Peers: prefixes("0.0.0.0/0", "::/0")},
			{Name: "named-in", There: true, Peers: prefixes("10.42.0.0/16"), Protocol: 6, Named: true, Pairs: []netip.AddrPort{port("10.42.8.8:8080"), port("[fd42::8]:8081")}},
			{Name: "named-out", Out: true, Pods: addrs("10.42.1.3"), Protocol: 17, Named: true, Pairs: []netip.AddrPort{port("10.42.8.8:53")}},
			{Name: "udp", There: true, Out: true, Pods: addrs("10.42.8.8"), Peers: prefixes("10.42.1.3/32"), Protocol: 17},
		},
		Free: []netip.AddrPort{port("10.43.0.2:443")},
	}
}

// someLine has both sides, though each end has one.
func someLine() *Line {
	return &Line{Views: addrs("10.43.0.9"), Callers: addrs("10.42.2.9", "10.42.1.9"), Ports: []uint16{8443, 443},
		Doors: []LineDoor{{Port: 8443, To: port("10.42.1.8:8443"), PerSecond: 5, Burst: 20}, {Port: 443, To: port("192.0.2.1:6443")}}}
}

// lined is full with lines: of a gateway that is limited and has doors and a Guard, of one that is closed,
// and of one with nothing else.
func lined() Config {
	c := full()
	c.Routes = append(c.Routes, Route{Prefix: prefixes("10.43.0.9/32")[0], Gateway: "milan", MTU: 1400})
	c.Gateways[0].Line = someLine()
	bern := Gateway{Peering: "bern", Tunnel: "wg-bern", MTU: 1400, ProbeAt: addrs("169.254.0.5")[0], ProbePeer: addrs("169.254.0.4")[0], Line: someLine()}
	bern.Line.Views, bern.Line.Callers, bern.Line.Ports = nil, nil, nil
	genoa := bern
	genoa.Peering, genoa.Tunnel, genoa.Limited, genoa.Closed = "genoa", "wg-genoa", true, true
	c.Gateways = append(c.Gateways, bern, genoa)
	return c
}

// pathed is full with a direct path.
func pathed() Config {
	c := full()
	view := func(v, r string) View { return View{netip.MustParsePrefix(v), netip.MustParsePrefix(r)} }
	c.Routes = append(c.Routes, Route{Prefix: prefixes("10.91.0.0/16")[0], Gateway: "path", MTU: 1400})
	c.Gateways = append(c.Gateways, Gateway{
		Peering: "path", Tunnel: "wg-path", MTU: 1400, Limited: true, FromHere: true, Probe: 7001, ProbeAt: addrs("169.254.0.5")[0], ProbePeer: addrs("169.254.0.4")[0],
		Views: []View{view("10.91.0.0/16", "10.85.0.0/16"), view("fd91::/48", "fd85::/48")},
		Own:   []View{view("10.84.0.0/16", "10.42.0.0/16"), view("fd42::/48", "fd42::/48")},
		Here:  addrs("10.42.2.7", "fd42::7"), There: addrs("10.85.8.8"), ShutHere: addrs("10.42.2.8"),
	})
	return c
}

// sixLined is full with lines of both families: of one that calls, of one that has doors, and of a closed
// one that has a door of IPv6 alone.
func sixLined() Config {
	c := lined()
	c.Routes = append(c.Routes, Route{Prefix: prefixes("fd43::9/128")[0], Gateway: "milan", MTU: 1400})
	for i := range c.Gateways {
		g := &c.Gateways[i]
		if g.Line == nil {
			continue
		}
		l := *g.Line
		g.Line, g.LineAt, g.LinePeer = &l, addrs("fd46:c73d:1b8d::5")[0], addrs("fd46:c73d:1b8d::4")[0]
		l.Doors = append(slices.Clone(l.Doors), LineDoor{Port: 443, To: port("[2001:db8::1]:6443"), PerSecond: 50, Burst: 200})
	}
	milan, genoa := c.Gateways[0].Line, c.Gateways[len(c.Gateways)-1].Line
	milan.Views, milan.Callers = append(milan.Views, addrs("fd43::9")...), append(milan.Callers, addrs("fd42::9")...)
	genoa.Doors = genoa.Doors[2:]
	return c
}

func port(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }

func TestText(t *testing.T) {
	for file, config := range map[string]Config{"testdata/full.txt": full(), "testdata/line.txt": lined(), "testdata/line-six.txt": sixLined(), "testdata/path.txt": pathed()} {
		golden(t, file, config)
	}
	if text := (Config{}).String(); text != "" {
		t.Errorf("nothing wanted is %q", text)
	}
}

func golden(t *testing.T, file string, c Config) {
	t.Helper()
	got := c.String()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got), -update writes it anew:\n%s", file, d)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}

func TestOrderHasNoMeaning(t *testing.T) {
	all := func() Config {
		c, path := sixLined(), pathed()
		c.Routes, c.Gateways = append(c.Routes, path.Routes[len(path.Routes)-1]), append(c.Gateways, path.Gateways[len(path.Gateways)-1])
		return c
	}
	want := all().String()
	for range 20 {
		c := all()
		shuffle(c.Others)
		shuffle(c.Pods)
		shuffle(c.Routes)
		shuffle(c.Gateways)
		for i := range c.Others {
			shuffle(c.Others[i].Owns)
		}
		for i := range c.Gateways {
			shuffle(c.Gateways[i].Views)
			shuffle(c.Gateways[i].Own)
			shuffle(c.Gateways[i].Here)
			shuffle(c.Gateways[i].External)
			if l := c.Gateways[i].Line; l != nil {
				shuffle(l.Views)
				shuffle(l.Callers)
				shuffle(l.Ports)
				shuffle(l.Doors)
			}
			if g := c.Gateways[i].Guard; g != nil {
				shuffle(g.HereIn)
				shuffle(g.Entries)
				for i := range g.Entries {
					shuffle(g.Entries[i].Pods)
					shuffle(g.Entries[i].Peers)
					shuffle(g.Entries[i].Ports)
				}
			}
		}
		if d := cmp.Diff(want, c.String()); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	}
}

func shuffle[T any](list []T) {
	rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
}

// TestStructureWithoutElements holds that addresses, views and pods of others are no
// structure: rules and chains do not grow with them.
func TestStructureWithoutElements(t *testing.T) {
	less, more := full(), full()
	more.Others[0].Owns = append(more.Others[0].Owns, prefixes("10.42.77.0/24", "10.42.9.9/32")...)
	more.Gateways[0].Here = append(more.Gateways[0].Here, addrs("10.42.2.8")...)
	more.Gateways[0].There = append(more.Gateways[0].There, addrs("10.42.8.9")...)
	guard := more.Gateways[0].Guard
	guard.HereIn, guard.ThereOut = append(guard.HereIn, addrs("10.42.2.8")...), addrs("10.42.8.9")
	guard.Entries[0].Pods = append(guard.Entries[0].Pods, addrs("10.42.2.8")...)
	guard.Entries[0].Peers = prefixes("10.0.0.0/8")
	guard.Entries[2].Pairs = nil
	for _, pair := range [][2]*table{
		{hostState(less).table, hostState(more).table},
		{gatewayState(less, less.Gateways[0], true).table, gatewayState(more, more.Gateways[0], true).table},
	} {
		if d := cmp.Diff(pair[0].structure(), pair[1].structure()); d != "" {
			t.Errorf("(-less +more):\n%s", d)
		}
	}
	with, without := len(hostState(less).routes), len(hostState(more).routes)
	if with != without {
		t.Errorf("%d routes have become %d", with, without)
	}
}

func TestWithoutIPv6(t *testing.T) {
	c := full()
	c.Pods, c.Routes = prefixes("10.42.0.0/16"), c.Routes[:1]
	for _, s := range []state{hostState(c), gatewayState(c, c.Gateways[0], true)} {
		var b strings.Builder
		s.table = nil // empty sets and their rules harm nobody
		s.write(&b)
		for _, bad := range []string{"ipv6", "fe80", "-6 "} {
			if strings.Contains(b.String(), bad) {
				t.Errorf("%s is in:\n%s", bad, b.String())
			}
		}
	}
}
