package dataplane

import (
	"fmt"
	"net"
	"testing"
)

// TestNumbers holds that each name has a number of its own, and that one that comes or goes
// changes those of few.
func TestNumbers(t *testing.T) {
	const count = 3000
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("node-%d.example.org", i))
	}
	all := numbers(names)
	seen := map[number]string{}
	for name, n := range all {
		if other, taken := seen[n]; taken || n < numberMin || n > numberMax {
			t.Errorf("%s and %s have %d", name, other, n)
		}
		seen[n] = name
	}
	moved, worst := 0, 0
	for gone := 0; gone < count; gone += 30 {
		less := numbers(append(append([]string(nil), names[:gone]...), names[gone+1:]...))
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
	for name, n := range numbers(names) {
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
	others := numbers(nodes)
	seen := map[number]string{}
	for name, n := range others {
		seen[n] = name
	}
	all := numbersBeside(lines, others)
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
		for name, n := range numbersBeside(append(append([]string(nil), lines[:gone]...), lines[gone+1:]...), others) {
			if all[name] != n {
				moved++
			}
		}
	}
	if moved > 30 {
		t.Errorf("without one of 110 lines, %d others changed their number", moved)
	}
	shuffle(lines)
	for name, n := range numbersBeside(lines, others) {
		if all[name] != n {
			t.Errorf("%s is %d or %d, as names are ordered", name, n, all[name])
		}
	}
}

// TestNumberOfNames holds that no next hop is the address at which nodes answer for names.
func TestNumberOfNames(t *testing.T) {
	name := ""
	for i := 0; hashed(numberMin, name, 0) != numberNames; i++ {
		name = fmt.Sprintf("node-%d", i)
	}
	if got := numbers([]string{name})[name].nextHop(true).String(); got == "169.254.77.53" || numberNames.nextHop(true).String() != "169.254.77.53" {
		t.Errorf("%s has %s", name, got)
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
