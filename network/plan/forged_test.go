package plan

import (
	"net/netip"
	"testing"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestForgedTooLarge has a hostile peer say that packets were too large for its side: of a connection that a
// pod has with it, which makes that pod send no smaller packets than its kernel does for anybody and to nobody
// else, and of connections that are not there, which the gateway keeps to itself.
func TestForgedTooLarge(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rome, milan := w.rome, w.milan
	f := w.newFoe(milan, "other", "192.0.2", 60, listenPort+1, Provider)
	milan.reallocate(f)
	p := f.peering()
	for _, v4 := range netnstest.Families {
		p.Here, p.There = append(p.Here, own(1, 5, v4)), append(p.There, netnstest.PodAddr(60, 0, 5, v4))
	}
	rome.apply(t)
	milan.apply(t)
	w.alive(t)
	f.begin(t)
	pod := milan.Nodes[1].Pod
	echoUDP(t, pod)
	const port = 5000
	id := uint32(0)
	talk := func(v4 bool) {
		t.Helper()
		id++
		again := 0
		netnstest.Await(t, "the pod answers", netnstest.Patience, func() bool {
			if again%100 == 0 { // the first ones wait for a handshake, or are lost in it
				f.out <- netnstest.Packet{From: netnstest.PodAddr(60, 0, 5, v4), To: own(1, 5, v4)}.UDP(port, netnstest.Port, markerOf(id)).Bytes()
			}
			again++
			return f.answer(id) != ""
		})
	}
	for _, v4 := range netnstest.Families {
		foe, to := netnstest.PodAddr(60, 0, 5, v4), own(1, 5, v4)
		seen, ok := milan.table.View("other", foe)
		others := milan.seen(t, own(0, 5, v4))
		if !ok {
			t.Fatal("the foe is not seen")
		}
		least := 552 // net.ipv4.route.min_pmtu
		if !v4 {
			least = 1280
		}
		talk(v4)
		before := milan.dropped(t, "other", dataplane.DropInvalid)
		nothing := []netnstest.Packet{
			netnstest.Packet{From: to, To: foe}.UDP(netnstest.Port, port+1, nil),
			netnstest.Packet{From: to, To: foe}.TCP(netnstest.Port, port, netnstest.ACK, 7, 7, nil),
			netnstest.Packet{From: to, To: others}.UDP(netnstest.Port, port, nil),
			netnstest.Packet{From: to, To: own(0, 5, v4)}.UDP(netnstest.Port, port, nil),
			netnstest.Packet{From: own(1, 6, v4), To: foe}.UDP(netnstest.Port, port, nil),
		}
		for _, about := range nothing {
			f.out <- netnstest.Packet{From: foe, To: to}.TooLarge(1300, about).Bytes()
		}
		talk(v4)
		if after := milan.dropped(t, "other", dataplane.DropInvalid); after != before+uint64(len(nothing)) {
			t.Errorf("IPv4 %t: of %d errors about connections that are not there %d were dropped", v4, len(nothing), after-before)
		}
		if got := carries(t, pod, seen); got != mtuOutside {
			t.Errorf("IPv4 %t: the pod takes an error about no connection: %d bytes to %s", v4, got, seen)
		}
		for _, bytes := range []uint16{1300, 0, 68, 1279} {
			f.out <- netnstest.Packet{From: foe, To: to}.TooLarge(bytes, netnstest.Packet{From: to, To: foe}.UDP(netnstest.Port, port, nil)).Bytes()
			talk(v4)
			got := carries(t, pod, seen)
			if got < least || bytes == 1300 && got != 1300 {
				t.Errorf("IPv4 %t: told of %d bytes, the pod sends %d to %s", v4, bytes, got, seen)
			}
		}
		if got := carries(t, pod, others); got != mtuOutside {
			t.Errorf("IPv4 %t: a peer made the pod send %d bytes at most to another one's %s", v4, got, others)
		}
	}
}

// carries is what a place takes the way to an address for.
func carries(t *testing.T, p *netnstest.Place, to netip.Addr) int {
	t.Helper()
	routes, err := p.Kernel.RouteGet(to.AsSlice())
	if err != nil || len(routes) != 1 {
		t.Fatalf("the way from %s to %s: %v, %v", p.Name, to, routes, err)
	}
	if routes[0].MTU == 0 {
		return p.Link("eth0").Attrs().MTU
	}
	return routes[0].MTU
}

// dropped is what a side's gateway to a peer has dropped for a reason.
func (s *side) dropped(t *testing.T, peering string, reason dataplane.Reason) (packets uint64) {
	t.Helper()
	for _, a := range s.agents {
		list, err := a.kernel.Drops(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if d.Peering == peering && d.Reason == reason {
				packets += d.Packets
			}
		}
	}
	return packets
}
