package plan

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// idle is a connection with both of its ends, over which nothing has been said.
type idle struct {
	name string
	// first is the end that is to speak first.
	first, other net.Conn
}

// idlePort is where its servers listen.
const idlePort = netnstest.Port + 1

// newIdle opens one from a pod to another by an address.
func newIdle(t *testing.T, name string, from, to *netnstest.Place, at netip.Addr, serverFirst bool) idle {
	t.Helper()
	var l *net.TCPListener
	to.In(func() (err error) {
		l, err = net.ListenTCP("tcp", &net.TCPAddr{Port: idlePort})
		return err
	})
	defer func() { _ = l.Close() }()
	_ = l.SetDeadline(time.Now().Add(netnstest.Patience))
	var client net.Conn
	from.In(func() (err error) {
		// Without what keeps a connection alive: the first packet is to be what is said.
		d := net.Dialer{Timeout: netnstest.Patience, KeepAlive: -1}
		client, err = d.DialContext(t.Context(), "tcp", netip.AddrPortFrom(at, idlePort).String())
		return err
	})
	t.Cleanup(func() { _ = client.Close() })
	server, err := l.AcceptTCP()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	_ = server.SetKeepAlive(false)
	t.Cleanup(func() { _ = server.Close() })
	if serverFirst {
		return idle{name, server, client}
	}
	return idle{name, client, server}
}

// speak has the one end say something, and the other one answer.
func (c idle) speak(t *testing.T) {
	t.Helper()
	for _, way := range [][2]net.Conn{{c.first, c.other}, {c.other, c.first}} {
		_ = way[1].SetDeadline(time.Now().Add(byteWithin))
		if _, err := way[0].Write([]byte("still there?")); err != nil {
			t.Errorf("%s: %v", c.name, err)
			return
		}
		if _, err := io.ReadFull(way[1], make([]byte, len("still there?"))); err != nil {
			t.Errorf("%s: %v", c.name, err)
			return
		}
	}
}

// testIdle has the gateway of each side move while connections of either direction are silent, of which
// then either end speaks first. The new gateway has seen nothing of them, and lets through only what may be:
// a pod of rome's that calls is none that may be called.
func testIdle(t *testing.T, w *world) {
	sides := []*side{w.rome, w.milan}
	const called = 1 // the node of the pods that may be called; rome's other one calls
	for _, s := range sides {
		p := &s.in.Peerings[0]
		p.Limited, p.Here, p.There = true, nil, nil
		for _, v4 := range netnstest.Families {
			a := netnstest.PodAddr(42, called, 5, v4)
			p.Here, p.There = append(p.Here, a), append(p.There, a)
		}
		s.apply(t)
	}
	for _, moves := range sides {
		var all []idle
		for i, s := range sides {
			peer, caller := sides[1-i], []int{1 - called, called}[i]
			for _, v4 := range netnstest.Families {
				for _, serverFirst := range []bool{false, true} {
					at := s.seen(t, netnstest.PodAddr(42, called, 5, v4))
					name := fmt.Sprintf("%s's gateway moves, %s calls %s, and the server speaks first: %t", moves.Name, s.Name, at, serverFirst)
					all = append(all, newIdle(t, name, s.Nodes[caller].Pod, peer.Nodes[called].Pod, at, serverFirst))
				}
			}
		}
		g := moves.gateway(t)
		moves.in.Nodes[g].Alive = false
		moves.apply(t, g, 1-g)
		if now := moves.gateway(t); now == g {
			t.Fatalf("the gateway of %s is where it was", moves.Name)
		}
		w.alive(t)
		for _, c := range all {
			c.speak(t)
		}
		moves.in.Nodes[g].Alive = true
		moves.apply(t, 1-g, g)
		w.alive(t)
		for _, c := range all { // an end that is the first that a gateway sees passes no more
			c.speak(t)
			_, _ = c.first.Close(), c.other.Close()
		}
	}
	for _, s := range sides {
		p := &s.in.Peerings[0]
		p.Limited, p.Here, p.There = false, nil, nil
		s.apply(t)
	}
	testPods(t, w)
}
