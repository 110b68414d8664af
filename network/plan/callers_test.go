package plan

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// lenders is rome, that opens the pod Other of its second node to whoever is at milan, and milan, of whose own
// pods that of the first node with the name Other is a caller.
type lenders struct{ *world }

func newLenders(t *testing.T) lenders {
	t.Helper()
	w := lenders{newWorld(t)}
	rome, milan := &w.rome.in.Peerings[0], &w.milan.in.Peerings[0]
	rome.Limited, milan.Limited = true, true
	for _, v4 := range netnstest.Families {
		served, opened, offloaded := own(0, 5, v4), own(1, 6, v4), own(1, 5, v4)
		rome.Here, rome.There = append(rome.Here, served, opened), append(rome.There, offloaded)
		milan.Here, milan.There = append(milan.Here, offloaded), append(milan.There, served, opened)
	}
	return w
}

// say has each side say its word, or take it back.
func (w lenders) say(t *testing.T, home, provider bool) {
	t.Helper()
	rome, milan := &w.rome.in.Peerings[0], &w.milan.in.Peerings[0]
	rome.Open, milan.Callers = nil, nil
	for _, v4 := range netnstest.Families {
		if home {
			rome.Open = append(rome.Open, own(1, 6, v4))
		}
		if provider {
			milan.Callers = append(milan.Callers, own(0, 6, v4))
		}
	}
	w.rome.apply(t)
	w.milan.apply(t)
}

// each calls all ways and compares who gets through: callers if both have said so.
func (w lenders) each(t *testing.T, state string, both bool) {
	t.Helper()
	type way struct {
		reason   string
		from     *netnstest.Place
		by       *side
		node, at int
		passes   bool
	}
	rome, milan := w.rome, w.milan
	for _, of := range []way{
		{"a caller calls what is open", milan.Nodes[0].Other, milan, 1, 6, both},
		{"a caller calls what is behind a Service and not open", milan.Nodes[0].Other, milan, 0, 5, false},
		{"a caller calls another pod of home's", milan.Nodes[0].Other, milan, 1, 5, false},
		{"a pod of the provider's that is no caller calls what is open", milan.Nodes[0].Pod, milan, 1, 6, false},
		{"one on another node does", milan.Nodes[1].Other, milan, 1, 6, false},
		{"a node of the provider's does", milan.Nodes[0].Place, milan, 1, 6, false},
		{"what is open calls a caller", rome.Nodes[1].Other, rome, 0, 6, false},
		{"another pod of home's does", rome.Nodes[0].Pod, rome, 0, 6, false},
		{"an offloaded pod calls what is open", milan.Nodes[1].Pod, milan, 1, 6, true},
		{"and what is behind a Service", milan.Nodes[1].Pod, milan, 0, 5, true},
		{"home calls an offloaded pod", rome.Nodes[0].Pod, rome, 1, 5, true},
	} {
		for _, v4 := range netnstest.Families {
			patience := netnstest.Patience
			if !of.passes {
				patience = netnstest.Silence
			}
			c, _, err := of.from.Dial(of.by.seen(t, own(of.node, of.at, v4)), patience)
			if err == nil {
				_ = c.Close()
			}
			if (err == nil) != of.passes {
				t.Errorf("%s: %s, of IPv4 %t: %v", state, of.reason, v4, err)
			}
		}
	}
}

// TestCallers has each side say its word or not: callers get through where both do, to what is open, and
// nobody else does, nor anybody to them.
func TestCallers(t *testing.T) {
	t.Parallel()
	w := newLenders(t)
	w.say(t, true, true)
	w.alive(t)
	for _, home := range []bool{true, false} {
		for _, provider := range []bool{true, false} {
			w.say(t, home, provider)
			w.each(t, fmt.Sprintf("home says it %t and the provider %t", home, provider), home && provider)
		}
	}
}

// TestCallersEnd takes either word back, and the label of the pod, from connections that are there: those of
// callers end and others go on; and has gateways move under them, which ends none.
func TestCallersEnd(t *testing.T) {
	t.Parallel()
	w := newLenders(t)
	w.say(t, true, true)
	w.alive(t)
	milan := w.milan
	dial := func(from *netnstest.Place, v4 bool) net.Conn {
		t.Helper()
		c, _, err := from.Dial(milan.seen(t, own(1, 6, v4)), netnstest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	other := dial(milan.Nodes[1].Pod, true)
	for _, c := range []struct {
		reason string
		change func()
		ends   bool
	}{
		{"nothing is taken back", func() { w.say(t, true, true) }, false},
		{"the gateways of both sides move, and back", func() {
			for _, s := range []*side{w.rome, w.milan} {
				g := s.gateway(t)
				s.in.Nodes[g].Alive = false
				s.apply(t)
				w.alive(t)
				s.in.Nodes[g].Alive = true
				s.apply(t)
				w.alive(t)
			}
		}, false},
		{"home takes its word back", func() { w.say(t, false, true) }, true},
		{"the provider takes its word back, or the pod loses its label", func() { w.say(t, true, false) }, true},
		{"another pod is the caller", func() {
			milan.in.Peerings[0].Callers = []netip.Addr{own(0, 5, true), own(0, 5, false)}
			milan.apply(t)
		}, true},
		{"another pod is what is open", func() {
			w.rome.in.Peerings[0].Open = []netip.Addr{own(0, 5, true), own(0, 5, false)}
			w.rome.apply(t)
		}, true},
		{"the pod is shut", func() {
			w.rome.in.Peerings[0].ShutHere = []netip.Addr{own(1, 6, true), own(1, 6, false)}
			w.rome.apply(t)
			w.rome.in.Peerings[0].ShutHere = nil
		}, true},
		{"home lets nothing pass", func() {
			w.rome.in.Peerings[0].Closed = true
			w.rome.apply(t)
			w.rome.in.Peerings[0].Closed = false
		}, true},
	} {
		w.say(t, true, true)
		conns := []net.Conn{dial(milan.Nodes[0].Other, true), dial(milan.Nodes[0].Other, false)}
		c.change()
		for i, conn := range conns {
			patience := netnstest.Patience
			if c.ends {
				patience = netnstest.Silence
			}
			if err := speaks(conn, patience); (err != nil) != c.ends {
				t.Errorf("%s: connection %d: %v", c.reason, i, err)
			}
		}
		w.say(t, true, true)
		if err := speaks(other, netnstest.Patience); err != nil && !c.ends {
			t.Errorf("%s: a connection of an offloaded pod: %v", c.reason, err)
		}
		if c.ends { // as it was told nothing, it goes on where its packets come again
			conns[0] = dial(milan.Nodes[0].Other, true)
		}
	}
}

// TestCallersNarrower has a side that let all take part say who calls: connections of callers go on, as
// those of callers, and end as these do.
func TestCallersNarrower(t *testing.T) {
	t.Parallel()
	w := newLenders(t)
	rome, milan := &w.rome.in.Peerings[0], &w.milan.in.Peerings[0]
	rome.Limited, milan.Limited = false, false
	w.say(t, true, true)
	w.alive(t)
	var conns []net.Conn
	for _, from := range []*netnstest.Place{w.milan.Nodes[0].Other, w.milan.Nodes[0].Pod} {
		c, _, err := from.Dial(w.milan.seen(t, own(1, 6, true)), netnstest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		conns = append(conns, c)
	}
	rome.Limited, milan.Limited = true, true
	w.say(t, true, true)
	if err := speaks(conns[0], netnstest.Patience); err != nil {
		t.Errorf("that of a caller: %v", err)
	}
	if err := speaks(conns[1], netnstest.Silence); err == nil {
		t.Error("that of a pod that is no caller goes on")
	}
	w.say(t, true, false)
	if err := speaks(conns[0], netnstest.Silence); err == nil {
		t.Error("that of a caller goes on when he is none any more")
	}
}

// TestCallersGuard has home's NetworkPolicies isolate what is open: a caller is let in by an entry that means
// his address, and by no other.
func TestCallersGuard(t *testing.T) {
	t.Parallel()
	w := newLenders(t)
	w.say(t, true, true)
	w.alive(t)
	rome := &w.rome.in.Peerings[0]
	opened := []netip.Addr{own(1, 6, true), own(1, 6, false)}
	for _, c := range []struct {
		reason string
		peers  []netip.Prefix
		passes bool
	}{
		{"nobody is let in", nil, false},
		{"others are", []netip.Prefix{netnstest.NodeRange(1, true)}, false},
		{"the provider's pods are, by a block", []netip.Prefix{netnstest.Range(42, true)}, true},
	} {
		rome.Guard = &dataplane.Guard{HereIn: opened, Entries: []dataplane.Entry{{Name: "in", Pods: opened, Peers: c.peers}}}
		w.rome.apply(t)
		patience := netnstest.Patience
		if !c.passes {
			patience = netnstest.Silence
		}
		conn, _, err := w.milan.Nodes[0].Other.Dial(w.milan.seen(t, opened[0]), patience)
		if err == nil {
			_ = conn.Close()
		}
		if (err == nil) != c.passes {
			t.Errorf("%s: %v", c.reason, err)
		}
	}
}

// TestCallersForged has a hostile home begin at a caller, also by what looks like the middle of a connection.
func TestCallersForged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rome, milan := w.rome, w.milan
	f := w.newFoe(milan, "other", "192.0.2", 60, listenPort+1, Provider)
	milan.reallocate(f)
	p := f.peering()
	p.Limited = true // its caller answers nothing, so that no reset ends what is forged
	for _, v4 := range netnstest.Families {
		p.Callers, p.There = append(p.Callers, own(1, 9, v4)), append(p.There, netnstest.PodAddr(60, 0, 5, v4))
	}
	rome.apply(t)
	milan.apply(t)
	w.alive(t)
	f.begin(t)
	const tries = 20
	for _, v4 := range netnstest.Families {
		forged := netnstest.Packet{From: netnstest.PodAddr(60, 0, 5, v4), To: own(1, 9, v4)}
		before := milan.dropped(t, "other", dataplane.DropDenied)
		netnstest.Await(t, "the tunnel carries what begins", netnstest.Patience, func() bool { // the first ones wait for a handshake
			f.out <- forged.UDP(4999, netnstest.Port, nil).Bytes()
			return milan.dropped(t, "other", dataplane.DropDenied) > before
		})
		var last uint64
		netnstest.Await(t, "all that began was dropped", netnstest.Patience, func() bool {
			now := milan.dropped(t, "other", dataplane.DropDenied)
			quiet := now == last
			last = now
			return quiet
		})
		for i := range uint16(tries) {
			f.out <- forged.TCP(5000+i, netnstest.Port, netnstest.ACK, 7, 7, nil).Bytes()
			f.out <- forged.TCP(5000+i, netnstest.Port, netnstest.SYN, 8, 0, nil).Bytes()
		}
		netnstest.Await(t, "every beginning is dropped", netnstest.Patience, func() bool {
			return milan.dropped(t, "other", dataplane.DropDenied) >= last+tries
		})
	}
}

// TestReadCallers holds that callers and what is open are this cluster's own pods, of the role that has them.
func TestReadCallers(t *testing.T) {
	all := addrs("10.42.1.7", "10.42.1.8", "10.42.1.8", "10.60.1.1", "192.0.2.1")
	for _, c := range []struct {
		reason        string
		peering       int
		change        func(*Peering)
		callers, open []netip.Addr
	}{
		{"a provider has callers, who are not in Here", 1, func(*Peering) {}, addrs("10.42.1.8"), nil},
		{"a consumer opens, also what is in Here", 0, func(*Peering) {}, nil, addrs("10.42.1.7", "10.42.1.8")},
		{"nothing of it where all may", 1, func(p *Peering) { p.Limited = false }, nil, nil},
		{"nor where nothing passes", 0, func(p *Peering) { p.Closed = true }, nil, nil},
	} {
		in := rome(1)
		p := &in.Peerings[c.peering]
		p.Limited, p.Here, p.Callers, p.Open = true, addrs("10.42.1.7"), all, all
		c.change(p)
		plan := Compute(in)
		for _, g := range plan.Config.Gateways {
			if g.Peering == p.Key && (!slices.Equal(g.Callers, c.callers) || !slices.Equal(g.Open, c.open)) {
				t.Errorf("%s: callers %v, open %v", c.reason, g.Callers, g.Open)
			}
		}
		if err := plan.Config.Check(); err != nil || len(plan.Problems) > 0 {
			t.Errorf("%s: %v, %v", c.reason, err, plan.Problems)
		}
	}
}
