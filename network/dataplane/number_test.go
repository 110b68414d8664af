package dataplane

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestNumbers holds that each name has a number of its own, and that one that comes or goes
// changes those of few.
func TestNumbers(t *testing.T) {
	const count = 3000
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("node-%d.example.org", i))
	}
	all := numbers(names, nil)
	seen := map[number]string{}
	for name, n := range all {
		if other, taken := seen[n]; taken || n < numberMin || n > numberMax {
			t.Errorf("%s and %s have %d", name, other, n)
		}
		seen[n] = name
	}
	moved, worst := 0, 0
	for gone := 0; gone < count; gone += 30 {
		less := numbers(append(append([]string(nil), names[:gone]...), names[gone+1:]...), nil)
		now := 0
		for name, n := range less {
			if all[name] != n {
				now++
			}
		}
		moved, worst = moved+now, max(worst, now)
	}
	if moved > 20 || worst > 3 {
		t.Errorf("without one of 100 nodes, %d others changed their number, %d at worst", moved, worst)
	}
	shuffle(names)
	for name, n := range numbers(names, nil) {
		if all[name] != n {
			t.Errorf("%s is %d or %d, as names are ordered", name, n, all[name])
		}
	}
}

// TestNumbersBeside holds that what has a route has an address that is nobody else's on the node, and
// changes no number of others.
func TestNumbersBeside(t *testing.T) {
	var nodes, lines []string
	for i := range 3000 {
		nodes = append(nodes, fmt.Sprintf("node-%d.example.org", i))
	}
	for i := range 1000 {
		lines = append(lines, fmt.Sprintf("tenant-%d", i))
	}
	lines = append(lines, nodes[:100]...) // a tenant chooses its name
	others := numbers(nodes, nil)
	seen := map[number]string{}
	for name, n := range others {
		seen[n] = name
	}
	all := numbersBeside(lines, others, nil)
	if len(all) != len(lines) {
		t.Errorf("%d of %d have a number", len(all), len(lines))
	}
	for name, n := range all {
		if other, taken := seen[n]; taken || n < numberRouted || n > numberMax {
			t.Errorf("%s has %s, as %s", name, n.nextHop(true), other)
		}
		seen[n] = name
	}
	moved := 0
	for gone := 0; gone < len(lines); gone += 10 {
		less := numbersBeside(append(append([]string(nil), lines[:gone]...), lines[gone+1:]...), others, nil)
		for i, name := range lines {
			switch {
			case i == gone || all[name] == less[name]:
			case i < gone:
				t.Errorf("without %s, %s changed its number, which was there before", lines[gone], name)
			default:
				moved++
			}
		}
	}
	if moved > 30 {
		t.Errorf("without one of 110 lines, %d others changed their number", moved)
	}
}

// TestNumberOfOlderLine holds that no peering moves the address of an older one's line, whatever its name,
// and that those of one age are in the order of their names.
func TestNumberOfOlderLine(t *testing.T) {
	began := time.Unix(1000, 0)
	at := func(name string, since time.Time) Gateway {
		return Gateway{Peering: name, Since: since, Line: &Line{Doors: []LineDoor{{Port: 443, To: port("192.0.2.1:443")}}}}
	}
	ends := func(all ...Gateway) map[string]netip.Addr {
		got := map[string]netip.Addr{}
		for of, at := range lineEnds(Config{Gateways: all}, nil) {
			got[of.peering] = at
		}
		return got
	}
	const victim = "tenant-naples"
	want := ends(at(victim, began))[victim]
	var hostile []string // whose names want the victim's, before it in the alphabet and after it
	for i := 0; len(hostile) < 6; i++ {
		name := fmt.Sprintf("tenant-%c%d", "az"[len(hostile)%2], i)
		if ends(at(name, began))[name] == want {
			hostile = append(hostile, name)
		}
	}
	var all []Gateway
	for _, name := range hostile {
		all = append(all, at(name, began.Add(time.Second)))
	}
	all = append(all, at(victim, began.In(time.FixedZone("elsewhere", 3600))))
	for range 20 {
		shuffle(all)
		got := ends(all...)
		if got[victim] != want {
			t.Fatalf("newer ones move %s from %s to %s", victim, want, got[victim])
		}
		if seen := slices.Compact(slices.SortedFunc(maps.Values(got), netip.Addr.Compare)); len(seen) != len(all) {
			t.Fatalf("%d lines have %d addresses", len(all), len(seen))
		}
	}
	for _, name := range hostile {
		first, both := min(name, victim), []Gateway{at(victim, began), at(name, began)}
		for range 2 {
			slices.Reverse(both)
			if got := ends(both...); got[first] != want {
				t.Errorf("of %s and %s, as old, %s has %s", victim, name, first, got[first])
			}
		}
		if got := ends(at(victim, began), at(name, began.Add(-time.Second))); got[name] != want {
			t.Errorf("%s is older than %s and has %s", name, victim, got[name])
		}
	}
}

// TestNumberOfNames holds that no next hop is the address at which nodes answer for names.
func TestNumberOfNames(t *testing.T) {
	name := ""
	for i := 0; hashed(numberMin, name, 0) != numberNames; i++ {
		name = fmt.Sprintf("node-%d", i)
	}
	if got := numbers([]string{name}, nil)[name].nextHop(true).String(); got == "169.254.77.53" || numberNames.nextHop(true).String() != "169.254.77.53" {
		t.Errorf("%s has %s", name, got)
	}
}

// TestNumberOfOwn holds that no next hop, and no line's end, is an address that the node itself has.
func TestNumberOfOwn(t *testing.T) {
	for _, own := range []string{"169.254.20.10/32", "169.254.200.1/32"} {
		t.Run(own, func(t *testing.T) {
			kernel, options, config := alone(t)
			file, err := netns.Copy(options.Host)
			if err != nil {
				t.Fatal(err)
			}
			host := netnstest.OpenPlace(t, "host", file)
			has := netip.MustParsePrefix(own)
			taken, ok := numberOf(has.Addr())
			if !ok {
				t.Fatalf("no number makes %s", has)
			}
			named := func(first number) (name string) { // the name that would get it
				for i := 0; hashed(first, name, 0) != taken; i++ {
					name = fmt.Sprintf("node-%d", i)
				}
				return name
			}
			node := named(numberMin)
			config.Others = append(config.Others, Other{Name: node, Underlay: netip.MustParseAddr("192.0.2.9"), Owns: prefixes("10.42.9.0/24")})
			config.Routes = []Route{{Prefix: viewRange(70, true), Node: node}}
			peering := "p"
			if taken >= numberRouted {
				peering = named(numberRouted)
			}
			config.Gateways = []Gateway{{
				Peering: peering, Tunnel: tunnelName, MTU: tunnelMTU, Views: []View{{View: viewRange(71, true), Real: podRange(true)}},
				ProbeAt: addrs("169.254.0.5")[0], ProbePeer: addrs("169.254.0.4")[0],
				Line: &Line{Doors: []LineDoor{{Port: 443, To: port("192.0.2.1:443")}}},
			}}
			before := numbers(namesOf(config.Others), nil)
			if before[node] != taken {
				t.Fatalf("%s has %s even so", node, before[node].nextHop(true))
			}
			host.Address("lo", own)
			for range 2 {
				if err := kernel.Set(t.Context(), config); err != nil {
					t.Fatal(err)
				}
			}
			for name, n := range numbers(namesOf(config.Others), kernel.own) {
				if n == taken || name != node && n != before[name] {
					t.Errorf("%s has %s, and had %s", name, n.nextHop(true), before[name].nextHop(true))
				}
			}
			list, err := host.Kernel.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{Table: viewTable}, netlink.RT_FILTER_TABLE)
			host.Must(err)
			for _, r := range list {
				if prefixOf(r.Dst) == single(has.Addr()) {
					t.Errorf("there is a route to %s, which is the node's", has)
				}
			}

			// One that goes is nobody's later, as it may come again.
			writes := kernel.writes.Load()
			host.Must(host.Kernel.AddrDel(host.Link("lo"), &netlink.Addr{IPNet: network(has)}))
			if err := kernel.Set(t.Context(), config); err != nil || kernel.writes.Load() != writes {
				t.Errorf("when the address is gone: %v, %d writes", err, kernel.writes.Load()-writes)
			}
		})
	}
}

func TestMadeOfNumbers(t *testing.T) {
	n := number(0xabcd)
	if got := n.nextHop(true).String(); got != "169.254.171.205" {
		t.Error(got)
	}
	if got := n.nextHop(false).String(); got != "fe80::abcd" {
		t.Error(got)
	}
	if got := n.mark(); got != 0x70eab0cd || got&0xf00 != 0 || got&markMask != markBits {
		t.Errorf("%#x", got)
	}
	seen := map[uint32]bool{}
	for n := numberMin; n <= numberMax; n++ {
		mark := number(n).mark()
		if seen[mark] || mark&markMask != markBits || !number(n).nextHop(true).IsLinkLocalUnicast() {
			t.Fatalf("%d has mark %#x and next hop %s", n, mark, number(n).nextHop(true))
		}
		seen[mark] = true
	}
	h, err := net.ParseMAC(hardware("a"))
	if err != nil || h[0]&1 != 0 || h[0]&2 == 0 || hardware("a") == hardware("b") {
		t.Errorf("%s %v", h, err)
	}
	if d := Device("a peering with a very long name"); len(d) != deviceNameMax || !ourDevice(d, "veth") {
		t.Error(d)
	}
}

func TestOurDevice(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		want       bool
	}{
		{vxlanName, "vxlan", true},
		{vxlanName, "bridge", false},
		{Device("milan"), "veth", true},
		{Device("milan"), "wireguard", false},
		{"pelago-wg0", "veth", false},
		{"pelago-deadbeeg", "veth", false},
		{"eth0", "veth", false},
	} {
		if ourDevice(c.name, c.kind) != c.want {
			t.Errorf("%s %s", c.kind, c.name)
		}
	}
}
