package plan

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestTooLarge has one side carry less than the other, and holds that who sends what is too large for
// that one is told so, and what it sends then arrives: from pods on the gateway's node and on another, of
// either side, where the peer's addresses are translated and where they are not, and whether nodes track
// what goes through bridges or not.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		number  int
		bridges string
		shut    bool
	}{
		{"the same ranges", 42, "1", false},
		{"ranges apart", 44, "1", false},
		{"bridges by themselves", 42, "0", false},
		{"some are out of reach", 42, "1", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorldOf(t, Consumer, Provider, c.number)
			for _, s := range []*side{w.rome, w.milan} {
				if c.shut { // nothing passes by itself then
					s.in.Peerings[0].ShutHere = []netip.Addr{netnstest.PodAddr(c.number, 0, 6, true)}
				}
				for _, n := range s.Nodes {
					n.Sysctl("bridge/bridge-nf-call-iptables", c.bridges)
					n.Sysctl("bridge/bridge-nf-call-ip6tables", c.bridges)
					echoUDP(t, n.Pod)
				}
			}
			for _, mtus := range [][2]int{{1400, 1500}, {1500, 1400}, {1500, 1500}} {
				t.Run(fmt.Sprintf("rome carries %d and milan %d", mtus[0], mtus[1]), func(t *testing.T) { testCarried(t, w, mtus) })
			}
		})
	}
}

// TestTooLargeFurther does the same between two providers, by way of home and by a direct path.
func TestTooLargeFurther(t *testing.T) {
	t.Parallel()
	w := newShortcut(t)
	echoUDP(t, w.called)
	for _, path := range []bool{false, true} {
		for _, mtus := range [][3]int{{1500, 1450, 1400}, {1400, 1450, 1500}} {
			for i, s := range []*side{w.milan, w.rome, w.oslo} {
				for j := range s.Nodes {
					s.in.Nodes[j].MTU = mtus[i]
					s.Nodes[j].Must(s.Nodes[j].Kernel.LinkSetMTU(s.Nodes[j].Link("eth0"), mtus[i]))
				}
				if s != w.rome {
					s.in.Peerings[0].Paths[0].Alive = path
				}
				s.apply(t)
			}
			for _, v4 := range netnstest.Families {
				for _, size := range []int{1340, 1390, 9000} {
					forget(w.caller, w.called)
					if err := sendUDP(w.caller, w.at(1, 5, v4), size); err != nil {
						t.Errorf("MTUs of milan, rome and oslo %v, by a path: %t, UDP of %d bytes: %v", mtus, path, size, err)
					}
					forget(w.caller, w.called)
					if err := w.caller.Ping(own(0, 5, v4), w.at(1, 5, v4), size, netnstest.Patience); err != nil {
						t.Errorf("MTUs of milan, rome and oslo %v, by a path: %t, echo of %d bytes: %v", mtus, path, size, err)
					}
				}
			}
			if t.Failed() {
				t.FailNow()
			}
		}
	}
}

// carry has the nodes of rome and milan carry so much.
func (w *world) carry(t *testing.T, mtus [2]int) {
	t.Helper()
	for i, s := range []*side{w.rome, w.milan} {
		for j := range s.Nodes {
			s.in.Nodes[j].MTU = mtus[i]
			s.Nodes[j].Must(s.Nodes[j].Kernel.LinkSetMTU(s.Nodes[j].Link("eth0"), mtus[i]))
		}
		s.apply(t)
	}
	w.alive(t)
}

// testCarried sends what is too large for one of the sides, and what is for both.
func testCarried(t *testing.T, w *world, mtus [2]int) {
	w.carry(t, mtus)
	for what, send := range map[string]func(*netnstest.Place, netip.Addr, netip.Addr) error{
		"echo of 1360 bytes": func(p *netnstest.Place, from, to netip.Addr) error { return p.Ping(from, to, 1360, netnstest.Patience) },
		"echo of 9000 bytes": func(p *netnstest.Place, from, to netip.Addr) error { return p.Ping(from, to, 9000, netnstest.Patience) },
		"UDP of 1360 bytes":  func(p *netnstest.Place, _, to netip.Addr) error { return sendUDP(p, to, 1360) },
		"UDP of 9000 bytes":  func(p *netnstest.Place, _, to netip.Addr) error { return sendUDP(p, to, 9000) },
	} {
		for _, way := range [][2]*side{{w.rome, w.milan}, {w.milan, w.rome}} {
			for _, s := range way {
				forget(s.Nodes[0].Pod, s.Nodes[1].Pod)
			}
			before := w.drops(t)
			var all sync.WaitGroup
			for i, n := range way[0].Nodes {
				for j := range way[1].Nodes {
					for _, v4 := range netnstest.Families {
						from, to := netnstest.PodAddr(way[0].Number, i, 5, v4), way[0].seen(t, netnstest.PodAddr(way[1].Number, j, 5, v4))
						all.Go(func() {
							if err := send(n.Pod, from, to); err != nil {
								t.Errorf("%s from %s (gateway %t) to %s of %s-%d (gateway %t): %v",
									what, n.Name, i == way[0].gateway(t), to, way[1].Name, j+1, j == way[1].gateway(t), err)
							}
						})
					}
				}
			}
			all.Wait()
			if t.Failed() {
				t.Fatalf("gateways dropped\n%s\nand before\n%s", w.drops(t), before)
			}
		}
	}
}

// forget has places forget what they were told of ways.
func forget(places ...*netnstest.Place) {
	for _, p := range places {
		p.Sysctl("ipv4/route/flush", "1")
		p.Sysctl("ipv6/route/flush", "1")
	}
}

// drops is what gateways have dropped.
func (w *world) drops(t *testing.T) string {
	t.Helper()
	text := ""
	for _, s := range []*side{w.rome, w.milan} {
		list, err := s.agents[s.gateway(t)].kernel.Drops(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if d.Packets > 0 {
				text += fmt.Sprintf("%s: %+v\n", s.Name, d)
			}
		}
	}
	return text
}

// echoUDP sends back at Port what comes.
func echoUDP(t *testing.T, p *netnstest.Place) {
	t.Helper()
	for _, network := range []string{"udp4", "udp6"} {
		var c net.PacketConn
		p.In(func() (err error) {
			c, err = net.ListenPacket(network, fmt.Sprintf(":%d", netnstest.Port))
			return err
		})
		t.Cleanup(func() { _ = c.Close() })
		go func() {
			for b := make([]byte, 1<<16); ; {
				n, from, err := c.ReadFrom(b)
				if errors.Is(err, net.ErrClosed) {
					return
				}
				if err == nil {
					_, _ = c.WriteTo(b[:n], from)
				}
			}
		}()
	}
}

// sendUDP sends a datagram until it comes back. It may not be made smaller on its way, which the first
// ones are for to find out.
func sendUDP(p *netnstest.Place, to netip.Addr, size int) error {
	return sendUDPTo(p, netip.AddrPortFrom(to, netnstest.Port), size)
}

func sendUDPTo(p *netnstest.Place, to netip.AddrPort, size int) error {
	var c net.Conn
	if err := netns.In(p.File, func() (err error) {
		c, err = net.Dial("udp", to.String())
		return err
	}); err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	sent, got := bytes.Repeat([]byte("0123456789abcdef"), size/16+1)[:size], make([]byte, size+1)
	var err error
	for end := time.Now().Add(netnstest.Patience); time.Now().Before(end); {
		if _, err = c.Write(sent); err != nil {
			continue
		}
		_ = c.SetReadDeadline(time.Now().Add(netnstest.Silence))
		var n int
		if n, err = c.Read(got); err == nil {
			if !bytes.Equal(got[:n], sent) {
				return fmt.Errorf("%d bytes came back, and not the %d that were sent", n, size)
			}
			return nil
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("no answer of %s", to)
	}
	return err
}
