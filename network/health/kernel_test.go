package health

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// side is one of two namespaces joined by a veth, with all that a gateway runs.
type side struct {
	t       *testing.T
	ns      *os.File
	at      netip.Addr
	prober  *Prober
	changes chan Report
	kicks   chan struct{}
	late    func(since time.Time) time.Duration
}

const device = "tunnel"

func newSide(t *testing.T, at netip.Addr) *side {
	t.Helper()
	return &side{t: t, ns: netnstest.New(t), at: at, changes: make(chan Report, 100), kicks: make(chan struct{}, 100), late: lateness(t)}
}

// lateness measures for how long in all, since a time, this process was not woken when
// it should have been: on a machine that is busy with other things, that is not the
// tunnel's fault.
func lateness(t *testing.T) func(since time.Time) time.Duration {
	t.Helper()
	const look, fair = 5 * ms, 10 * ms
	var mu sync.Mutex
	late := map[time.Time]time.Duration{}
	run(t, func(ctx context.Context) error {
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(look):
			}
			if by := time.Since(last) - look; by > fair {
				mu.Lock()
				late[time.Now()] = by
				mu.Unlock()
			}
		}
	})
	return func(since time.Time) (sum time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		for at, by := range late {
			if at.After(since) {
				sum += by
			}
		}
		return sum
	}
}

// up cuts or heals the link at this side.
func (s *side) up(up bool) {
	s.t.Helper()
	netnstest.Up(s.t, s.ns, device, up)
}

func (s *side) join(other *side) {
	s.t.Helper()
	netnstest.Join(s.t, s.ns, device, other.ns, device, 1500)
	for _, end := range []*side{s, other} {
		netnstest.Change(s.t, end.ns, func(k *netlink.Handle) error {
			l, err := k.LinkByName(device)
			if err != nil {
				return err
			}
			ip := &net.IPNet{IP: end.at.AsSlice(), Mask: net.CIDRMask(end.at.BitLen()-2, end.at.BitLen())}
			return k.AddrAdd(l, &netlink.Addr{IPNet: ip})
		})
	}
}

func (s *side) listen(port uint16) *net.UDPConn {
	s.t.Helper()
	var conn *net.UDPConn
	if err := netns.In(s.ns, func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(s.at, port)))
		return err
	}); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

const healthPort = 4100

func (s *side) start(other *side) (stop func()) {
	s.t.Helper()
	respond := run(s.t, NewResponder(ResponderOptions{
		Peering: "other", Conn: s.listen(healthPort), From: []netip.Prefix{netip.PrefixFrom(other.at, other.at.BitLen())},
	}).Run)
	s.prober = NewProber(ProberOptions{
		Peering: "other", Conn: s.listen(0), Peer: netip.AddrPortFrom(other.at, healthPort),
		Kick:    func(context.Context) { s.kicks <- struct{}{} },
		Changed: func(_ context.Context, r Report) { s.changes <- r },
	})
	probe := run(s.t, s.prober.Run)
	return func() { probe(); respond() }
}

// spare is for what lateness does not see, as it is not this process that is late: the kernel, or the processor of
// one of its threads.
const spare = 5 * time.Second

// expect waits for the next change, which must come within a time after another.
func (s *side) expect(what string, alive bool, from time.Time, within time.Duration) {
	s.t.Helper()
	within += spare
	for {
		select {
		case r := <-s.changes:
			took, late := time.Since(from), s.late(from)
			s.t.Logf("%s: %v knows after %v; this process was late by %v", what, s.at, took.Round(ms), late.Round(ms))
			if r.Alive != alive || !r.Known || took > within+late {
				s.t.Fatalf("%s: %v says %+v after %v, want %v within %v", what, s.at, r, took, alive, within)
			}
			return
		case <-time.After(20 * ms):
			if took := time.Since(from); took > within+s.late(from) {
				s.t.Fatalf("%s: %v still says %+v after %v", what, s.at, s.prober.Report(), took)
			}
		}
	}
}

// TestKernel cuts and heals a real link between two sides that both probe. The times that Services count on are held
// exactly on a clock of their own, as by TestProber.
func TestKernel(t *testing.T) {
	rome, milan := newSide(t, netip.MustParseAddr("10.99.0.1")), newSide(t, netip.MustParseAddr("10.99.0.2"))
	rome.join(milan)
	both := []*side{rome, milan}
	began := time.Now()
	stops := []func(){rome.start(milan), milan.start(rome)}
	for _, s := range both {
		s.expect("at first", true, began, 1500*ms)
	}
	for _, cutter := range both {
		for _, s := range both {
			for len(s.kicks) > 0 { // a new link may take a second to carry anything
				<-s.kicks
			}
		}
		cutter.up(false)
		cut := time.Now()
		for _, s := range both {
			s.expect("after the cut", false, cut, 3*time.Second)
			select {
			case <-s.kicks: // a busy machine may have seen the next ones as well
			case <-time.After(spare):
				t.Errorf("after the cut: %v did not kick", s.at)
			}
		}
		cutter.up(true)
		healed := time.Now()
		for _, s := range both {
			// The second death within a minute takes two answers more.
			within := 1500 * ms
			if cutter == milan {
				within += aliveStep * Interval
			}
			s.expect("after healing", true, healed, within)
		}
	}
	for _, s := range both {
		if r := s.prober.Report(); r.Latency.P50 <= 0 || r.Latency.P50 > 100*ms || r.Loss > .9 {
			t.Errorf("%v reports %+v", s.at, r)
		}
	}
	for _, stop := range stops {
		stop()
	}
	for _, s := range both { // what has ended has left its ports
		if err := s.listen(healthPort).Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestKernelWithoutPeer has a socket whose every datagram is refused or goes nowhere.
func TestKernelWithoutPeer(t *testing.T) {
	alone := newSide(t, netip.IPv4Unspecified())
	conn := alone.listen(0)
	if _, err := conn.WriteToUDPAddrPort(nil, milanAt); err == nil {
		t.Fatal("a namespace without devices sends")
	}
	p := NewProber(ProberOptions{
		Conn: conn, Peer: netip.MustParseAddrPort("10.99.0.2:4100"),
		Changed: func(_ context.Context, r Report) { alone.changes <- r },
	})
	alone.prober = p
	began := time.Now()
	stop := run(t, p.Run)
	alone.expect("without a network", false, began, 3*time.Second)
	stop()
	if _, err := conn.Write(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the socket is not closed: %v", err)
	}
}
