package plan

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// mappedDoor is a door of what an owner of rome's maps, for one pod of milan's.
func mappedDoor(at, to netip.Addr, udp bool, from ...netip.Addr) dataplane.Door {
	return dataplane.Door{At: netip.AddrPortFrom(at, netnstest.Port), To: netip.AddrPortFrom(to, netnstest.Port), UDP: udp, Most: 3, From: from}
}

// testMapped has what is no pod mapped at rome: one address behind the internet, and one of a node
// of IPv6. One pod of milan's reaches both, by the listed port only, and no longer than that is so.
func testMapped(t *testing.T, w *world) {
	rome, g := &w.rome.in.Peerings[0], w.rome.gateway(t)
	serveUDP(t, w.router)
	client, other := w.milan.Nodes[1].Pod, w.milan.Nodes[0].Pod
	for _, c := range []struct {
		v4     bool
		at, to string
		as     string
	}{
		{true, "10.43.0.4", outsideGateway(g), outside("198.51.100", g)},
		{false, "fd43::4", netnstest.NodeAddr(1-g, false).String(), w.rome.seen(t, netnstest.PodAddr(42, 1, 5, false)).String()},
	} {
		at, to, allowed := netip.MustParseAddr(c.at), netip.MustParseAddr(c.to), netnstest.PodAddr(42, 1, 5, c.v4)
		called := w.milan.seen(t, at)
		rome.Limited, rome.There, rome.Here = true, []netip.Addr{allowed, netnstest.PodAddr(42, 0, 5, c.v4)}, nil
		rome.Doors = []dataplane.Door{mappedDoor(at, to, false, allowed), mappedDoor(at, to, true, allowed)}
		w.rome.apply(t)
		w.seen(t, client, called, netip.MustParseAddr(c.as))
		w.denied(t, other, called)
		if c.v4 {
			from := dialUDP(t, client, called)
			if err := askUDP(from, netnstest.Patience); err != nil {
				t.Errorf("a listed port of UDP: %v", err)
			}
			if err := askUDP(dialUDP(t, other, called), netnstest.Silence); err == nil {
				t.Error("a pod that may not gets an answer by UDP")
			}
			rome.Doors = rome.Doors[:1]
			w.rome.apply(t)
			if err := askUDP(from, netnstest.Silence); err == nil {
				t.Error("a client of UDP gets answers by a door that has gone")
			}
		}
		rome.Doors[0].At = netip.AddrPortFrom(at, 1) // another port is listed
		w.rome.apply(t)
		w.refused(t, client, called)
		rome.Doors = []dataplane.Door{mappedDoor(at, to, false, allowed)}
		w.rome.apply(t)
		w.few(t, client, called)

		// The door goes, or its client may not any more: both ends are told.
		for _, change := range []func(d *dataplane.Door){
			func(d *dataplane.Door) { d.From = nil },
			func(d *dataplane.Door) { d.At = netip.AddrPortFrom(at.Next(), netnstest.Port) },
			func(d *dataplane.Door) { d.To = netip.AddrPortFrom(to.Next(), netnstest.Port) },
		} {
			rome.Doors = []dataplane.Door{mappedDoor(at, to, false, allowed)}
			w.rome.apply(t)
			conn, _, err := client.Dial(called, netnstest.Patience)
			if err != nil {
				t.Fatal(err)
			}
			// What else passes becomes more and less meanwhile, and another pod is shut.
			for _, more := range []func(){
				func() { rome.Limited = false },
				func() { rome.Limited = true },
				func() { rome.ShutThere = []netip.Addr{netnstest.PodAddr(42, 0, 5, c.v4)} },
				func() { rome.ShutThere = nil },
			} {
				more()
				w.rome.apply(t)
				if err := speaks(conn, netnstest.Patience); err != nil {
					t.Errorf("a connection to what is mapped, when other things are not: %v", err)
				}
			}
			change(&rome.Doors[0])
			w.rome.apply(t)
			w.ended(t, conn)
		}
	}
	w.onlyReads(t, client, netip.MustParseAddr("10.43.0.4"), netip.MustParseAddr(outsideGateway(g)))
	rome.Limited, rome.There, rome.Doors = false, nil, nil
	w.rome.apply(t)
	testPods(t, w)
}

// TestMappedEach has one address mapped for two peers by gateways on one node: each has as many connections as
// may be, whatever the other one has, and what is beyond is counted as its own.
func TestMappedEach(t *testing.T) {
	t.Parallel()
	w := newChain(t, newWorld(t))
	w.router.Listen()
	rome := w.rome
	rome.in.Nodes[1].Alive = false
	at, to, allowed := netip.MustParseAddr("10.43.0.4"), netip.MustParseAddr(outsideGateway(0)), own(1, 5, true)
	for i := range rome.in.Peerings {
		rome.in.Peerings[i].There, rome.in.Peerings[i].Doors = []netip.Addr{allowed}, []dataplane.Door{mappedDoor(at, to, false, allowed)}
	}
	for _, s := range []*side{w.milan, w.oslo} { // who only calls
		s.in.Peerings[0].Here, s.in.Peerings[0].There = []netip.Addr{allowed}, []netip.Addr{at}
	}
	w.begin(t)
	if g := Compute(rome.in).Gateways; g["milan"] != g[w.key] {
		t.Fatalf("the gateways are %v", g)
	}
	full := func() (counted [2]uint64) {
		return [2]uint64{rome.dropped(t, "milan", dataplane.DropFull), rome.dropped(t, w.key, dataplane.DropFull)}
	}
	milan, oslo := w.milan.Nodes[1].Pod, w.oslo.Nodes[1].Pod
	for range 3 {
		c, _, err := milan.Dial(w.milan.seen(t, at), netnstest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
	}
	w.denied(t, milan, w.milan.seen(t, at))
	if got := full(); got[0] == 0 || got[1] != 0 {
		t.Errorf("when milan has all that it may, %d and %d packets are counted as full", got[0], got[1])
	}
	w.few(t, oslo, w.oslo.seen(t, at))
	if got := full(); got[1] == 0 {
		t.Error("what oslo has too many of is not counted")
	}
	w.denied(t, milan, w.milan.seen(t, at))
}

// onlyReads has a client that reads alone told as well, and the server, when the door goes.
func (w *world) onlyReads(t *testing.T, client *netnstest.Place, at, to netip.Addr) {
	t.Helper()
	const port = netnstest.Port + 1
	var l net.Listener
	w.router.In(func() (err error) {
		l, err = net.ListenTCP("tcp", &net.TCPAddr{Port: port})
		return err
	})
	defer func() { _ = l.Close() }()
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		for tick := time.NewTicker(time.Millisecond); err == nil; <-tick.C {
			_, err = c.Write([]byte("more "))
		}
		served <- err
	}()
	rome := &w.rome.in.Peerings[0]
	d := mappedDoor(at, to, false, netnstest.PodAddr(42, 1, 5, true))
	d.At, d.To = netip.AddrPortFrom(at, port), netip.AddrPortFrom(to, port)
	rome.Doors = []dataplane.Door{d}
	w.rome.apply(t)
	var c net.Conn
	client.In(func() (err error) {
		c, err = net.DialTimeout("tcp", netip.AddrPortFrom(w.milan.seen(t, at), port).String(), netnstest.Patience)
		return err
	})
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(netnstest.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	rome.Doors = nil
	w.rome.apply(t)
	if _, err := io.Copy(io.Discard, struct{ io.Reader }{c}); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("who only reads is not told when a door has gone: %v", err)
	}
	select {
	case err := <-served:
		if !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
			t.Errorf("the server's end ends with %v", err)
		}
	case <-time.After(netnstest.Patience):
		t.Error("the server is not told")
	}
}

func outsideGateway(g int) string {
	return netip.MustParseAddr(outside("198.51.100", g)).Next().String()
}

// refused wants a client to be told at once that nobody listens.
func (w *world) refused(t *testing.T, from *netnstest.Place, to netip.Addr) {
	t.Helper()
	if c, _, err := from.Dial(to, netnstest.Patience); err == nil {
		_ = c.Close()
		t.Errorf("%s reaches a port of %s that is not listed", from.Name, to)
	} else if !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("%s is not refused at once: %v", from.Name, err)
	}
}

// others has other rules follow at all gateways of rome's, of which none is about what they are asked.
func (w *world) others(t *testing.T) {
	t.Helper()
	for i := range w.rome.in.Peerings {
		p := &w.rome.in.Peerings[i]
		name := "a"
		if p.Guard != nil {
			name += p.Guard.Entries[0].Name
		}
		p.Guard, p.ShutThere = &dataplane.Guard{Entries: []dataplane.Entry{{Name: name}}}, nil
		if len(name)%2 == 1 {
			p.ShutThere = []netip.Addr{netnstest.PodAddr(42, 0, 9, true)}
		}
	}
	w.rome.apply(t)
}

// few wants a door to take no more connections than it may have, and to take others when
// these are over.
func (w *world) few(t *testing.T, from *netnstest.Place, to netip.Addr) {
	t.Helper()
	var all []net.Conn
	for i := range 3 {
		c, _, err := from.Dial(to, netnstest.Patience)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		all = append(all, c)
		w.others(t) // which gives nobody more
	}
	w.denied(t, from, to)
	for _, c := range all {
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	netnstest.Await(t, "a connection when others have ended", 3*netnstest.Patience, func() bool {
		c, _, err := from.Dial(to, netnstest.Silence)
		if err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
		return err == nil
	})
}

// ended wants a connection to be reset at its next packet.
func (w *world) ended(t *testing.T, c net.Conn) {
	t.Helper()
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(netnstest.Patience)); err != nil {
		t.Fatal(err)
	}
	n := 0
	_, err := c.Write([]byte("still there?"))
	if err == nil {
		n, err = c.Read(make([]byte, 16))
	}
	if n > 0 || !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("%d bytes come back, and %v: want a reset", n, err)
	}
}

// serveUDP answers at Port.
func serveUDP(t *testing.T, p *netnstest.Place) {
	var server *net.UDPConn
	p.In(func() (err error) {
		server, err = net.ListenUDP("udp", &net.UDPAddr{Port: netnstest.Port})
		return err
	})
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for b := make([]byte, 64); ; {
			n, from, err := server.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(b[:n], from)
		}
	}()
}

func dialUDP(t *testing.T, from *netnstest.Place, to netip.Addr) (c net.Conn) {
	t.Helper()
	from.In(func() (err error) {
		c, err = net.Dial("udp", netip.AddrPortFrom(to, netnstest.Port).String())
		return err
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func askUDP(c net.Conn, limit time.Duration) error {
	if err := c.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("ping")); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 16))
	return err
}
