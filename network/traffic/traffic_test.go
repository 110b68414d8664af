package traffic

import (
	"encoding/binary"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// loop is a namespace of which the kernel follows connections, and a socket that calls any number of
// addresses in it.
type loop struct {
	*netnstest.Place
	client *net.UDPConn
}

const (
	payload = 10
	headers = 28
)

func newLoop(t *testing.T) *loop {
	t.Helper()
	l := &loop{Place: netnstest.NewPlace(t, "loop")}
	l.Must(l.Nftables(func(c *nftables.Conn) {
		table := c.AddTable(&nftables.Table{Name: "follow", Family: nftables.TableFamilyINet})
		chain := c.AddChain(&nftables.Chain{Name: "out", Table: table, Type: nftables.ChainTypeFilter,
			Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter})
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{&expr.Ct{Key: expr.CtKeySTATE, Register: 1}}})
	}))
	var server *net.UDPConn // reads nothing: the kernel has counted what comes
	l.In(func() (err error) {
		if server, err = net.ListenUDP("udp4", &net.UDPAddr{Port: netnstest.Port}); err == nil {
			l.client, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		}
		return err
	})
	t.Cleanup(func() { _, _ = server.Close(), l.client.Close() })
	return l
}

// at is the i-th address that can be called.
func at(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{127, 1 + byte(i>>16), byte(i >> 8), byte(i)})
}

// call sends datagrams to an address.
func (l *loop) call(to netip.Addr, times int) {
	l.T.Helper()
	for range times {
		_, err := l.client.WriteToUDPAddrPort(make([]byte, payload), netip.AddrPortFrom(to, netnstest.Port))
		l.Must(err)
	}
}

// end ends all connections.
func (l *loop) end() {
	l.In(func() error {
		_, err := netlink.ConntrackDeleteFilters(netlink.ConntrackTable, unix.AF_INET, all{})
		return err
	})
}

type all struct{}

func (all) MatchConntrackFlow(*netlink.ConntrackFlow) bool { return true }

// tally counts what was told of addresses that were called.
type tally struct {
	mu      sync.Mutex
	packets map[netip.Addr]uint64
	bytes   uint64
}

func (a *tally) add(p Portion) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.packets == nil {
		a.packets = map[netip.Addr]uint64{}
	}
	a.packets[p.Original.To] += p.Original.Packets
	a.bytes += p.Original.Bytes
}

// sum is how many addresses were told of, and with how many packets.
func (a *tally) sum() (addresses int, packets uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, n := range a.packets {
		packets += n
	}
	return len(a.packets), packets
}

func (l *loop) open(o Options) *Meter {
	l.T.Helper()
	o.Namespace = l.File
	m, err := Open(o)
	l.Must(err)
	l.T.Cleanup(func() { _ = m.Close() })
	return m
}

// TestMost: a Read tells of no more connections than it may, of the largest first, and none is
// forgotten for that.
func TestMost(t *testing.T) {
	const connections, most, large = 1000, 50, 30
	l, got := newLoop(t), &tally{}
	m := l.open(Options{Told: got.add, Most: most})
	sent := uint64(0)
	for i := range connections {
		n := 1
		if i%(connections/large+1) == 0 {
			n = 3
		}
		l.call(at(i), n)
		sent += uint64(n)
	}
	for read := 1; read <= connections/most; read++ {
		l.Must(m.Read(t.Context()))
		if n, packets := got.sum(); n != read*most || read == 1 && packets != most+2*large {
			t.Fatalf("after %d reads: %d connections told of, with %d packets", read, n, packets)
		}
	}
	l.call(at(7), 1)
	l.end()
	sent++
	netnstest.Await(t, "what was sent last is told of", netnstest.Patience, func() bool { _, n := got.sum(); return n >= sent })
	l.Must(m.Read(t.Context()))
	if n, packets := got.sum(); n != connections || packets != sent || got.bytes != sent*(payload+headers) {
		t.Errorf("told of %d connections with %d packets and %d bytes, sent %d in %d", n, packets, got.bytes, sent, connections)
	}
}

// TestLook: who looks at some connections only tells of the others when they end, and many of them
// take no memory.
func TestLook(t *testing.T) {
	const connections, look = 20000, 2000
	l, got := newLoop(t), &tally{}
	m := l.open(Options{Told: got.add, Look: look, Most: 10})
	for i := range connections {
		l.call(at(i), 1)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	l.Must(m.Read(t.Context()))
	runtime.ReadMemStats(&after)
	if n, _ := got.sum(); n != 10 {
		t.Errorf("told of %d connections", n)
	}
	m.options.Look = connections + 1
	var whole runtime.MemStats
	l.Must(m.Read(t.Context()))
	runtime.ReadMemStats(&whole)
	t.Logf("of %d connections: %d bytes for a look at %d of them, %d for one at all", connections, after.TotalAlloc-before.TotalAlloc, look, whole.TotalAlloc-after.TotalAlloc)
	if short, long := after.TotalAlloc-before.TotalAlloc, whole.TotalAlloc-after.TotalAlloc; short > 1<<20 || long > 10<<20 {
		t.Errorf("a look at some took %d bytes, one at all %d", short, long)
	}
	l.end()
	netnstest.Await(t, "all are told of", netnstest.Patience, func() bool { _, n := got.sum(); return n >= connections })
	if n, packets := got.sum(); n != connections || packets != connections {
		t.Errorf("told of %d connections with %d packets", n, packets)
	}
}

// TestLost: what could not be told of in time is known by its number.
func TestLost(t *testing.T) {
	const connections = 3000
	l, got, gate := newLoop(t), &tally{}, make(chan struct{})
	m := l.open(Options{Buffer: 1 << 16, Told: func(p Portion) {
		<-gate
		got.add(p)
	}})
	for i := range connections {
		l.call(at(i), 1)
	}
	l.end() // while nobody reads
	close(gate)
	lost := func() uint64 {
		n, err := m.Lost()
		l.Must(err)
		return n
	}
	told := func() uint64 { _, n := got.sum(); return n }
	netnstest.Await(t, "all that is left is told of", netnstest.Patience, func() bool { return told()+lost() >= connections })
	if n := lost(); n == 0 || n >= connections || told()+n != connections {
		t.Errorf("%d connections, %d told of, %d lost", connections, told(), n)
	}
	l.call(at(connections), 1)
	before := told()
	l.end()
	netnstest.Await(t, "it goes on", netnstest.Patience, func() bool { return told() > before })
}

// TestAgain: the next process goes on where one has ended, and does not tell again what that has told.
func TestAgain(t *testing.T) {
	l, first, second := newLoop(t), &tally{}, &tally{}
	m := l.open(Options{Told: first.add})
	l.call(at(1), 5)
	l.Must(m.Read(t.Context()))
	l.Must(m.Close())
	l.call(at(1), 3)
	l.call(at(2), 2) // began while nobody listened, and is told of when it ends
	l.open(Options{Told: second.add})
	l.end()
	netnstest.Await(t, "both are told of", netnstest.Patience, func() bool { n, _ := second.sum(); return n == 2 })
	if _, n := first.sum(); n != 5 {
		t.Errorf("the first one told of %d packets, sent 5", n)
	}
	if _, n := second.sum(); n != 5 {
		t.Errorf("the second one told of %d packets, sent 5", n)
	}
}

// TestClose: the end waits for what is being told, nothing is told after it, and whoever asks then gets
// an error.
func TestClose(t *testing.T) {
	l, entered, gate := newLoop(t), make(chan struct{}), make(chan struct{})
	var told atomic.Bool
	m := l.open(Options{Told: func(Portion) {
		close(entered)
		<-gate
		for range 100000 { // long enough for an end that does not wait
			runtime.Gosched()
		}
		told.Store(true)
	}})
	l.call(at(1), 1)
	l.end()
	<-entered
	go func() {
		for m.events.raw.Control(func(uintptr) {}) == nil {
			runtime.Gosched()
		}
		close(gate) // when it is ending
	}()
	l.Must(m.Close())
	if !told.Load() {
		t.Error("it ended while it told something")
	}
	if err := m.Read(t.Context()); err == nil {
		t.Error("a closed one is read")
	}
}

// FuzzRead has messages read that no kernel sends.
func FuzzRead(f *testing.F) {
	attr := func(kind uint16, value []byte) []byte {
		b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
		return append(binary.NativeEndian.AppendUint16(b, kind), value...)
	}
	tuple := attr(unix.NLA_F_NESTED|1, append(attr(1, []byte{10, 0, 0, 1}), attr(2, []byte{10, 0, 0, 2})...))
	counts := append(attr(counterPackets, binary.BigEndian.AppendUint64(nil, 3)), attr(counterBytes, binary.BigEndian.AppendUint64(nil, 300))...)
	whole := append([]byte{unix.AF_INET, 0, 0, 0}, attr(unix.NLA_F_NESTED|1, tuple)...)
	whole = append(whole, attr(unix.NLA_F_NESTED|9, counts)...)
	want := Portion{Original: Direction{From: netip.MustParseAddr("10.0.0.1"), To: netip.MustParseAddr("10.0.0.2"), Packets: 3, Bytes: 300}}
	if got := read(whole).portion(); got != want {
		f.Fatalf("got %+v, want %+v", got, want)
	}
	for i := range whole {
		f.Add(whole[:i])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e := read(b)
		(&largest{most: 1}).add(e)
		_ = e.portion()
	})
}
