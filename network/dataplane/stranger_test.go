package dataplane

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/netnstest"
)

const strangePort = 7100

// droppedOf is how many packets a node has dropped for a reason, of a peering or of none.
func (n *worldNode) droppedOf(t *testing.T, peering string, reason Reason) uint64 {
	t.Helper()
	list, err := n.kernel.Drops(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		if d.Peering == peering && d.Reason == reason {
			return d.Packets
		}
	}
	t.Fatalf("%s counts nothing of %s for %q", n.Name, reason, peering)
	return 0
}

// knocks sends packets to a port.
func knocks(t *testing.T, from *place, source, to netip.Addr, port uint16, count int, packet ...byte) {
	t.Helper()
	from.In(func() error {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(source, 0)))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		for range count {
			if _, err := c.WriteToUDPAddrPort(packet, netip.AddrPortFrom(to, port)); err != nil {
				return err
			}
		}
		return nil
	})
}

// What packets of WireGuard begin with.
var (
	ofSession     = []byte{4, 0, 0, 0, 0}
	ofHandshake   = []byte{1, 0, 0, 0, 0}
	almostSession = []byte{4, 0, 0, 1, 0}
)

// TestStrangers has another node send to the port of a tunnel, known or not.
func TestStrangers(t *testing.T) {
	w := newWorld(t)
	node, from := w.milan.nodes[0], w.milan.nodes[1].Place
	var knownAt []netip.Addr
	w.milan.change = func(c *Config) {
		for i := range c.Gateways {
			c.Gateways[i].Port, c.Gateways[i].Known = strangePort, knownAt
		}
	}
	from.Address("eth0", "fd19::2:1/64") // the other of one network
	for i := range 13 {
		from.Address("eth0", fmt.Sprintf("192.168.0.%d/24", 100+i))
	}
	w.set(w.milan)
	const count = 3 * strangerBurst
	for _, c := range []struct {
		name    string
		known   []string
		sources []string
		to      string
		port    uint16
		packet  []byte
		// burst and perSecond bound what passes besides what comes with time, and reason is what the rest is counted as:
		// nothing is dropped if that is none.
		reason           Reason
		burst, perSecond int
	}{
		{"a stranger", nil, []string{"192.168.0.2"}, "192.168.0.1", strangePort, ofSession, DropStranger, strangerBurst, strangerPerSecond},
		{"one that is known", []string{"192.168.0.2"}, []string{"192.168.0.2"}, "192.168.0.1", strangePort, ofSession, "", 0, 0},
		{"handshakes of one that is known", []string{"192.168.0.2"}, []string{"192.168.0.2"}, "192.168.0.1", strangePort, ofHandshake, DropHandshake, handshakesBurst, handshakesPerSecond},
		{"what is none of WireGuard's, of one that is known", []string{"192.168.0.110"}, []string{"192.168.0.110"}, "192.168.0.1", strangePort, almostSession, DropHandshake, handshakesBurst, handshakesPerSecond},
		{"handshakes of two that are known", []string{"192.168.0.111", "192.168.0.112"}, []string{"192.168.0.111", "192.168.0.112"}, "192.168.0.1", strangePort, ofHandshake, DropHandshake, 2 * handshakesBurst, 2 * handshakesPerSecond},
		{"somebody else is known", []string{"192.168.0.7", "fd19::2"}, []string{"192.168.0.100"}, "192.168.0.1", strangePort, ofSession, DropStranger, strangerBurst, strangerPerSecond},
		{"another port", nil, []string{"192.168.0.101"}, "192.168.0.1", strangePort + 1, ofHandshake, "", 0, 0},
		{"two of one network of IPv6", nil, []string{"fd19::2", "fd19::2:1"}, "fd19::1", strangePort, ofSession, DropStranger, strangerBurst, strangerPerSecond},
		{"one of IPv6 that is known", []string{"fd19::2"}, []string{"fd19::2"}, "fd19::1", strangePort, ofSession, "", 0, 0},
		{"handshakes of one of IPv6 that is known", []string{"fd19::2"}, []string{"fd19::2"}, "fd19::1", strangePort, ofHandshake, DropHandshake, handshakesBurst, handshakesPerSecond},
		{"many", nil, []string{"192.168.0.102", "192.168.0.103", "192.168.0.104", "192.168.0.105", "192.168.0.106", "192.168.0.107", "192.168.0.108", "192.168.0.109"}, "192.168.0.1", strangePort, ofSession, DropStranger, strangersBurst, strangersPerSecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			knownAt = addrs(c.known...)
			w.set(w.milan, 0)
			before := [2]uint64{node.droppedOf(t, "", DropStranger), node.droppedOf(t, "", DropHandshake)}
			began, sent := time.Now(), 0
			for _, source := range c.sources {
				knocks(t, from, netip.MustParseAddr(source), netip.MustParseAddr(c.to), c.port, count, c.packet...)
				sent += count
			}
			most := c.burst + int(time.Since(began).Seconds()*float64(c.perSecond)) + len(c.sources)
			for i, reason := range []Reason{DropStranger, DropHandshake} {
				dropped := int(node.droppedOf(t, "", reason) - before[i])
				switch {
				case reason != c.reason && dropped != 0:
					t.Errorf("%d of %d were dropped as %s", dropped, sent, reason)
				case reason == c.reason && sent-dropped > most:
					t.Errorf("%d of %d passed, want at most %d", sent-dropped, sent, most)
				case reason == c.reason && sent-dropped < c.burst/2:
					t.Errorf("%d of %d passed, and at least %d should", sent-dropped, sent, c.burst/2)
				}
			}
			writes := node.kernel.writes.Load()
			w.set(w.milan, 0)
			if now := node.kernel.writes.Load(); now != writes {
				t.Errorf("what packets have written was written over: %d writes", now-writes)
			}
		})
	}
}

// TestStrangersPass holds that what a node forwards to somebody else's port of the same number is nobody's
// of its tunnels, and passes.
func TestStrangersPass(t *testing.T) {
	w := newWorld(t)
	node, pod := w.milan.nodes[0], w.milan.nodes[0].Pod
	w.milan.change = func(c *Config) {
		for i := range c.Gateways {
			c.Gateways[i].Port = strangePort
		}
	}
	w.set(w.milan)
	for _, v4 := range families {
		before := node.droppedOf(t, "", DropStranger)
		knocks(t, pod, podAt(42, 1, 5, v4), podAt(42, 2, 5, v4), strangePort, 3*strangerBurst, ofHandshake...)
		if dropped := node.droppedOf(t, "", DropStranger) - before; dropped != 0 {
			t.Errorf("IPv4 %t: of what a pod sends to one of another node %d were dropped", v4, dropped)
		}
	}
}

// TestBeginnings has a peer begin more connections than it may, and any while the gateway is full. It gets no
// more by having rules become others.
func TestBeginnings(t *testing.T) {
	w := newWorld(t)
	const begin = 3
	limit, full, turn := uint32(begin), false, 0
	w.milan.change = func(c *Config) {
		for i := range c.Gateways {
			c.Gateways[i].Begin, c.Gateways[i].Full = limit, full
			c.Gateways[i].Guard = &Guard{Entries: []Entry{{Name: fmt.Sprint(turn), Pods: addrs("10.42.9.9")}}}
			if turn%2 == 1 {
				c.Gateways[i].ShutHere = addrs("10.42.9.9")
			}
		}
	}
	other := func() { turn++; w.set(w.milan, 0) }
	w.start()
	node, rome := w.milan.nodes[0], w.rome.nodes[0].Pod
	to := podAt(w.rome.view, 1, 5, true)
	first, _, err := rome.Dial(to, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	dial := func() bool {
		c, _, err := rome.Dial(to, silence)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	}
	t.Run("TCP", func(t *testing.T) {
		began, made := time.Now(), 0
		for node.droppedOf(t, "other", DropFull) == 0 && made < 100 {
			if dial() {
				made++
			}
			other()
		}
		if most := begin*beginningsAtOnce + begin*(int(time.Since(began).Seconds())+1); made > most {
			t.Errorf("%d connections were made, and may be %d", made, most)
		}
		exchange(t, first, []byte("still there"))
	})
	t.Run("UDP", func(t *testing.T) {
		before := node.droppedOf(t, "other", DropFull)
		for i := range 5 * begin * beginningsAtOnce { // each from a port of its own
			if i%(begin*beginningsAtOnce/2) == 0 {
				other()
			}
			knocks(t, rome, podAt(42, 1, 5, true), to, 9, 1, 1)
		}
		netnstest.Await(t, "some of them are dropped", patience, func() bool { return node.droppedOf(t, "other", DropFull) > before })
	})
	t.Run("full", func(t *testing.T) {
		limit, full = 0, true
		w.set(w.milan, 0)
		before := node.droppedOf(t, "other", DropFull)
		if dial() {
			t.Error("a connection was made")
		}
		if node.droppedOf(t, "other", DropFull) == before {
			t.Error("nothing is counted")
		}
		exchange(t, first, []byte("still there"))
		c, _, err := w.milan.nodes[0].Pod.Dial(podAt(w.milan.view, 1, 5, true), patience)
		if err != nil {
			t.Fatalf("from here: %v", err)
		}
		_ = c.Close()
		full = false
		w.set(w.milan, 0)
		netnstest.Await(t, "connections begin again", patience, dial)
	})
}
