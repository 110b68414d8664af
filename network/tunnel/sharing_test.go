package tunnel

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// always is a machine that has that much to spare, of a hundred.
func always(idle uint64) func() (uint64, uint64, error) {
	var all uint64
	return func() (uint64, uint64, error) {
		all += 100
		return all / 100 * idle, all, nil
	}
}

// TestHand has a tunnel hand over packets beside another one, and looks how many at a time and how often it rests.
func TestHand(t *testing.T) {
	const much = 3 * pile
	slow, quick := workMost, time.Duration(0)
	cases := []struct {
		reason  string
		packets int
		each    int
		took    time.Duration
		// ago is when the other one has had packets; negative if there is no other one.
		ago   time.Duration
		idle  uint64
		sizes []int
		rests int
	}{
		{"few at a time, and a rest after what takes long", much, pile, slow, 0, 0, []int{pile, pile, pile}, 3},
		{"what is left over", much + 1, pile, slow, 0, 0, []int{pile, pile, pile, 1}, 4},
		{"a rest when enough has come together", much, pile, workMost / 2, 0, 0, []int{pile, pile, pile}, 1},
		{"what takes no time", much, pile, quick, 0, 0, []int{pile, pile, pile}, 0},
		{"all at a time", much, much, slow, 0, 0, []int{much}, 1},
		{"nobody else is there", much, pile, slow, -1, 0, []int{much}, 0},
		{"nobody else has anything to do", much, pile, slow, company, 0, []int{much}, 0},
		{"somebody else had something just before", much, pile, slow, company - 1, 0, []int{pile, pile, pile}, 3},
		{"there are processors to spare", much, pile, slow, 0, 60, []int{much}, 0},
		{"who asks has few", few, pile, slow, 0, 0, []int{few}, 0},
		{"who floods has many, one at a time", 1, pile, slow, 0, 0, []int{1}, 1},
	}
	for _, c := range cases {
		s, now := NewSharing(), time.Now()
		rests := 0
		s.now = func() time.Time { return now }
		s.rest = func(d time.Duration) {
			if rests++; d != restFor {
				t.Errorf("%s: a rest of %s", c.reason, d)
			}
		}
		s.spare.read = always(c.idle)
		s.spare.busy(now.Add(-spareEvery))
		m, other := s.join(), s.join()
		if c.ago < 0 {
			other.leave()
		} else {
			other.took(1, now.Add(-c.ago))
		}
		if c.packets == 1 {
			m.took(lots-1, now.Add(-lotsIn)) // forgotten
			m.took(lots/2, now)
			m.took(lots/2, now)
		}
		var sizes []int
		n, err := m.hand(make([][]byte, c.packets), c.each, func(some [][]byte) (int, error) {
			sizes = append(sizes, len(some))
			now = now.Add(c.took)
			return len(some), nil
		})
		if err != nil || n != c.packets || !slices.Equal(sizes, c.sizes) || rests != c.rests {
			t.Errorf("%s: %d, %v, by %v with %d rests, want %v and %d", c.reason, n, err, sizes, rests, c.sizes, c.rests)
		}
		m.leave()
		if n := len(*s.members.Load()); n != map[bool]int{true: 0, false: 1}[c.ago < 0] {
			t.Errorf("%s: %d are left", c.reason, n)
		}
	}
}

// TestLeavingWindow holds that what waits while a writer is at it, or rests, is not taken for dropped, however long that lasts:
// more would come in, and all of it would have to be kept.
func TestLeavingWindow(t *testing.T) {
	s := NewSharing()
	s.spare.read = always(0)
	s.spare.busy(time.Now().Add(-spareEvery))
	s.join().took(1, time.Now().Add(time.Hour))
	begun, end := make(chan struct{}), make(chan struct{})
	s.rest = func(time.Duration) { close(begun); <-end }
	w := newWindow(time.Millisecond)
	a := &attached{Device: nowhere{}, in: w, member: s.join()}
	w.add(windowMost, time.Now())
	packets := [][]byte{make([]byte, workMost/perByte)}
	for range few {
		packets = append(packets, nil)
	}
	a.member.took(lots, time.Now())
	go func() { _, _ = a.Write(packets, 0) }()
	<-begun
	w.under.Store(windowMost) // as if more had come
	select {
	case <-w.freed:
	default:
	}
	free := make(chan struct{})
	go func() { w.wait(); close(free) }()
	select {
	case <-free:
		t.Error("there is room while it rests")
	case <-time.After(20 * w.stall):
	}
	close(end)
	select {
	case <-free:
	case <-time.After(patience):
		t.Fatal("no room after its rest")
	}
}

// nowhere is a TUN device that takes all packets.
type nowhere struct{ tun.Device }

func (nowhere) Write(packets [][]byte, _ int) (int, error) { return len(packets), nil }

// TestHandAll goes on after errors, counts bytes, and hands over all at once for who does not share.
func TestHandAll(t *testing.T) {
	s := NewSharing()
	rests := 0
	s.rest = func(time.Duration) { rests++ }
	s.spare.read = always(0)
	s.spare.busy(time.Now().Add(-spareEvery))
	m := s.join()
	s.join().took(1, time.Now().Add(time.Second))
	packets := make([][]byte, 2*pile)
	for i := range packets {
		packets[i] = make([]byte, workMost/perByte/pile)
	}
	first, last := errors.New("the first"), errors.New("the last")
	n, err := m.hand(packets, pile, func(some [][]byte) (int, error) {
		if rests == 0 {
			return len(some), first
		}
		return len(some), last
	})
	if n != len(packets) || !errors.Is(err, first) || !errors.Is(err, last) || rests != 2 || m.hasRested() == 0 {
		t.Errorf("%d, %v, %d rests of %s", n, err, rests, m.hasRested())
	}
	var alone *member
	alone.took(1, time.Now())
	n, err = alone.hand(packets, pile, func(all [][]byte) (int, error) { return len(all), nil })
	alone.leave()
	if n != len(packets) || err != nil || alone.hasRested() != 0 || (*Sharing)(nil).join() != nil {
		t.Errorf("who does not share: %d, %v", n, err)
	}
}

// TestSpare has processors be busy and idle.
func TestSpare(t *testing.T) {
	var idle, all uint64
	var failed error
	s := spare{read: func() (uint64, uint64, error) { return idle, all, failed }}
	at := time.Now()
	steps := []struct {
		reason string
		after  time.Duration
		idle   uint64 // of a hundred since
		failed error
		want   bool
	}{
		{"nothing is known", 0, 0, nil, false},
		{"not looked at yet", spareEvery / 2, 0, nil, false},
		{"all in use", spareEvery, 9, nil, true},
		{"some left, as somebody rests", spareEvery, 49, nil, true},
		{"most left", spareEvery, 51, nil, false},
		{"some left", spareEvery, 11, nil, false},
		{"few left", spareEvery, 5, nil, true},
		{"idle times shrink", spareEvery, ^uint64(0), nil, true},
		{"not to be read", spareEvery, 0, errors.New("gone"), false},
	}
	for _, step := range steps {
		at, idle, all, failed = at.Add(step.after), idle+step.idle, all+100, step.failed
		if got := s.busy(at); got != step.want {
			t.Errorf("%s: busy: %t", step.reason, got)
		}
	}
}

func TestTimesIn(t *testing.T) {
	for _, c := range []struct {
		text      string
		idle, all uint64
		fails     bool
	}{
		{"cpu  10 20 30 400 5 6 7 8 900 1000\ncpu0 1 2 3\n", 405, 486, false},
		{"cpu  10 20 30 400 5\n", 405, 465, false}, // of an old kernel
		{"cpu  10 20 30 400\n", 0, 0, true},
		{"cpu0 10 20 30 400 5 6 7 8\n", 0, 0, true},
		{"cpu  10 20 30 -400 5 6 7 8\n", 0, 0, true},
		{"", 0, 0, true},
	} {
		idle, all, err := timesIn([]byte(c.text))
		if idle != c.idle && err == nil || all != c.all && err == nil || (err != nil) != c.fails {
			t.Errorf("%q: %d of %d, %v", c.text, idle, all, err)
		}
	}
	idle, all, err := processorTimes()
	if err != nil || all == 0 || idle > all {
		t.Errorf("of this machine: %d of %d, %v", idle, all, err)
	}
}

// TestSharing floods one of two tunnels of a node whose processors are busy: it rests while the other one has something to
// do, which does not.
func TestSharing(t *testing.T) {
	netnstest.Root(t)
	s := NewSharing()
	s.spare.read = always(0)
	one, here, device := sharing(t, s)
	two, there, other := sharing(t, s)

	group, stop := sync.WaitGroup{}, make(chan struct{})
	sink, source := datagrams(t, here.gateway, here.inside), datagrams(t, one.gateway, one.inside)
	// The kernel cuts what is sent, so that as many packets come at once as this process has no time to send one by one.
	const flood = 1000
	raw, err := source.(*net.UDPConn).SyscallConn()
	if err == nil {
		if failed := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, flood) }); failed != nil {
			err = failed
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	group.Go(func() {
		to, text := sink.LocalAddr(), make([]byte, 50*flood)
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = source.WriteTo(text, to) // lost, if it is
			}
		}
	})
	defer group.Wait()
	defer close(stop)
	// Where a machine is slow the other one's first pings are still under way for a moment.
	await(t, "the flood arrives, and does not rest with nobody else", patience, func() bool {
		before := here.stats(device)
		await(t, "the flood arrives", patience, func() bool { return here.stats(device).Received > before.Received+1<<20 })
		return here.stats(device).Rested == before.Rested
	})
	p := two.ping(there, 5*time.Millisecond)
	await(t, "it rests", patience, func() bool { return here.stats(device).Rested > 100*time.Millisecond })
	start := time.Now()
	await(t, "the other one answers", patience, func() bool { return p.answeredAfter(start) })
	if rested := there.stats(other).Rested; rested > 0 {
		t.Errorf("the other one has rested for %s", rested)
	}
}

// sharing is a tunnel whose one end shares.
func sharing(t testing.TB, s *Sharing) (from, to *side, device *Device) {
	t.Helper()
	from, to = newSides(t)
	device = to.open(Options{Userspace: true, Sharing: s}, to.config(from))
	from.open(Options{Userspace: true}, from.config(to, to.endpoint()))
	p := from.ping(to, 20*time.Millisecond)
	start := time.Now()
	await(t, "a first ping", patience, func() bool { return p.answeredAfter(start) })
	p.end()
	return from, to, device
}

// datagrams is a socket of a gateway.
func datagrams(t *testing.T, gateway *os.File, at netip.Addr) (c net.PacketConn) {
	t.Helper()
	err := netns.In(gateway, func() (err error) {
		c, err = net.ListenPacket("udp", netip.AddrPortFrom(at, 0).String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
