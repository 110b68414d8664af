package plan

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/health"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestFabric applies plans to nodes with all that is real but Kubernetes: the data plane,
// tunnels and probes, between two clusters of the same addresses.
func TestFabric(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rome.apply(t)
	w.milan.apply(t)
	t.Logf("alive after %s", w.alive(t).Round(time.Millisecond))
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"the same again changes nothing", testAgain},
		{"pods reach pods by views, and are seen by views", testPods},
		{"nodes reach pods, and are seen by the external address", testNodes},
		{"much goes through where nobody is told of too large packets", testBlackhole},
		{"much goes through", testTransfer},
		{"only what is allowed is reached", testLimited},
		{"a pod is reached by an address in another node's range", testBorrowed},
		{"doors lead to what is no pod", testDoors},
		{"what owners map is reached, and no longer than it is", testMapped},
		{"connections that are silent survive that another node becomes gateway", testIdle},
		{"another node becomes gateway", testMove},
		{"nobody is gateway", testNobody},
		{"nothing is left", testNothing},
	} {
		if !t.Run(c.name, func(t *testing.T) { c.test(t, w) }) {
			return // one world for all
		}
	}
}

func testAgain(t *testing.T, w *world) {
	for _, s := range []*side{w.rome, w.milan} {
		before := s.report(s.gateway(t)).Since
		s.apply(t)
		if after := s.report(s.gateway(t)).Since; !after.Equal(before) {
			t.Errorf("%s: alive since %s, and before since %s", s.Name, after, before)
		}
	}
}

// testPods goes both ways between all nodes, of which one in each cluster is the gateway.
func testPods(t *testing.T, w *world) {
	for _, way := range [][2]*side{{w.rome, w.milan}, {w.milan, w.rome}} {
		for from, n := range way[0].Nodes {
			for to := range way[1].Nodes {
				for _, v4 := range netnstest.Families {
					at := way[0].seen(t, netnstest.PodAddr(42, to, 5, v4))
					w.seen(t, n.Pod, at, way[1].seen(t, netnstest.PodAddr(42, from, 5, v4)))
				}
			}
		}
	}
}

func testNodes(t *testing.T, w *world) {
	for _, n := range w.rome.Nodes {
		for to := range w.milan.Nodes {
			for v4, external := range map[bool]string{true: "10.43.0.1", false: "fd43::1"} {
				w.seen(t, n.Place, w.rome.seen(t, netnstest.PodAddr(42, to, 5, v4)), w.milan.seen(t, netip.MustParseAddr(external)))
			}
		}
	}
}

// seen opens a connection and looks who the server says it is with.
func (w *world) seen(t *testing.T, from *netnstest.Place, to, want netip.Addr) {
	t.Helper()
	c, seen, err := from.Dial(to, netnstest.Patience)
	if err != nil {
		t.Errorf("from %s to %s: %v", from.Name, to, err)
		return
	}
	_ = c.Close()
	if seen != want.String() {
		t.Errorf("from %s to %s: seen as %s, want %s", from.Name, to, seen, want)
	}
}

// testDoors has doors of rome's, one after the other to its gateway node, to the other one and to
// what knows rome's nodes only, which one pod of milan's may use.
func testDoors(t *testing.T, w *world) {
	rome, g := &w.rome.in.Peerings[0], w.rome.gateway(t)
	at := netip.MustParseAddr("10.43.0.2")
	w.router.Listen()
	w.rome.Nodes[0].Listen()
	w.rome.Nodes[1].Listen()
	called := w.milan.seen(t, at)
	allowed, other := netnstest.PodAddr(42, 1, 5, true), w.milan.Nodes[0].Pod
	for _, c := range []struct{ to, as string }{
		{netnstest.NodeAddr(g, true).String(), w.rome.seen(t, allowed).String()},
		{netnstest.NodeAddr(1-g, true).String(), w.rome.seen(t, allowed).String()},
		{fmt.Sprintf("198.51.100.%d", 4*g+2), outside("198.51.100", g)},
	} {
		to := netip.MustParseAddr(c.to)
		rome.Limited, rome.There, rome.Here = true, []netip.Addr{allowed}, nil
		rome.Doors = []dataplane.Door{{At: netip.AddrPortFrom(at, netnstest.Port), To: netip.AddrPortFrom(to, netnstest.Port), From: []netip.Addr{allowed}}}
		w.rome.apply(t)
		w.seen(t, w.milan.Nodes[1].Pod, called, netip.MustParseAddr(c.as))
		w.denied(t, other, called)
		rome.Doors[0].From = nil
		w.rome.apply(t)
		w.denied(t, w.milan.Nodes[1].Pod, called)
	}
	rome.Limited, rome.There, rome.Doors = false, nil, nil
	w.rome.apply(t)
	w.denied(t, w.milan.Nodes[1].Pod, called)
	testPods(t, w)
}

func (w *world) denied(t *testing.T, from *netnstest.Place, to netip.Addr) {
	t.Helper()
	if c, _, err := from.Dial(to, netnstest.Silence); err == nil {
		_ = c.Close()
		t.Errorf("%s reaches %s", from.Name, to)
	}
}

// testBorrowed gives a pod of each node an address in the other's range, as some CNIs do.
func testBorrowed(t *testing.T, w *world) {
	for i, n := range w.rome.Nodes {
		w.rome.in.Nodes[i].Pods = nil
		for _, v4 := range netnstest.Families {
			borrowed := netnstest.PodAddr(42, 1-i, 77, v4)
			prefix := netip.PrefixFrom(borrowed, borrowed.BitLen())
			n.Pod.Address("eth0", prefix.String())
			defer n.Pod.Unaddress("eth0", prefix) // from which it would call
			n.Route(prefix.String(), netnstest.PodAddr(42, i, 5, v4).String(), "cni0")
			w.rome.in.Nodes[i].Pods = append(w.rome.in.Nodes[i].Pods, borrowed)
		}
	}
	w.rome.apply(t)
	for i := range w.rome.Nodes {
		for from, n := range w.milan.Nodes {
			for _, v4 := range netnstest.Families {
				at := w.milan.seen(t, netnstest.PodAddr(42, 1-i, 77, v4))
				w.seen(t, n.Pod, at, w.rome.seen(t, netnstest.PodAddr(42, from, 5, v4)))
			}
		}
	}
}

// pulse is a connection that says a number every gap, and hears it back.
type pulse struct {
	t     *testing.T
	conn  net.Conn
	parts sync.WaitGroup
	stop  chan struct{}

	mu     sync.Mutex
	sent   uint32
	heard  []time.Time
	behind int // of what was said the most that had not come back yet, since it was set to 0
	err    error
}

const gap = 20 * time.Millisecond

func newPulse(t *testing.T, c net.Conn) *pulse {
	t.Helper()
	p := &pulse{t: t, conn: c, stop: make(chan struct{})}
	_ = c.SetDeadline(time.Now().Add(10 * time.Minute)) // more than any test of it takes
	p.parts.Go(p.say)
	p.parts.Go(p.hear)
	t.Cleanup(func() { _ = c.Close(); p.parts.Wait() })
	return p
}

func (p *pulse) say() {
	tick := time.NewTicker(gap)
	defer tick.Stop()
	for {
		p.mu.Lock()
		b := binary.BigEndian.AppendUint32(nil, p.sent)
		p.sent++
		p.behind = max(p.behind, int(p.sent)-len(p.heard))
		p.mu.Unlock()
		if _, err := p.conn.Write(b); err != nil {
			p.fail(err)
			return
		}
		select {
		case <-p.stop:
			return
		case <-tick.C:
		}
	}
}

func (p *pulse) hear() {
	for b := make([]byte, 4); ; {
		if _, err := io.ReadFull(p.conn, b); err != nil {
			if !errors.Is(err, net.ErrClosed) {
				p.fail(err)
			}
			return
		}
		p.mu.Lock()
		if n := binary.BigEndian.Uint32(b); int(n) != len(p.heard) {
			p.err = errors.Join(p.err, errors.New("numbers come in another order"))
		}
		p.heard = append(p.heard, time.Now())
		p.mu.Unlock()
	}
}

func (p *pulse) fail(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = errors.Join(p.err, err)
}

// since is when the first number came after a time.
func (p *pulse) since(at time.Time) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.heard {
		if h.After(at) {
			return h, true
		}
	}
	return time.Time{}, false
}

// worst is the longest silence after a time.
func (p *pulse) worst(after time.Time) (longest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := 1; i < len(p.heard); i++ {
		if p.heard[i].After(after) {
			longest = max(longest, p.heard[i].Sub(p.heard[i-1]))
		}
	}
	return longest
}

// end stops it and holds that everything that was said came back.
func (p *pulse) end(t *testing.T) {
	t.Helper()
	close(p.stop)
	netnstest.Await(t, "all that was said came back", netnstest.Patience, func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.err != nil || len(p.heard) == int(p.sent)
	})
	if p.mu.Lock(); p.err != nil {
		t.Errorf("a connection did not survive: %v", p.err)
	}
	p.mu.Unlock()
}

// How long it may take to move, from the new plan to a ping that comes back, and to a byte of
// a connection: one that is speaking sends again about 0.2, 0.6, 1.5, 3, 6 and 13 s after the
// last answer, and so finds out later than a ping. The log has the times, of which the tunnel's
// are tens of milliseconds; these are for machines that have other things to do, and less than
// the 25 s after which a peer speaks by itself.
const (
	pingWithin = 10 * time.Second
	byteWithin = 15 * time.Second
)

// testMove cuts the links of rome's gateway node, waits until probes say so, makes the
// other node gateway, and at the end goes back.
func testMove(t *testing.T, w *world) {
	g := w.rome.gateway(t)
	lost, other := w.rome.Nodes[g], w.rome.Nodes[1-g]
	var pulses []*pulse
	for _, v4 := range netnstest.Families {
		c, _, err := other.Pod.Dial(w.rome.seen(t, netnstest.PodAddr(42, 1, 5, v4)), netnstest.Patience)
		if err != nil {
			t.Fatal(err)
		}
		pulses = append(pulses, newPulse(t, c))
	}
	// The server's pulses come back, too: from the side that is peer of who moves.
	back, _, err := w.milan.Nodes[0].Pod.Dial(w.milan.seen(t, netnstest.PodAddr(42, 1-g, 5, true)), netnstest.Patience)
	if err != nil {
		t.Fatal(err)
	}
	pulses = append(pulses, newPulse(t, back))
	heard := func(at time.Time) func() bool {
		return func() bool {
			for _, p := range pulses {
				if _, ok := p.since(at); !ok {
					return false
				}
			}
			return true
		}
	}
	netnstest.Await(t, "all connections speak", netnstest.Patience, heard(time.Now()))

	cut := time.Now()
	lost.Up("eth0", false)
	w.router.Up(lost.Name, false)
	for name, report := range map[string]func() health.Report{
		"rome":  func() health.Report { return w.rome.report(g) },
		"milan": func() health.Report { return w.milan.report(w.milan.gateway(t)) },
	} {
		netnstest.Await(t, name+" finds the tunnel dead", netnstest.Patience, func() bool { return !report().Alive })
		t.Logf("%s found the tunnel dead after %s", name, report().Since.Sub(cut).Round(time.Millisecond))
	}
	w.rome.in.Nodes[g].Alive = false
	moved := time.Now()
	w.rome.apply(t, 1-g) // the other one is not reached
	applied := time.Now()
	if err := other.Pod.Ping(netnstest.PodAddr(42, 1-g, 5, true), w.rome.seen(t, netnstest.PodAddr(42, 1, 5, true)), 8, netnstest.Patience); err != nil {
		t.Error(err)
	}
	carried := time.Since(moved)
	if t.Logf("a ping comes back %s after the new plan", carried.Round(time.Millisecond)); carried > pingWithin {
		t.Errorf("the move took %s", carried)
	}
	netnstest.Await(t, "all connections speak after the move", netnstest.Patience, heard(applied))
	for _, p := range pulses {
		first, _ := p.since(applied)
		t.Logf("cut to first byte %s, of that %s from the new plan, which took %s to apply",
			first.Sub(cut).Round(time.Millisecond), first.Sub(moved).Round(time.Millisecond), applied.Sub(moved).Round(time.Millisecond))
		if took := first.Sub(moved); took > byteWithin {
			t.Errorf("the move took %s", took)
		}
	}
	t.Logf("alive again %s after that", w.alive(t).Round(time.Millisecond))

	// The lost node hears that it is not gateway any more before it can be heard. For a moment
	// on the way back both nodes have a tunnel with the same key, and the peer follows now the
	// one, now the other.
	w.rome.apply(t, g)
	lost.Up("eth0", true)
	w.router.Up(lost.Name, true)
	w.rome.Connect(g)
	for from, to := range map[string]string{outside("198.51.100", g): outside("203.0.113", 0), netnstest.NodeAddr(g, true).String(): netnstest.NodeAddr(1-g, true).String()} {
		lost.Must(lost.Ping(netip.MustParseAddr(from), netip.MustParseAddr(to), 8, netnstest.Patience))
	}
	w.rome.in.Nodes[g].Alive = true
	returned := time.Now()
	w.rome.apply(t)
	netnstest.Await(t, "all connections speak after the way back", netnstest.Patience, heard(time.Now()))
	w.alive(t)
	for _, p := range pulses {
		p.end(t)
		if worst := p.worst(returned); worst > byteWithin {
			t.Errorf("the way back took %s", worst)
		} else {
			t.Logf("the way back: %s without a byte", worst.Round(time.Millisecond))
		}
	}
	testPods(t, w)
}

// testNobody has no live agent at rome: senders are told at once, and nothing leaves by
// another way.
func testNobody(t *testing.T, w *world) {
	for i := range w.rome.in.Nodes {
		w.rome.in.Nodes[i].Alive = false
	}
	for _, n := range w.rome.Nodes {
		n.Pod.Quiet()
	}
	in := w.rome.in
	for i, a := range w.rome.agents {
		in.Node = w.rome.Nodes[i].Name
		for key := range a.running {
			a.stop(key)
		}
		a.set(Compute(in))
		for _, v4 := range netnstest.Families {
			at := w.rome.seen(t, netnstest.PodAddr(42, 1, 5, v4))
			c, _, err := w.rome.Nodes[i].Pod.Dial(at, netnstest.Patience)
			if err == nil {
				_ = c.Close()
			}
			if !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EHOSTUNREACH) {
				t.Errorf("%s to %s without a gateway: %v", w.rome.Nodes[i].Name, at, err)
			}
		}
	}
	for i := range w.rome.in.Nodes {
		w.rome.in.Nodes[i].Alive = true
	}
	w.rome.apply(t)
	w.alive(t)
	testPods(t, w)
}

// testNothing ends the peering at rome.
func testNothing(t *testing.T, w *world) {
	for i, a := range w.rome.agents {
		for key := range a.running {
			a.stop(key)
		}
		if err := a.kernel.Set(t.Context(), dataplane.Config{}); err != nil {
			t.Error(err)
		}
		if names, err := a.held.List(); err != nil || len(names) > 0 {
			t.Errorf("%s still holds %v (%v)", w.rome.Nodes[i].Name, names, err)
		}
		a.node.In(func() error {
			entries, err := os.ReadDir("/proc/sys/net/ipv4/conf")
			for _, e := range entries {
				if len(e.Name()) > 6 && e.Name()[:7] == "pelago-" {
					t.Errorf("%s still has device %s", a.node.Name, e.Name())
				}
			}
			return err
		})
	}
}
