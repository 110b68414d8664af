package dataplane

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestKeeps says of connections which go on when a gateway lets less pass.
func TestKeeps(t *testing.T) {
	g := full().Gateways[0] // rome's to milan: views 10.81 of 10.42, door 10.43.0.2
	g.FromThere, g.Transit = true, nil
	g.LineAt, g.LinePeer = addrs("fd46:c73d:1b8d::4")[0], addrs("fd46:c73d:1b8d::5")[0]
	here, there, other := "10.42.2.7", "10.42.8.8", "10.42.77.7"
	flow := func(proto uint8, from, to string, port uint16, reply string) *netlink.ConntrackFlow {
		f := &netlink.ConntrackFlow{}
		f.Forward = netlink.IPTuple{SrcIP: net.ParseIP(from), DstIP: net.ParseIP(to), SrcPort: 40000, DstPort: port, Protocol: proto}
		f.Reverse = netlink.IPTuple{SrcIP: net.ParseIP(reply), DstIP: net.ParseIP(from), SrcPort: port, DstPort: 40000, Protocol: proto}
		return f
	}
	out := func(from, last string) *netlink.ConntrackFlow { // of rome, to a pod of milan by its view
		return flow(unix.IPPROTO_TCP, from, "10.81."+last, 80, "10.42."+last)
	}
	calling := func(g *Gateway) {
		g.Line = &Line{Views: addrs("10.43.0.9", "fd43::9"), Callers: addrs(here, "fd42::7"), Ports: []uint16{443}}
	}
	answering := func(g *Gateway) { // where answers come from has the door's port
		g.ProbeAt, g.ProbePeer = g.ProbePeer, g.ProbeAt
		g.LineAt, g.LinePeer = g.LinePeer, g.LineAt
		g.Line = &Line{Doors: []LineDoor{{Port: 443, To: port("192.0.2.1:443"), PerSecond: 50, Burst: 200}, {Port: 443, To: port("[2001:db8::1]:443")}}}
	}
	in := func(from, to string) *netlink.ConntrackFlow { return flow(unix.IPPROTO_TCP, from, to, 80, to) }
	for _, c := range []struct {
		reason   string
		gateway  func(*Gateway)
		flow     *netlink.ConntrackFlow
		narrowed bool
		want     bool
	}{
		{"any pod calls who may be called", nil, out(other, "8.8"), true, true},
		{"any node does", nil, out("192.0.2.9", "8.8"), true, true},
		{"nobody calls another one", nil, out(other, "8.9"), true, false},
		{"unless it has not become narrower: sets alone end nothing", nil, out(other, "8.9"), false, true},
		{"who may calls who may be called", nil, in(there, here), true, true},
		{"another one does not", nil, in("10.42.8.9", here), true, false},
		{"who may does not call another one, whose address is also one of theirs", nil, in(there, there), true, false},
		{"at a provider nobody begins but who is hosted", func(g *Gateway) { g.FromHere = true }, out(other, "8.8"), true, false},
		{"and who is hosted does", func(g *Gateway) { g.FromHere = true }, out(here, "8.8"), true, true},
		{"a datagram", nil, flow(unix.IPPROTO_UDP, other, "10.81.8.9", 53, "10.42.8.9"), true, false},
		{"all may", func(g *Gateway) { g.Limited = false }, out(other, "8.9"), true, true},
		{"all may but what goes on to other peers", func(g *Gateway) { g.Limited, g.Transit = false, prefixes("10.90.0.0/16") }, in("10.42.8.9", "10.90.0.1"), true, false},
		// What is closed.
		{"nothing of what may otherwise", func(g *Gateway) { g.Closed = true }, in(there, here), true, false},
		{"nor the other way round", func(g *Gateway) { g.Closed = true }, out(here, "8.8"), true, false},
		{"but through a door", func(g *Gateway) { g.Closed = true }, flow(unix.IPPROTO_TCP, "10.42.8.9", "10.43.0.2", 443, "192.0.2.1"), true, true},
		{"at its port", func(g *Gateway) { g.Closed = true }, flow(unix.IPPROTO_TCP, "10.42.8.9", "10.43.0.2", 80, "192.0.2.1"), true, false},
		{"and over TCP", func(g *Gateway) { g.Closed = true }, flow(unix.IPPROTO_UDP, "10.42.8.9", "10.43.0.2", 443, "192.0.2.1"), true, false},
		{"and through a door of the peer's", func(g *Gateway) { g.Closed, g.Calls = true, []netip.AddrPort{port("10.43.0.2:443")} },
			flow(unix.IPPROTO_TCP, here, "10.83.0.2", 443, "10.43.0.2"), true, true},
		{"for those who may", func(g *Gateway) { g.Closed, g.Calls = true, []netip.AddrPort{port("10.43.0.2:443")} },
			flow(unix.IPPROTO_TCP, other, "10.83.0.2", 443, "10.43.0.2"), true, false},
		{"and probes", func(g *Gateway) { g.Closed = true }, flow(unix.IPPROTO_UDP, "169.254.0.5", "169.254.0.4", 7001, "169.254.0.4"), true, true},
		// Who is shut.
		{"one here calls nobody", func(g *Gateway) { g.ShutHere = addrs(here) }, out(here, "8.8"), false, false},
		{"and is called by nobody", func(g *Gateway) { g.ShutHere = addrs(here) }, in(there, here), false, false},
		{"one there is called by nobody", func(g *Gateway) { g.ShutThere = addrs(there) }, out(other, "8.8"), false, false},
		{"and calls nobody", func(g *Gateway) { g.ShutThere = addrs(there) }, in(there, here), false, false},
		{"one here is not one there of the same address", func(g *Gateway) { g.ShutHere = addrs(there) }, in(there, here), false, true},
		{"one there calls through doors", func(g *Gateway) { g.ShutThere = addrs(there) }, flow(unix.IPPROTO_TCP, there, "10.43.0.2", 443, "192.0.2.1"), false, true},
		// Of the line.
		{"a caller", calling, flow(unix.IPPROTO_TCP, here, "10.43.0.9", 443, "169.254.0.5"), true, true},
		{"a caller, if it has not become narrower", calling, flow(unix.IPPROTO_TCP, here, "10.43.0.9", 443, "169.254.0.5"), false, true},
		{"who is no caller any more, even so", calling, flow(unix.IPPROTO_TCP, other, "10.43.0.9", 443, "169.254.0.5"), false, false},
		{"a caller at another port", calling, flow(unix.IPPROTO_TCP, here, "10.43.0.9", 80, "169.254.0.5"), false, false},
		{"a caller by an address of before", calling, flow(unix.IPPROTO_TCP, here, "10.43.0.8", 443, "169.254.0.5"), false, false},
		{"a caller of a line that is no more", nil, flow(unix.IPPROTO_TCP, here, "10.43.0.9", 443, "169.254.0.5"), false, false},
		{"a caller that is shut", func(g *Gateway) { calling(g); g.ShutHere = addrs(here) }, flow(unix.IPPROTO_TCP, here, "10.43.0.9", 443, "169.254.0.5"), true, true},
		{"probes of its own", calling, flow(unix.IPPROTO_UDP, "169.254.0.4", "169.254.0.5", 7001, "169.254.0.5"), true, true},
		{"a door", answering, flow(unix.IPPROTO_TCP, "169.254.0.4", "169.254.0.5", 443, "192.0.2.1"), true, true},
		{"a door of another port", answering, flow(unix.IPPROTO_TCP, "169.254.0.4", "169.254.0.5", 444, "192.0.2.1"), false, false},
		{"a door that stands for another one now", answering, flow(unix.IPPROTO_TCP, "169.254.0.4", "169.254.0.5", 443, "192.0.2.9"), false, false},
		{"probes of the other end", answering, flow(unix.IPPROTO_UDP, "169.254.0.4", "169.254.0.5", 7001, "169.254.0.5"), true, true},
		{"a caller, of IPv6", calling, flow(unix.IPPROTO_TCP, "fd42::7", "fd43::9", 443, "fd46:c73d:1b8d::5"), true, true},
		{"who is no caller, of IPv6", calling, flow(unix.IPPROTO_TCP, "fd42::8", "fd43::9", 443, "fd46:c73d:1b8d::5"), false, false},
		{"a caller of a line that is no more, of IPv6", nil, flow(unix.IPPROTO_TCP, "fd42::7", "fd43::9", 443, "fd46:c73d:1b8d::5"), false, false},
		{"a door, of IPv6", answering, flow(unix.IPPROTO_TCP, "fd46:c73d:1b8d::4", "fd46:c73d:1b8d::5", 443, "2001:db8::1"), true, true},
		{"a door that stands for another one now, of IPv6", answering, flow(unix.IPPROTO_TCP, "fd46:c73d:1b8d::4", "fd46:c73d:1b8d::5", 443, "2001:db8::2"), false, false},
		{"IPv6", nil, flow(unix.IPPROTO_TCP, "fd42::7", "fd81::8", 80, "fd42::8"), true, false},
	} {
		mine := g
		if c.gateway != nil {
			c.gateway(&mine)
		}
		if got := newPassage(mine).keeps(flowOf(c.flow, mine.Views), c.narrowed); got != c.want {
			t.Errorf("%s: goes on is %t", c.reason, got)
		}
	}
}

// TestEndedByNext has a process narrow a gateway and end before it has ended connections: the next one does.
func TestEndedByNext(t *testing.T) {
	w := newWorld(t)
	limited := false
	w.milan.change = func(c *Config) {
		for i := range c.Gateways {
			c.Gateways[i].Limited = limited
		}
	}
	w.start()
	node, c := w.milan.nodes[0], w.milan.config
	conn, _, err := w.rome.nodes[0].Pod.Dial(podAt(w.rome.view, 1, 5, true), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	exchange(t, conn, []byte("before"))
	limited = true
	g := c(0).Gateways[0]
	if _, err := node.kernel.writePolicy(node.kernel.gateways["other"], g, gatewayState(c(0), g, true).table); err != nil {
		t.Fatal(err)
	}
	exchange(t, conn, []byte("not ended yet"))
	for _, next := range []struct {
		reason string
		writes bool
	}{{"what was begun is ended", true}, {"nothing is left to be done", false}} {
		kernel, err := New(Options{Host: node.File, Namespaces: node.held})
		if err != nil {
			t.Fatal(err)
		}
		defer kernel.Close()
		if err := kernel.Set(t.Context(), c(0)); err != nil {
			t.Fatal(err)
		}
		if writes := kernel.writes.Load(); writes > 0 != next.writes {
			t.Errorf("%s: %d writes", next.reason, writes)
		}
	}
	if err := conn.SetDeadline(time.Now().Add(silence)); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Write([]byte("after"))
	if err == nil {
		_, err = conn.Read(make([]byte, 16))
	}
	if err == nil {
		t.Error("what was begun before goes on")
	}
}

// TestWidth tells how wide a gateway is by its table alone, as a new process does.
func TestWidth(t *testing.T) {
	c := full()
	for _, w := range []struct {
		reason string
		change func(*Gateway)
		want   width
	}{
		{"limited", func(*Gateway) {}, widthLimited},
		{"limited, and some are shut", func(g *Gateway) { g.ShutHere = addrs("10.42.2.7") }, widthLimited},
		{"full", func(g *Gateway) { g.Limited = false }, widthFull},
		{"full of a provider", func(g *Gateway) { g.Limited, g.FromHere = false, true }, widthFull},
		{"full, and some are shut", func(g *Gateway) { g.Limited, g.ShutThere = false, addrs("10.42.8.8") }, widthFull},
		{"closed", func(g *Gateway) { g.Closed = true }, widthNone},
	} {
		g := c.Gateways[0]
		w.change(&g)
		if got := widthOf(g, gatewayTable(c, g).structure()); got != w.want {
			t.Errorf("%s: %d, want %d", w.reason, got, w.want)
		}
	}
	if got := widthOf(c.Gateways[0], nil); got != widthNone {
		t.Errorf("no table: %d", got)
	}
}

// TestFullWithoutPods holds that a gateway that lets all pods take part has no set that grows with them.
func TestFullWithoutPods(t *testing.T) {
	c := full()
	g := c.Gateways[0]
	g.Limited, g.Here, g.There, g.Doors, g.Transit, g.Mapped, g.Guard, g.Parties = false, nil, nil, nil, nil, nil, nil, nil
	elements := 0
	for _, s := range gatewayTable(c, g).sets {
		elements += len(s.elements)
	}
	if want := len(c.Pods) + 2*len(g.Views); elements != want {
		t.Errorf("%d elements, want %d: the ranges of both sides, and the views of one", elements, want)
	}
}
