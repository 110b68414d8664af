package health

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// link joins two sockets in memory, so that a bubble's clock runs through minutes at once.
// What crosses is what through says, each copy after delay.
type link struct {
	mu      sync.Mutex
	delay   time.Duration
	through func(from netip.AddrPort, b []byte) (copies int)
	sent    map[netip.AddrPort]int // whether or not it arrived, by sender
	ends    map[netip.AddrPort]*end
}

type packet struct {
	from netip.AddrPort
	b    []byte
}

type end struct {
	link   *link
	at     netip.AddrPort
	in     chan packet
	errs   chan error
	once   sync.Once
	closed chan struct{}
}

var (
	romeAt  = netip.MustParseAddrPort("[fd00::1]:4100")
	milanAt = netip.MustParseAddrPort("[fd00::2]:4100")
)

func newLink(delay time.Duration) (l *link, rome, milan *end) {
	l = &link{delay: delay, sent: map[netip.AddrPort]int{}, ends: map[netip.AddrPort]*end{}}
	l.heal()
	return l, l.open(romeAt), l.open(milanAt)
}

func (l *link) open(at netip.AddrPort) *end {
	e := &end{link: l, at: at, in: make(chan packet, 100), errs: make(chan error, 1), closed: make(chan struct{})}
	l.ends[at] = e
	return e
}

func (l *link) set(through func(from netip.AddrPort, b []byte) int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.through = through
}

func (l *link) cut()  { l.set(func(netip.AddrPort, []byte) int { return 0 }) }
func (l *link) heal() { l.set(func(netip.AddrPort, []byte) int { return 1 }) }

// minute is how many probes go out in a minute at least, and in ten seconds a sixth of that.
const minute = int(time.Minute / Interval)

// probes waits until rome has sent so many more datagrams than by now; what it sends at this instant counts as sent.
func (l *link) probes(t *testing.T, more int) {
	t.Helper()
	synctest.Wait()
	want := l.asked() + more
	until(t, "probes go out", func() bool { return l.asked() >= want })
}

// asked is how many datagrams rome has sent.
func (l *link) asked() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent[romeAt]
}

// until waits in a bubble until something is so. Its clock moves on while nobody has
// anything to do, so this takes no time.
func until(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(ms)
	defer tick.Stop()
	deadline := time.Now().Add(10 * time.Minute)
	for synctest.Wait(); !so(); synctest.Wait() {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
		<-tick.C
	}
}

// deliver puts a datagram into a socket as if it came from an address.
func (e *end) deliver(from netip.AddrPort, b []byte) {
	select {
	case e.in <- packet{from, append([]byte(nil), b...)}:
	default: // full, as sockets are
	}
}

func (e *end) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	select {
	case p := <-e.in:
		return copy(b, p.b), p.from, nil
	case err := <-e.errs:
		return 0, netip.AddrPort{}, err
	case <-e.closed:
		return 0, netip.AddrPort{}, net.ErrClosed
	}
}

func (e *end) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	e.link.mu.Lock()
	defer e.link.mu.Unlock()
	other := e.link.ends[to]
	if other == nil {
		return 0, errors.New("network is unreachable")
	}
	e.link.sent[e.at]++
	sent := append([]byte(nil), b...)
	for range e.link.through(e.at, sent) {
		time.AfterFunc(e.link.delay, func() { other.deliver(e.at, sent) })
	}
	return len(b), nil
}

func (e *end) SetWriteDeadline(time.Time) error { return nil }

func (e *end) Close() error {
	e.once.Do(func() { close(e.closed) })
	return nil
}

// diary is what a Prober called for.
type diary struct {
	mu      sync.Mutex
	began   time.Time
	kicks   []time.Duration
	changes []change
}

type change struct {
	at    time.Duration
	alive bool
}

func (d *diary) kick(context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.kicks = append(d.kicks, time.Since(d.began))
}

func (d *diary) changed(_ context.Context, r Report) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changes = append(d.changes, change{time.Since(d.began), r.Alive})
}

// read returns what has been written and begins a new page.
func (d *diary) read() (kicks []time.Duration, changes []change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	kicks, changes = d.kicks, d.changes
	d.kicks, d.changes, d.began = nil, nil, time.Now()
	return kicks, changes
}

// run runs something until the test is over, or until stop, and wants it to end without
// an error.
func run(t *testing.T, f func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("it ends with: %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("it does not end")
		}
	})
	t.Cleanup(stop)
	return stop
}
