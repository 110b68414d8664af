package plan

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// testLimited lets rome reach one pod of milan, which runs there for it, and that one a pod
// of rome; milan's other pods reach none.
func testLimited(t *testing.T, w *world) {
	var allowed []netip.Addr
	for _, v4 := range netnstest.Families {
		allowed = append(allowed, netnstest.PodAddr(42, 1, 5, v4))
	}
	rome, milan := &w.rome.in.Peerings[0], &w.milan.in.Peerings[0]
	var called []netip.Addr
	for _, v4 := range netnstest.Families {
		called = append(called, netnstest.PodAddr(42, 0, 5, v4))
	}
	rome.Limited, milan.Limited, rome.There, milan.Here = true, true, allowed, allowed
	rome.Here, milan.There = called, called
	w.rome.apply(t)
	w.milan.apply(t)
	for i, n := range w.rome.Nodes {
		for _, v4 := range netnstest.Families {
			w.seen(t, n.Pod, w.rome.seen(t, netnstest.PodAddr(42, 1, 5, v4)), w.milan.seen(t, netnstest.PodAddr(42, i, 5, v4)))
			w.denied(t, n.Pod, w.rome.seen(t, netnstest.PodAddr(42, 1, 6, v4)))
			w.denied(t, n.Pod, w.rome.seen(t, netnstest.PodAddr(42, 0, 5, v4)))
			w.denied(t, w.milan.Nodes[i].Pod, w.milan.seen(t, netnstest.PodAddr(42, 1, 5, v4)))
		}
	}
	// Each gateway by itself keeps those from beginning that do not run for rome.
	for _, open := range []*side{nil, w.rome, w.milan} {
		if open != nil {
			open.in.Peerings[0].Limited = false
			open.apply(t)
		}
		for _, v4 := range netnstest.Families {
			to := w.milan.seen(t, netnstest.PodAddr(42, 0, 5, v4))
			w.seen(t, w.milan.Nodes[1].Pod, to, w.rome.seen(t, netnstest.PodAddr(42, 1, 5, v4)))
			w.denied(t, w.milan.Nodes[0].Pod, to)
		}
		if open != nil {
			open.in.Peerings[0].Limited = true
			open.apply(t)
		}
	}
	testLeaves(t, w)
	rome.Limited, milan.Limited = false, false
	rome.Here, rome.There, milan.Here, milan.There = nil, nil, nil, nil
	w.rome.apply(t)
	w.milan.apply(t)
	testPods(t, w)
}

// testLeaves holds that datagrams of what has begun, and is answered, arrive no more when one of the two pods may not be at its
// end, whoever says them and whichever side knows: another one may have its address by then.
func testLeaves(t *testing.T, w *world) {
	t.Helper()
	rome, milan := &w.rome.in.Peerings[0], &w.milan.in.Peerings[0]
	home, there := netnstest.PodAddr(42, 0, 5, true), netnstest.PodAddr(42, 1, 5, true)
	type set struct {
		of   *side
		list *[]netip.Addr
		who  netip.Addr
		// answers says that the server may say what it says by itself, as any pod of home's may to one that it has there.
		answers bool
	}
	for _, c := range []struct {
		name           string
		client, server *netnstest.Place
		at, called     netip.Addr
		sets           []set
	}{
		{"a pod of home's calls", w.rome.Nodes[1].Pod, w.milan.Nodes[1].Pod, there, w.rome.seen(t, there),
			[]set{{w.milan, &milan.Here, there, false}, {w.rome, &rome.There, there, false}}},
		{"a node of home's calls", w.rome.Nodes[1].Place, w.milan.Nodes[1].Pod, there, w.rome.seen(t, there),
			[]set{{w.milan, &milan.Here, there, false}, {w.rome, &rome.There, there, false}}},
		{"home is called", w.milan.Nodes[1].Pod, w.rome.Nodes[0].Pod, home, w.milan.seen(t, home),
			[]set{{w.milan, &milan.Here, there, false}, {w.milan, &milan.There, home, true}, {w.rome, &rome.Here, home, true}, {w.rome, &rome.There, there, false}}},
	} {
		k := newChat(t, c.client, c.server, netip.AddrPortFrom(c.at, 7000), netip.AddrPortFrom(c.called, 7000))
		for i, s := range c.sets {
			k.goesOn(t)
			had := *s.list
			*s.list = slices.DeleteFunc(slices.Clone(had), func(a netip.Addr) bool { return a == s.who })
			s.of.apply(t)
			var said []int64
			for range 5 {
				said = append(said, k.say())
			}
			// What was said has come as far as it will.
			w.seen(t, w.rome.Nodes[1].Pod, w.rome.seen(t, netnstest.PodAddr(42, 1, 5, false)), w.milan.seen(t, netnstest.PodAddr(42, 1, 5, false)))
			w.seen(t, w.milan.Nodes[1].Pod, w.milan.seen(t, netnstest.PodAddr(42, 0, 5, false)), w.rome.seen(t, netnstest.PodAddr(42, 1, 5, false)))
			*s.list = had
			s.of.apply(t)
			k.goesOn(t)
			for _, n := range said {
				if server, client := k.heard(n); server || client && !s.answers {
					t.Errorf("%s, set %d: a datagram arrives at the server: %t, at the client: %t", c.name, i, server, client)
				}
			}
		}
		k.end()
	}
}

// chat is a client and a server that say numbers to each other over UDP, in one connection.
type chat struct {
	client, server net.PacketConn
	to             net.Addr
	parts          sync.WaitGroup

	mu                 sync.Mutex
	number             int64
	from               net.Addr // the client, as the server sees it
	atServer, atClient map[int64]bool
}

func newChat(t *testing.T, client, server *netnstest.Place, at, called netip.AddrPort) *chat {
	t.Helper()
	k := &chat{to: net.UDPAddrFromAddrPort(called), atServer: map[int64]bool{}, atClient: map[int64]bool{}}
	client.In(func() (err error) {
		k.client, err = net.ListenPacket("udp4", ":0")
		return err
	})
	server.In(func() (err error) {
		k.server, err = net.ListenPacket("udp4", at.String())
		return err
	})
	hear := func(c net.PacketConn, heard func(n int64, from net.Addr)) {
		for b := make([]byte, 100); ; {
			n, from, err := c.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			number, _ := strconv.ParseInt(string(b[:n]), 10, 64)
			k.mu.Lock()
			heard(number, from)
			k.mu.Unlock()
		}
	}
	k.parts.Go(func() { hear(k.client, func(n int64, _ net.Addr) { k.atClient[n] = true }) })
	k.parts.Go(func() { hear(k.server, func(n int64, from net.Addr) { k.atServer[n], k.from = true, from }) })
	return k
}

// say has both ends say the next number, the server to whom it has heard.
func (k *chat) say() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.number++
	b := []byte(strconv.FormatInt(k.number, 10))
	_, _ = k.client.WriteTo(b, k.to)
	if k.from != nil {
		_, _ = k.server.WriteTo(b, k.from)
	}
	return k.number
}

func (k *chat) heard(n int64) (server, client bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.atServer[n], k.atClient[n]
}

// goesOn waits until both ends hear what is said from now on.
func (k *chat) goesOn(t *testing.T) {
	t.Helper()
	var said []int64
	netnstest.Await(t, "both ends hear each other", netnstest.Patience, func() bool {
		said = append(said, k.say())
		return slices.ContainsFunc(said, func(n int64) bool { server, _ := k.heard(n); return server }) &&
			slices.ContainsFunc(said, func(n int64) bool { _, client := k.heard(n); return client })
	})
}

func (k *chat) end() {
	_, _ = k.client.Close(), k.server.Close()
	k.parts.Wait()
}
