package dataplane

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// lending is full with callers at one gateway, where some are shut, and something open at another.
func lending() Config {
	c := full()
	g := &c.Gateways[0]
	g.FromHere, g.Callers, g.ShutHere = true, addrs("10.42.3.1", "10.42.3.2", "fd42::31"), addrs("10.42.3.9")
	g.Doors, g.Mapped, g.Guard, g.Parties, g.Transit = nil, nil, nil, nil, nil
	o := &c.Gateways[1]
	o.Limited, o.FromThere, o.Here, o.There, o.Open = true, true, addrs("10.42.2.7"), addrs("10.90.8.8"), addrs("10.42.2.7", "10.42.4.4")
	return c
}

func TestCallersText(t *testing.T) { golden(t, "testdata/callers.txt", lending()) }

// TestCallersStructure holds that rules do not grow with callers, nor with what is open.
func TestCallersStructure(t *testing.T) {
	less, more := lending(), lending()
	more.Gateways[0].Callers = append(more.Gateways[0].Callers, addrs("10.42.3.3")...)
	more.Gateways[1].Open = append(more.Gateways[1].Open, addrs("10.42.4.5")...)
	for i := range less.Gateways {
		a, b := gatewayTable(less, less.Gateways[i]).structure(), gatewayTable(more, more.Gateways[i]).structure()
		if len(a) != len(b) {
			t.Errorf("%s: %d lines have become %d", less.Gateways[i].Peering, len(a), len(b))
		}
		if got := widthOf(less.Gateways[i], a); got != widthLimited {
			t.Errorf("%s: its width is %d", less.Gateways[i].Peering, got)
		}
	}
}

// TestLent says which connections go on as those of callers when a gateway lets less pass.
func TestLent(t *testing.T) {
	c := lending()
	echo := func(f *netlink.ConntrackFlow) *netlink.ConntrackFlow {
		f.Forward.Protocol, f.Reverse.Protocol = unix.IPPROTO_ICMP, unix.IPPROTO_ICMP
		return f
	}
	flow := func(from, to, reply string) *netlink.ConntrackFlow {
		f := &netlink.ConntrackFlow{}
		f.Forward = netlink.IPTuple{SrcIP: net.ParseIP(from), DstIP: net.ParseIP(to), SrcPort: 40000, DstPort: 80, Protocol: unix.IPPROTO_TCP}
		f.Reverse = netlink.IPTuple{SrcIP: net.ParseIP(reply), DstIP: net.ParseIP(from), SrcPort: 80, DstPort: 40000, Protocol: unix.IPPROTO_TCP}
		return f
	}
	for _, w := range []struct {
		reason  string
		gateway int
		change  func(*Gateway)
		flow    *netlink.ConntrackFlow
		want    bool
	}{
		{"a caller calls what is there", 0, nil, flow("10.42.3.1", "10.81.8.8", "10.42.8.8"), true},
		{"what has no ports begins anew", 0, nil, echo(flow("10.42.3.1", "10.81.8.8", "10.42.8.8")), false},
		{"and nothing else", 0, nil, flow("10.42.3.1", "10.81.8.9", "10.42.8.9"), false},
		{"a pod of the peer's is none", 0, nil, flow("10.42.2.7", "10.81.8.8", "10.42.8.8"), false},
		{"nor is another pod", 0, nil, flow("10.42.3.7", "10.81.8.8", "10.42.8.8"), false},
		{"a caller is not called", 0, nil, flow("10.42.8.8", "10.42.3.1", "10.42.3.1"), false},
		{"a caller that is shut", 0, func(g *Gateway) { g.ShutHere = g.Callers }, flow("10.42.3.1", "10.81.8.8", "10.42.8.8"), false},
		{"nobody is where all may", 0, func(g *Gateway) { g.Limited = false }, flow("10.42.3.1", "10.81.8.8", "10.42.8.8"), false},
		{"nor where nothing passes", 0, func(g *Gateway) { g.Closed = true }, flow("10.42.3.1", "10.81.8.8", "10.42.8.8"), false},
		{"whoever calls what is open", 1, nil, flow("10.90.1.1", "10.42.4.4", "10.42.4.4"), true},
		{"but not who may anyway", 1, nil, flow("10.90.8.8", "10.42.2.7", "10.42.2.7"), false},
		{"what is not open", 1, nil, flow("10.90.1.1", "10.42.4.5", "10.42.4.5"), false},
		{"what is open does not call", 1, nil, flow("10.42.4.4", "10.90.1.1", "10.90.1.1"), false},
	} {
		g := c.Gateways[w.gateway]
		if w.change != nil {
			w.change(&g)
		}
		if got := newPassage(g).lent(flowOf(w.flow, g.Views)); got != w.want {
			t.Errorf("%s: goes on is %t", w.reason, got)
		}
	}
}

func TestCheckCallers(t *testing.T) {
	for _, w := range []struct {
		reason string
		change func(*Gateway)
		right  bool
	}{
		{"callers of a gateway that is limited", func(*Gateway) {}, true},
		{"all may, and so need not be callers", func(g *Gateway) { g.Limited = false }, false},
		{"nothing passes", func(g *Gateway) { g.Closed = true }, false},
		{"a caller may anyway", func(g *Gateway) { g.Callers = append(g.Callers, g.Here[0]) }, false},
		{"one is there twice", func(g *Gateway) { g.Callers = append(g.Callers, g.Callers[0]) }, false},
		{"what is open may be what a Service behind which it is has, too", func(g *Gateway) { g.Callers, g.Open = nil, g.Here }, true},
	} {
		c := lending()
		w.change(&c.Gateways[0])
		if err := c.Check(); (err == nil) != w.right {
			t.Errorf("%s: %v", w.reason, err)
		}
	}
}
