package dataplane

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// spoken are by which addresses two clusters speak in a tunnel: rome's pods and milan's, and how each
// sees the other. All are numbers of ranges.
type spoken struct {
	rome, milan, milanAtRome, romeAtMilan int
}

// ownWorld are two clusters whose gateways speak with each other as a third one sees both.
func ownWorld(t *testing.T, s spoken) *world {
	t.Helper()
	w := newWorld(t)
	w.rome.view, w.milan.view = s.milanAtRome, s.romeAtMilan
	w.rome.change, w.milan.change = ownChange(s.rome, s.milanAtRome, s.milan), ownChange(s.milan, s.romeAtMilan, s.rome)
	w.start()
	return w
}

// ownChange makes a cluster's gateway one that speaks of its own pods by a view, and sees the peer's
// by another one than the peer does.
func ownChange(own, view, peer int) func(*Config) {
	return func(c *Config) {
		c.Routes = slices.DeleteFunc(c.Routes, func(r Route) bool {
			return !slices.ContainsFunc(families, func(v4 bool) bool { return r.Prefix == viewRange(view, v4) })
		})
		for i := range c.Gateways {
			g := &c.Gateways[i]
			g.External, g.Views, g.Own, g.Here, g.There = nil, nil, nil, nil, nil
			g.Limited, g.FromHere = true, true
			g.ProbeAt, g.ProbePeer = addrs("169.254.0.4")[0], addrs("169.254.0.5")[0]
			for _, v4 := range families {
				g.Views = append(g.Views, View{View: viewRange(view, v4), Real: viewRange(peer, v4)})
				g.Own = append(g.Own, View{View: viewRange(own, v4), Real: podRange(v4)})
				for _, node := range []int{1, 2} {
					g.Here, g.There = append(g.Here, podAt(42, node, 5, v4)), append(g.There, podAt(peer, node, 5, v4))
				}
			}
		}
	}
}

// TestOwn goes through gateways that translate their own pods too: with all addresses different, and
// with such that what leaves and what arrives have the same ones.
func TestOwn(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		is   spoken
	}{
		{"all different", spoken{rome: 71, milan: 72, milanAtRome: 81, romeAtMilan: 82}},
		{"the same both ways", spoken{rome: 82, milan: 42, milanAtRome: 82, romeAtMilan: 82}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := ownWorld(t, c.is)
			for _, test := range []struct {
				name string
				test func(*testing.T, *world, spoken)
			}{
				{"pods reach pods by views, and are seen by views", func(t *testing.T, w *world, _ spoken) { testPods(t, w) }},
				{"the same again changes nothing", func(t *testing.T, w *world, _ spoken) { testIdempotent(t, w) }},
				{"a new process finds all as it should be", func(t *testing.T, w *world, _ spoken) { testNewProcess(t, w) }},
				{"segments fit into the tunnel, and much goes through", func(t *testing.T, w *world, _ spoken) { testTransfer(t, w) }},
				{"a packet larger than any MTU goes through", func(t *testing.T, w *world, _ spoken) { testLargePing(t, w) }},
				{"both call each other from the same addresses and ports", testMirrored},
				{"who calls is told what is wrong on the way", testErrors},
				{"what is for no view, or from no pod, is dropped and counted", testOwnSpoofed},
				{"only what is allowed is reached", testOwnLimited},
				{"what is shut ends", testOwnShut},
			} {
				t.Run(test.name, func(t *testing.T) { test.test(t, w, c.is) })
			}
		})
	}
}

// testMirrored has pods of both clusters say something to each other, of addresses and ports that are the same
// at both: what arrives is not taken for an answer to what was said here.
func testMirrored(t *testing.T, w *world, _ spoken) {
	for _, v4 := range families {
		sockets := map[string]*net.UDPConn{}
		for name, c := range map[string]*cluster{"rome": w.rome, "milan": w.milan} {
			for i, n := range c.nodes {
				n.Pod.In(func() error {
					s, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(podAt(42, i+1, 5, v4), 5000)))
					if err == nil {
						sockets[fmt.Sprint(name, i+1)] = s
						t.Cleanup(func() { _ = s.Close() })
					}
					return err
				})
			}
		}
		for round := range 3 {
			for _, way := range []struct {
				from, to string
				by, seen netip.Addr
			}{
				{"rome1", "milan2", podAt(w.rome.view, 2, 5, v4), podAt(w.milan.view, 1, 5, v4)},
				{"milan1", "rome2", podAt(w.milan.view, 2, 5, v4), podAt(w.rome.view, 1, 5, v4)},
				{"milan2", "rome1", podAt(w.milan.view, 1, 5, v4), podAt(w.rome.view, 2, 5, v4)},
				{"rome2", "milan1", podAt(w.rome.view, 1, 5, v4), podAt(w.milan.view, 2, 5, v4)},
			} {
				said := fmt.Sprint(way.from, " to ", way.to, " ", round)
				if _, err := sockets[way.from].WriteToUDPAddrPort([]byte(said), netip.AddrPortFrom(way.by, 5000)); err != nil {
					t.Fatal(err)
				}
				b := make([]byte, 100)
				_ = sockets[way.to].SetReadDeadline(time.Now().Add(patience))
				n, at, err := sockets[way.to].ReadFromUDPAddrPort(b)
				if err != nil || string(b[:n]) != said || at != netip.AddrPortFrom(way.seen, 5000) {
					t.Fatalf("%s, seen as %s: heard %q of %s (%v)", said, way.seen, b[:n], at, err)
				}
			}
		}
	}
}

// testErrors has a pod tell that nobody listens, and a node that a packet is too large for the last
// link: both are understood by who has called.
func testErrors(t *testing.T, w *world, _ spoken) {
	const narrow = 1300
	for _, way := range [][2]*cluster{{w.rome, w.milan}, {w.milan, w.rome}} {
		from, to := way[0], way[1]
		for _, v4 := range families {
			at := podAt(from.view, 2, 5, v4)
			var c net.Conn
			from.nodes[0].Pod.In(func() (err error) {
				c, err = net.Dial("udp", netip.AddrPortFrom(at, 9).String())
				return err
			})
			_ = c.SetDeadline(time.Now().Add(patience))
			_, err := c.Write([]byte("?"))
			if err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			if !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s to where nobody listens at %s: %v", from.name, to.name, err)
			}
			_ = c.Close()
		}
		for i, n := range to.nodes {
			n.Must(n.Kernel.LinkSetMTU(n.Link("cni0"), narrow))
			if err := from.nodes[0].Pod.Ping(podAt(42, 1, 5, true), podAt(from.view, i+1, 5, true), narrow+50, patience); err != nil {
				t.Errorf("%s to %s, behind a link of %d bytes: %v", from.name, n.Name, narrow, err)
			}
			n.Must(n.Kernel.LinkSetMTU(n.Link("cni0"), 1500))
		}
	}
}

// testOwnSpoofed says out of the peer's end of the tunnel what its gateway would not, and into the gateway what
// no pod says.
func testOwnSpoofed(t *testing.T, w *world, s spoken) {
	drops := func(reason Reason) (n uint64) {
		list, err := w.milan.nodes[0].kernel.Drops(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if d.Reason == reason {
				n = d.Packets
			}
		}
		return n
	}
	rome := w.gateway(w.rome)
	for _, v4 := range families {
		type try struct {
			reason   string
			from, to netip.Addr
			want     Reason
		}
		tries := []try{
			{"a source that is not the peer's", podAt(99, 1, 5, v4), podAt(s.milan, 1, 5, v4), DropSource},
			{"a source that is a pod of milan's", podAt(s.milan, 2, 5, v4), podAt(s.milan, 1, 5, v4), DropSource},
			{"a destination that is a view of milan's", podAt(s.rome, 1, 5, v4), podAt(99, 1, 5, v4), DropDestination},
			{"a destination that is a node", podAt(s.rome, 1, 5, v4), netnstest.NodeAddr(1, v4), DropDestination},
			{"a pod that nobody may reach", podAt(s.rome, 1, 5, v4), podAt(s.milan, 1, 6, v4), DropDenied},
		}
		if s.milan != 42 {
			tries = append(tries, try{"a pod by its own address", podAt(s.rome, 1, 5, v4), podAt(42, 1, 5, v4), DropDestination})
		}
		for _, c := range tries {
			before := drops(c.want)
			// From inside the peer's gateway, where the peer may do as it likes.
			rome.Address(tunnelName, single(c.from).String())
			sent := send(t, rome, c.from, c.to)
			isCounted(t, c.reason, func() uint64 { return drops(c.want) }, before, sent)
			rome.Unaddress(tunnelName, single(c.from))
		}
		for _, n := range w.milan.nodes { // whose source is the node's own
			before := drops(DropSource)
			if c, _, err := n.Dial(podAt(w.milan.view, 1, 5, v4), silence); err == nil {
				_ = c.Close()
				t.Errorf("%s reaches a pod from its own address", n.Name)
			}
			if drops(DropSource) == before {
				t.Errorf("what %s says of itself is not counted", n.Name)
			}
		}
	}
	w.set(w.rome)
	testPods(t, w)
}

// testOwnLimited tries pods that may neither call nor be called.
func testOwnLimited(t *testing.T, w *world, _ spoken) {
	for _, way := range [][2]*cluster{{w.rome, w.milan}, {w.milan, w.rome}} {
		for _, v4 := range families {
			for _, c := range []struct {
				why  string
				from *place
				to   netip.Addr
			}{
				{"one who may not call", way[0].nodes[0].Other, podAt(way[0].view, 1, 5, v4)},
				{"one who may not be called", way[0].nodes[0].Pod, podAt(way[0].view, 1, 6, v4)},
			} {
				if conn, _, err := c.from.Dial(c.to, silence); err == nil {
					_ = conn.Close()
					t.Errorf("%s: %s reaches %s", c.why, c.from.Name, c.to)
				}
			}
		}
	}
}

// testOwnShut shuts pods one after the other: connections that are theirs end, in both directions, and others
// do not.
func testOwnShut(t *testing.T, w *world, s spoken) {
	for _, v4 := range families {
		for _, c := range []struct {
			name string
			shut func(*Gateway) *[]netip.Addr
			at   netip.Addr
		}{
			{"a pod here", func(g *Gateway) *[]netip.Addr { return &g.ShutHere }, podAt(42, 1, 5, v4)},
			{"a pod there", func(g *Gateway) *[]netip.Addr { return &g.ShutThere }, podAt(s.rome, 1, 5, v4)},
		} {
			calls, _, err := w.milan.nodes[0].Pod.Dial(podAt(w.milan.view, 1, 5, v4), patience)
			if err != nil {
				t.Fatal(err)
			}
			called, _, err := w.rome.nodes[0].Pod.Dial(podAt(w.rome.view, 1, 5, v4), patience)
			if err != nil {
				t.Fatal(err)
			}
			other, _, err := w.rome.nodes[1].Pod.Dial(podAt(w.rome.view, 2, 5, v4), patience)
			if err != nil {
				t.Fatal(err)
			}
			before := w.milan.change
			w.milan.change = func(config *Config) {
				before(config)
				for i := range config.Gateways {
					*c.shut(&config.Gateways[i]) = []netip.Addr{c.at}
				}
			}
			w.set(w.milan)
			exchange(t, other, []byte("others go on"))
			for name, conn := range map[string]net.Conn{"it began": calls, "it was called by": called} {
				_ = conn.SetDeadline(time.Now().Add(silence))
				_, _ = conn.Write([]byte("?"))
				if _, err := conn.Read(make([]byte, 1)); err == nil {
					t.Errorf("%s is shut: the connection that %s goes on", c.name, name)
				}
				_ = conn.(*net.TCPConn).SetLinger(0)
				_ = conn.Close()
			}
			_ = other.Close()
			w.milan.change = before
			w.set(w.milan)
		}
	}
}
