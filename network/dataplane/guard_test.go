package dataplane

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestGuard goes through a world that stands once.
func TestGuard(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	for _, c := range []*cluster{w.rome, w.milan} {
		for _, n := range c.nodes {
			for _, pod := range []*place{n.Pod, n.Other} {
				serve(t, pod, 7001, 7002, 7003)
			}
		}
	}
	for _, c := range []struct {
		name              string
		guarding, running *cluster
	}{
		{"the gateway of the side where the pod runs", w.milan, w.milan},
		{"the gateway at home, and the pod is there", w.rome, w.rome},
		{"the gateway at home, and the pod is at the provider", w.rome, w.milan},
	} {
		t.Run(c.name, func(t *testing.T) { testRules(t, w, c.guarding, c.running) })
	}
	t.Run("both ends are asked", func(t *testing.T) { testBothEnds(t, w) })
	t.Run("no door of a peer needs a rule", func(t *testing.T) { testFree(t, w) })
	t.Run("a guarded pod is open at no moment, and what is open stays", func(t *testing.T) { testNoMoment(t, w) })
	t.Run("connections survive the move of a gateway", func(t *testing.T) { testGuardedMove(t, w) })
}

// pod of a test is one of a node of a cluster, the first being 1.
type testPod struct {
	of         *cluster
	node, last int
}

func (p testPod) place() *place {
	if p.last == 6 {
		return p.of.nodes[p.node-1].Other
	}
	return p.of.nodes[p.node-1].Pod
}

func (p testPod) real() (both []netip.Addr) {
	for _, v4 := range families {
		both = append(both, podAt(42, p.node, p.last, v4))
	}
	return both
}

func (p testPod) peer() (both []netip.Prefix) {
	for _, a := range p.real() {
		both = append(both, single(a))
	}
	return both
}

func (p testPod) pairs(port uint16) (both []netip.AddrPort) {
	for _, a := range p.real() {
		both = append(both, netip.AddrPortFrom(a, port))
	}
	return both
}

// serve answers over TCP at some ports, and over UDP at the first one, in both families.
func serve(t *testing.T, p *place, ports ...int) {
	t.Helper()
	for _, port := range ports {
		var l net.Listener
		p.Must(netns.In(p.File, func() (err error) {
			l, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
			return err
		}))
		t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
			}
		}()
	}
	var u net.PacketConn
	p.Must(netns.In(p.File, func() (err error) {
		u, err = net.ListenPacket("udp", fmt.Sprintf(":%d", ports[0]))
		return err
	}))
	t.Cleanup(func() { _ = u.Close() })
	go func() {
		b := make([]byte, 64)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = u.WriteTo(b[:n], from)
		}
	}()
}

// call is an attempt of a pod to reach another one, as "tcp 7001".
type call struct {
	from, to testPod
	by       string
	passes   bool
}

// try makes all calls at once, in both families.
func (w *world) try(t *testing.T, reason string, calls []call) {
	t.Helper()
	var all sync.WaitGroup
	for _, c := range calls {
		for _, v4 := range families {
			all.Go(func() {
				to := podAt(c.from.of.view, c.to.node, c.to.last, v4)
				if err := attempt(c.from.place(), to, c.by, c.passes); (err == nil) != c.passes {
					t.Errorf("%s: %s from %s %d to %s (%s): %v", reason, c.by, c.from.of.name, c.from.node, to, c.to.of.name, err)
				}
			})
		}
	}
	all.Wait()
}

func attempt(from *place, to netip.Addr, by string, hope bool) error {
	protocol, port, _ := strings.Cut(by, " ")
	limit := silence
	if hope {
		limit = patience
	}
	var c net.Conn
	if err := netns.In(from.File, func() (err error) {
		c, err = net.DialTimeout(protocol, net.JoinHostPort(to.String(), port), limit)
		return err
	}); err != nil || protocol == "tcp" {
		if err == nil {
			err = c.Close()
		}
		return err
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	if err := c.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	_, err := c.Read(make([]byte, 64))
	return err
}

// guarded gives a cluster's gateway a Guard.
func (w *world) guarded(c *cluster, g *Guard) {
	w.t.Helper()
	c.change = func(config *Config) {
		for i := range config.Gateways {
			config.Gateways[i].Guard = g
		}
	}
	w.set(c)
}

// isolate makes a Guard of a pod.
func isolate(there, in, out bool, pod testPod, entries ...Entry) *Guard {
	g := &Guard{Entries: entries}
	for i := range g.Entries {
		g.Entries[i].Name, g.Entries[i].There = fmt.Sprintf("entry-%d", i), there
		if !g.Entries[i].Named || g.Entries[i].Out {
			g.Entries[i].Pods = pod.real()
		}
	}
	for _, of := range []struct {
		is          bool
		here, there *[]netip.Addr
	}{{in, &g.HereIn, &g.ThereIn}, {out, &g.HereOut, &g.ThereOut}} {
		switch {
		case of.is && there:
			*of.there = pod.real()
		case of.is:
			*of.here = pod.real()
		}
	}
	return g
}

func others(c *cluster, w *world) *cluster {
	if c == w.rome {
		return w.milan
	}
	return w.rome
}

func testRules(t *testing.T, w *world, guarding, running *cluster) {
	peers := others(running, w)
	selected, other := testPod{running, 2, 5}, testPod{running, 2, 6}
	one, two := testPod{peers, 1, 5}, testPod{peers, 2, 5}
	in := func(from testPod, by string, passes bool) call { return call{from, selected, by, passes} }
	out := func(to testPod, by string, passes bool) call { return call{selected, to, by, passes} }
	everybody := prefixes("0.0.0.0/0", "::/0")
	tcp := func(ports ...Ports) Entry { return Entry{Protocol: 6, Ports: ports, Peers: everybody} }
	outwards := func(e Entry) Entry { e.Out = true; return e }
	for _, c := range []struct {
		reason  string
		in, out bool
		entries []Entry
		calls   []call
	}{
		{"nobody is isolated", false, false, nil, []call{in(one, "tcp 7001", true), in(two, "udp 7001", true), out(one, "tcp 7001", true), out(two, "udp 7001", true)}},
		{"an entry isolates nobody", false, false, []Entry{{Peers: one.peer()}, {Out: true, Peers: one.peer()}}, []call{in(two, "tcp 7001", true), out(two, "tcp 7001", true)}},
		{"nothing in, and out all", true, false, nil, []call{
			in(one, "tcp 7001", false), in(two, "udp 7001", false), out(one, "tcp 7001", true), out(two, "udp 7001", true), {one, other, "tcp 7001", true}, {other, two, "tcp 7001", true},
		}},
		{"nothing out, and in all", false, true, nil, []call{
			out(one, "tcp 7001", false), out(two, "udp 7001", false), in(one, "tcp 7001", true), in(two, "udp 7001", true), {other, one, "udp 7001", true},
		}},
		{"nothing at all", true, true, nil, []call{out(one, "tcp 7001", false), in(one, "tcp 7001", false), {one, other, "tcp 7001", true}}},
		{"in all", true, false, []Entry{{Peers: everybody}}, []call{in(one, "tcp 7001", true), in(two, "udp 7001", true)}},
		{"in from one peer", true, false, []Entry{{Peers: one.peer()}}, []call{in(one, "tcp 7001", true), in(one, "udp 7001", true), in(two, "tcp 7001", false)}},
		{"in for others is none for it", true, false, []Entry{{Peers: nil}}, []call{in(one, "tcp 7001", false)}},
		{"in by one port", true, false, []Entry{tcp(Ports{7001, 7001})}, []call{in(one, "tcp 7001", true), in(one, "tcp 7002", false), in(one, "udp 7001", false)}},
		{"in by ranges that touch", true, false, []Entry{tcp(Ports{7001, 7001}, Ports{7002, 7002}, Ports{65000, 65535})}, []call{in(one, "tcp 7001", true), in(two, "tcp 7002", true), in(one, "tcp 7003", false)}},
		{"in by a range", true, false, []Entry{tcp(Ports{7002, 7100})}, []call{in(one, "tcp 7001", false), in(one, "tcp 7002", true), in(two, "tcp 7003", true)}},
		{"in by any port of UDP", true, false, []Entry{{Protocol: 17, Peers: everybody}}, []call{in(one, "udp 7001", true), in(one, "tcp 7001", false)}},
		{"in by the name of a port", true, false, []Entry{{Protocol: 6, Named: true, Pairs: selected.pairs(7002), Peers: one.peer()}}, []call{
			in(one, "tcp 7002", true), in(one, "tcp 7001", false), in(two, "tcp 7002", false),
		}},
		{"a block but for a part of it", true, false, []Entry{{Peers: prefixes("10.42.0.0/23", "10.42.2.128/25", "fd42::/63", "fd42:0:0:3::/64")}}, []call{in(one, "tcp 7001", true), in(two, "tcp 7001", false)}},
		{"two policies add up", true, false, []Entry{{Protocol: 6, Ports: []Ports{{7001, 7001}}, Peers: one.peer()}, {Protocol: 6, Ports: []Ports{{7002, 7002}}, Peers: two.peer()}}, []call{
			in(one, "tcp 7001", true), in(one, "tcp 7002", false), in(two, "tcp 7001", false), in(two, "tcp 7002", true),
		}},
		{"out to one peer", false, true, []Entry{{Out: true, Peers: two.peer()}}, []call{out(two, "tcp 7001", true), out(two, "udp 7001", true), out(one, "tcp 7001", false)}},
		{"out by one port", false, true, []Entry{outwards(tcp(Ports{7003, 7003}))}, []call{out(one, "tcp 7003", true), out(two, "tcp 7001", false)}},
		{"out by the name of a port", false, true, []Entry{{Out: true, Protocol: 6, Named: true, Pairs: append(one.pairs(7001), two.pairs(7002)...)}}, []call{
			out(one, "tcp 7001", true), out(one, "tcp 7002", false), out(two, "tcp 7002", true), out(two, "tcp 7001", false),
		}},
		{"what lets in lets nothing out", true, true, []Entry{{Peers: one.peer()}, {Out: true, Peers: two.peer()}}, []call{
			in(one, "tcp 7001", true), in(two, "tcp 7001", false), out(one, "tcp 7001", false), out(two, "tcp 7001", true),
		}},
	} {
		w.guarded(guarding, isolate(guarding != running, c.in, c.out, selected, c.entries...))
		w.try(t, c.reason, c.calls)
		writes := guarding.nodes[0].kernel.writes.Load()
		w.set(guarding, 0)
		again, err := New(Options{Host: guarding.nodes[0].File, Namespaces: guarding.nodes[0].held})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Set(t.Context(), guarding.config(0)); err != nil || again.writes.Load() != 0 || guarding.nodes[0].kernel.writes.Load() != writes {
			t.Errorf("%s: the same again: %v, %d writes, %d by a new process", c.reason, err, guarding.nodes[0].kernel.writes.Load()-writes, again.writes.Load())
		}
		again.Close()
	}
	if drops(t, guarding, DropIsolated) == 0 {
		t.Error("nothing was counted")
	}
	guarding.change = nil
	w.set(guarding)
	w.try(t, "no policies any more", []call{in(one, "tcp 7001", true), out(two, "tcp 7001", true)})
}

func drops(t *testing.T, c *cluster, reason Reason) (packets uint64) {
	t.Helper()
	list, err := c.nodes[c.gatewayAt].kernel.Drops(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		if d.Reason == reason {
			packets += d.Packets
		}
	}
	return packets
}

// testBothEnds isolates a pod here for what it begins, and one there for what it accepts.
func testBothEnds(t *testing.T, w *world) {
	here, there := testPod{w.rome, 2, 5}, testPod{w.milan, 2, 5}
	lets := Entry{Name: "out", Out: true, Pods: here.real(), Peers: there.peer()}
	takes := Entry{Name: "in", There: true, Pods: there.real(), Peers: here.peer(), Protocol: 6, Ports: []Ports{{7001, 7001}}}
	for _, c := range []struct {
		entries []Entry
		passes  bool
	}{{nil, false}, {[]Entry{lets}, false}, {[]Entry{takes}, false}, {[]Entry{lets, takes}, true}} {
		w.guarded(w.rome, &Guard{HereOut: here.real(), ThereIn: there.real(), Entries: c.entries})
		w.try(t, fmt.Sprintf("%d entries", len(c.entries)), []call{{here, there, "tcp 7001", c.passes}, {here, there, "tcp 7002", false}, {there, here, "tcp 7001", true}})
	}
	w.rome.change = nil
	w.set(w.rome)
}

func testFree(t *testing.T, w *world) {
	from, to := testPod{w.milan, 2, 5}, testPod{w.rome, 2, 5}
	w.guarded(w.milan, &Guard{HereOut: from.real(), Free: to.pairs(7002)})
	w.try(t, "free", []call{{from, to, "tcp 7002", true}, {from, to, "tcp 7001", false}, {from, to, "udp 7001", false}, {from, testPod{w.rome, 1, 5}, "tcp 7002", false}})
	w.milan.change = nil
	w.set(w.milan)
}

// testNoMoment knocks at a pod that is isolated as fast as it can while policies come, change and
// go, and other pods too.
func testNoMoment(t *testing.T, w *world) {
	selected, other := testPod{w.milan, 2, 5}, testPod{w.milan, 2, 6}
	stranger := testPod{w.rome, 2, 5}
	open, _, err := stranger.place().Dial(podAt(w.rome.view, 2, 5, true), patience)
	if err != nil {
		t.Fatal(err)
	}
	base := isolate(false, true, false, selected)
	w.guarded(w.milan, base)
	var heard atomic.Int64
	var at net.PacketConn
	selected.place().Must(netns.In(selected.place().File, func() (err error) {
		at, err = net.ListenPacket("udp", ":7009")
		return err
	}))
	defer func() { _ = at.Close() }()
	go func() {
		b := make([]byte, 64)
		for {
			if _, _, err := at.ReadFrom(b); err != nil {
				return
			}
			heard.Add(1)
		}
	}()
	stop, knocks := make(chan struct{}), atomic.Int64{}
	var knocking sync.WaitGroup
	for _, v4 := range families {
		knocking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				_ = netns.In(stranger.place().File, func() error {
					c, err := net.Dial("udp", netip.AddrPortFrom(podAt(w.rome.view, 2, 5, v4), 7009).String())
					if err != nil {
						return err
					}
					_, _ = c.Write([]byte("knock")) // each from a port of its own, so that each begins a connection
					knocks.Add(1)
					return c.Close()
				})
			}
		})
	}
	for i := range 40 {
		g := isolate(false, true, false, selected)
		g.HereOut = other.real()
		for j := range i % 7 {
			g.Entries = append(g.Entries, Entry{Name: fmt.Sprintf("p%d", (i+j)%11), Pods: append(other.real(), selected.real()...), Peers: prefixes("10.42.77.0/24", "fd42:0:0:77::/64"), Protocol: uint8(6 * (j % 2))})
		}
		if i%3 == 0 {
			g.HereIn = append(g.HereIn, other.real()...)
		}
		w.guarded(w.milan, g)
		if i%10 == 0 {
			exchange(t, open, []byte("what is open stays open"))
		}
	}
	close(stop)
	knocking.Wait()
	w.try(t, "still isolated", []call{{stranger, selected, "tcp 7001", false}})
	if n := heard.Load(); n != 0 {
		t.Errorf("%d of %d knocks were heard", n, knocks.Load())
	}
	exchange(t, open, []byte("what is open stays open"))
	_ = open.Close()
	t.Logf("%d knocks", knocks.Load())
	w.milan.change = nil
	w.set(w.milan)
	w.try(t, "open again", []call{{stranger, selected, "tcp 7001", true}})
}

// testGuardedMove moves rome's gateway while connections are open between pods that both sides
// isolate as far as it goes, of which the server speaks first.
func testGuardedMove(t *testing.T, w *world) {
	client, server := testPod{w.rome, 2, 5}, testPod{w.milan, 2, 5}
	romes := &Guard{
		HereIn: client.real(), HereOut: client.real(), ThereIn: server.real(), ThereOut: server.real(),
		Entries: []Entry{
			{Name: "out", Out: true, Pods: client.real(), Peers: server.peer(), Protocol: 6},
			{Name: "in", There: true, Pods: server.real(), Peers: client.peer()},
		},
	}
	w.guarded(w.milan, &Guard{HereIn: server.real(), HereOut: server.real(), Entries: []Entry{{Name: "in", Pods: server.real(), Peers: client.peer(), Protocol: 6}}})
	w.guarded(w.rome, romes)
	type open struct{ client, server net.Conn }
	var all []open
	for range 2 {
		for _, v4 := range families {
			c, s := w.pair(t, client.place(), server.place(), podAt(w.rome.view, server.node, server.last, v4))
			all = append(all, open{c, s})
		}
	}
	// The connection tracking of the new gateway has seen none of them.
	w.move(t)
	for i, c := range all {
		if i < 2 {
			exchangeOnce(t, c.server, c.client)
		}
		exchangeOnce(t, c.client, c.server)
		exchangeOnce(t, c.server, c.client)
	}
	w.try(t, "as before", []call{{client, server, "tcp 7001", true}, {server, client, "tcp 7001", false}})
	if drops(t, w.rome, DropIsolated)+drops(t, w.milan, DropIsolated) == 0 {
		t.Error("nothing was counted")
	}
}

// TestGuardOfMany holds that one pod's change costs what it is in, and not what there is.
func TestGuardOfMany(t *testing.T) {
	const pods, policies, inEach = 1000, 100, 40
	kernel, options, c := alone(t)
	pod := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 42, byte(i >> 8), byte(i)}) }
	g := &Guard{}
	for i := range pods {
		g.HereIn = append(g.HereIn, pod(i))
	}
	for i := range policies {
		e := Entry{Name: fmt.Sprintf("policy-%d", i), Protocol: 6, Ports: []Ports{{80, 80}}}
		for j := range inEach {
			e.Pods = append(e.Pods, pod((i*17+j)%pods))
			e.Peers = append(e.Peers, single(netip.AddrFrom4([4]byte{10, 90, byte(i), byte(2 * j)})))
		}
		g.Entries = append(g.Entries, e)
	}
	c.Gateways = []Gateway{{Peering: "p", Tunnel: tunnelName, MTU: 1420, Guard: g, Views: []View{{View: viewRange(90, true), Real: viewRange(90, true)}}}}
	if err := kernel.Set(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	file, err := options.Namespaces.Open("p")
	if err != nil {
		t.Fatal(err)
	}
	count := countElements(t, netnstest.OpenPlace(t, "gateway", file))
	rules := kernel.gateways["p"].filter.known.read.handles
	g.HereIn = append(g.HereIn, pod(pods))
	g.Entries[3].Pods = append(g.Entries[3].Pods, pod(pods))
	g.Entries[4].Pods = append(g.Entries[4].Pods, pod(pods))
	g.Entries[5].Peers = append(g.Entries[5].Peers, prefixes("10.90.200.1/32")...)
	const want = 3 + 2 // a range is two elements
	writes, start := kernel.writes.Load(), time.Now()
	if err := kernel.Set(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	t.Logf("one more pod: %s", time.Since(start).Round(100*time.Microsecond))
	netnstest.Await(t, "the elements are told of", patience, func() bool { return count.Load() >= want })
	if count.Load() != want || kernel.writes.Load() != writes+1 {
		t.Errorf("%d elements in %d transactions for one pod, want %d in 1", count.Load(), kernel.writes.Load()-writes, want)
	}
	filter := kernel.gateways["p"].filter
	if read, err := filter.read(); err != nil || !equal(read.handles, rules) {
		t.Errorf("one pod made rules anew (%v)", err)
	}
	// A policy that goes takes its own sets, and leaves those of others.
	g.Entries = g.Entries[1:]
	if err := kernel.Set(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if n := count.Load(); n > want+4*inEach {
		t.Errorf("%d elements written for a policy that goes", n-want)
	}
}
