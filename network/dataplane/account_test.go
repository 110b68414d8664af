package dataplane

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/traffic"
)

// tally adds up what a gateway tells, by the ends of connections as who begins them sees these.
type tally struct {
	gateway *place
	meter   *traffic.Meter

	mu  sync.Mutex
	all map[[2]netip.Addr]*traffic.Portion
}

// tallies counts at the gateways of both clusters.
func (w *world) tallies(t *testing.T) (rome, milan *tally) {
	t.Helper()
	var both []*tally
	for _, c := range []*cluster{w.rome, w.milan} {
		a := &tally{gateway: w.gateway(c), all: map[[2]netip.Addr]*traffic.Portion{}}
		var err error
		if a.meter, err = traffic.Open(traffic.Options{Namespace: a.gateway.File, Told: a.add}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = a.meter.Close() })
		both = append(both, a)
	}
	return both[0], both[1]
}

func (a *tally) add(p traffic.Portion) {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := [2]netip.Addr{p.Original.From, p.Original.To}
	if a.all[key] == nil {
		a.all[key] = &traffic.Portion{}
	}
	for _, d := range []struct {
		to *traffic.Direction
		of traffic.Direction
	}{{&a.all[key].Original, p.Original}, {&a.all[key].Reply, p.Reply}} {
		packets, bytes := d.to.Packets+d.of.Packets, d.to.Bytes+d.of.Bytes
		*d.to = d.of
		d.to.Packets, d.to.Bytes = packets, bytes
	}
}

// told is what was told so far of connections between two addresses.
func (a *tally) told(from, to netip.Addr) traffic.Portion {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p := a.all[[2]netip.Addr{from, to}]; p != nil {
		return *p
	}
	return traffic.Portion{}
}

func (a *tally) read(t *testing.T) {
	t.Helper()
	if err := a.meter.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// end has the kernel forget all connections of the gateway, as it does when they end.
func (a *tally) end(t *testing.T) {
	t.Helper()
	a.gateway.Must(netns.In(a.gateway.File, func() error {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			if _, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, family, flows(func(*netlink.ConntrackFlow) bool { return true })); err != nil {
				return err
			}
		}
		return nil
	}))
}

// TestTraffic tries that what pods send is told of once at each of the two gateways, while the
// connection is open and when it has ended.
func TestTraffic(t *testing.T) {
	w := newWorld(t)
	w.start()
	for _, v4 := range families {
		t.Run("UDP of "+familyName(v4), func(t *testing.T) { testTrafficUDP(t, w, v4) })
		t.Run("TCP of "+familyName(v4), func(t *testing.T) { testTrafficTCP(t, w, v4) })
	}
}

// ways are how each gateway names the ends of connections from rome's pod to milan's: the client's
// address and the one it calls.
func (w *world) ways(v4 bool) (rome, milan [2]netip.Addr) {
	pod := podAt(42, 1, 5, v4)
	return [2]netip.Addr{pod, podAt(w.rome.view, 2, 5, v4)}, [2]netip.Addr{pod, podAt(42, 2, 5, v4)}
}

// testTrafficUDP sends datagrams, of which all counts are known.
func testTrafficUDP(t *testing.T, w *world, v4 bool) {
	rome, milan := w.tallies(t)
	atRome, atMilan := w.ways(v4)
	from, to := w.rome.nodes[0].Pod, w.milan.nodes[1].Pod
	var server *net.UDPConn
	to.In(func() (err error) {
		server, err = net.ListenUDP("udp", &net.UDPAddr{})
		return err
	})
	defer func() { _ = server.Close() }()
	var client net.Conn
	from.In(func() (err error) {
		client, err = net.Dial("udp", netip.AddrPortFrom(atRome[1], server.LocalAddr().(*net.UDPAddr).AddrPort().Port()).String())
		return err
	})
	defer func() { _ = client.Close() }()
	const size, answer = 1000, 100
	headers := uint64(28)
	if !v4 {
		headers = 48
	}
	sent, answered := uint64(0), uint64(0)
	talk := func(n int) {
		t.Helper()
		b := make([]byte, size)
		for i := range n {
			if _, err := client.Write(b); err != nil {
				t.Fatal(err)
			}
			if err := server.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			got, at, err := server.ReadFromUDPAddrPort(b)
			if err != nil || got != size {
				t.Fatalf("got %d bytes: %v", got, err)
			}
			sent++
			if i%2 == 1 {
				continue // not all are answered
			}
			if _, err := server.WriteToUDPAddrPort(b[:answer], at); err != nil {
				t.Fatal(err)
			}
			if err := client.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if got, err := client.Read(b); err != nil || got != answer {
				t.Fatalf("got %d bytes: %v", got, err)
			}
			answered++
		}
	}
	check := func(when string) {
		t.Helper()
		for _, side := range []struct {
			name string
			*tally
			ends [2]netip.Addr
		}{{"rome", rome, atRome}, {"milan", milan, atMilan}} {
			got := side.told(side.ends[0], side.ends[1])
			if got.Original.Packets != sent || got.Original.Bytes != sent*(size+headers) ||
				got.Reply.Packets != answered || got.Reply.Bytes != answered*(answer+headers) {
				t.Errorf("%s at %s: told %+v, want %d packets of %d, and %d of %d", when, side.name, got, sent, size+headers, answered, answer+headers)
			}
		}
	}
	check("before anything")
	talk(20)
	if got := rome.told(atRome[0], atRome[1]); got.Original.Packets != 0 {
		t.Errorf("told %+v of an open connection before anybody asked", got)
	}
	for _, when := range []string{"open", "open, read again"} {
		rome.read(t)
		milan.read(t)
		check(when)
	}
	talk(10)
	rome.read(t)
	milan.read(t)
	check("still open, and more was sent")
	talk(6)
	rome.end(t)
	milan.end(t)
	netnstest.Await(t, "rome tells of what has ended", patience, func() bool { return rome.told(atRome[0], atRome[1]).Original.Packets >= sent })
	netnstest.Await(t, "milan tells of what has ended", patience, func() bool { return milan.told(atMilan[0], atMilan[1]).Original.Packets >= sent })
	check("ended")
	rome.read(t)
	milan.read(t)
	check("ended, read again")
	for name, a := range map[string]*tally{"rome": rome, "milan": milan} {
		if n, err := a.meter.Lost(); n != 0 || err != nil {
			t.Errorf("%s: %d connections lost: %v", name, n, err)
		}
	}
}

// testTrafficTCP sends streams both ways, one of which nobody asks about while it is open.
func testTrafficTCP(t *testing.T, w *world, v4 bool) {
	rome, milan := w.tallies(t)
	atRome, atMilan := w.ways(v4)
	const there, back = 4 << 20, 1 << 20
	sent, answered := uint64(0), uint64(0)
	again := uint64(0) // what TCP has sent twice, which may cross twice
	send := func(from, to net.Conn, n int) {
		t.Helper()
		before := repeated(t, from)
		defer func() { again += repeated(t, from) - before }()
		wrote := make(chan error, 1)
		go func() {
			_, err := from.Write(make([]byte, n))
			wrote <- err
		}()
		if err := to.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, to, int64(n)); err != nil {
			t.Fatal(err)
		}
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
	}
	within := func(when, what string, d traffic.Direction, want uint64) {
		t.Helper()
		// Headers are 40 to 100 bytes of a packet.
		if d.Bytes < want+40*d.Packets || d.Bytes > want+again+100*d.Packets {
			t.Errorf("%s, %s: told %d bytes in %d packets, sent %d and again %d", when, what, d.Bytes, d.Packets, want, again)
		}
	}
	check := func(when string) {
		t.Helper()
		for name, p := range map[string]traffic.Portion{"rome": rome.told(atRome[0], atRome[1]), "milan": milan.told(atMilan[0], atMilan[1])} {
			within(when, name+" there", p.Original, sent)
			within(when, name+" back", p.Reply, answered)
		}
	}
	client, server := w.pair(t, w.rome.nodes[0].Pod, w.milan.nodes[1].Pod, atRome[1])
	for _, when := range []string{"open", "open, and more was sent"} {
		send(client, server, there)
		send(server, client, back)
		sent, answered = sent+there, answered+back
		for range 2 {
			rome.read(t)
			milan.read(t)
			check(when)
		}
	}
	_ = client.Close()
	_ = server.Close()
	client, server = w.pair(t, w.rome.nodes[0].Pod, w.milan.nodes[1].Pod, atRome[1])
	send(client, server, there)
	send(server, client, back)
	sent, answered = sent+there, answered+back
	rome.end(t)
	milan.end(t)
	netnstest.Await(t, "rome tells of what has ended", patience, func() bool { return rome.told(atRome[0], atRome[1]).Reply.Bytes >= answered })
	netnstest.Await(t, "milan tells of what has ended", patience, func() bool { return milan.told(atMilan[0], atMilan[1]).Reply.Bytes >= answered })
	check("one has ended, and another one that nobody asked about")
}

// repeated is how many bytes of a connection were sent again.
func repeated(t *testing.T, c net.Conn) (n uint64) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var inner error
	err = raw.Control(func(fd uintptr) {
		var info *unix.TCPInfo
		if info, inner = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); inner == nil {
			n = info.Bytes_retrans
		}
	})
	if err := errors.Join(err, inner); err != nil {
		t.Fatal(err)
	}
	return n
}
