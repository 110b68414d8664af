package dataplane

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/netns"
)

// TestGuardAgain holds that what a peer has begun over UDP is asked again: another pod, which is isolated, may have the
// address by now. What was begun here is answered on.
func TestGuardAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	peer, pod := testPod{w.rome, 1, 5}, testPod{w.milan, 2, 5}
	serve(t, peer.place(), 7001)
	serve(t, pod.place(), 7001)
	w.guarded(w.milan, isolate(false, true, true, pod, Entry{Protocol: 17, Peers: peer.peer()}, Entry{Out: true, Protocol: 17, Peers: peer.peer()}))
	type both struct{ begunThere, begunHere net.Conn }
	var all []both
	for _, v4 := range families {
		c := both{begunThere: datagrams(t, peer, pod, 7001, v4), begunHere: datagrams(t, pod, peer, 7001, v4)}
		answered(t, c.begunThere)
		answered(t, c.begunHere)
		all = append(all, c)
	}
	w.guarded(w.milan, isolate(false, true, true, pod))
	for _, c := range all {
		answered(t, c.begunHere)
		before := drops(t, w.milan, DropIsolated)
		if _, err := c.begunThere.Write([]byte("on")); err != nil {
			t.Fatal(err)
		}
		answered(t, c.begunHere) // by then that has come as far as it will
		if n := drops(t, w.milan, DropIsolated) - before; n != 1 {
			t.Errorf("of one datagram to a pod that is isolated now %d were dropped as such", n)
		}
	}
	w.milan.change = nil
	w.set(w.milan)
	for _, c := range all {
		answered(t, c.begunThere)
	}
}

// datagrams are what a pod says to a port of another one, from one of its own.
func datagrams(t *testing.T, from, to testPod, port int, v4 bool) (c net.Conn) {
	t.Helper()
	from.place().Must(netns.In(from.place().File, func() (err error) {
		c, err = net.Dial("udp", net.JoinHostPort(podAt(from.of.view, to.node, to.last, v4).String(), strconv.Itoa(port)))
		return err
	}))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// answered says something until it is answered.
func answered(t *testing.T, c net.Conn) {
	t.Helper()
	for number, start := 0, time.Now(); time.Since(start) < patience; number++ {
		said := strconv.Itoa(number)
		_, _ = c.Write([]byte(said))
		_ = c.SetReadDeadline(time.Now().Add(silence))
		for b := make([]byte, 64); ; {
			n, err := c.Read(b)
			if err != nil {
				break
			}
			if string(b[:n]) == said { // and not what comes late
				return
			}
		}
	}
	t.Fatal("no answer from", c.RemoteAddr())
}
