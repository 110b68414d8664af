package dataplane

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// lineWorld is rome, whose pods call milan's end of the tunnel, and milan, which has doors there.
type lineWorld struct {
	*world
	v4           bool // the line's family
	calls, doors Line
	// rules change the gateways, of the consumer and of the provider.
	rules [2]func(*Gateway)
}

// lineView is the last-th address by which somebody calls.
func lineView(last int, v4 bool) netip.Addr {
	if v4 {
		return netip.MustParseAddr(fmt.Sprintf("10.43.0.%d", last))
	}
	return netip.MustParseAddr(fmt.Sprintf("fd43::%d", last))
}

// consumerAt and providerAt are the ends of the tunnel.
func consumerAt(v4 bool) netip.Addr { return tunnelEnd(4, v4) }
func providerAt(v4 bool) netip.Addr { return tunnelEnd(5, v4) }

func tunnelEnd(last int, v4 bool) netip.Addr {
	if v4 {
		return netip.MustParseAddr(fmt.Sprintf("169.254.0.%d", last))
	}
	return netip.MustParseAddr(fmt.Sprintf("fd46:c73d:1b8d::%d", last))
}

// callersOf are the first pods of the nodes of a cluster.
func callersOf(v4 bool) []netip.Addr { return []netip.Addr{podAt(42, 1, 5, v4), podAt(42, 2, 5, v4)} }

// lineDoors lead, by their ports, to the gateway's node, the other one, and a pod of each.
func lineDoors(v4 bool) []LineDoor {
	var doors []LineDoor
	for i, to := range []netip.Addr{netnstest.NodeAddr(0, v4), netnstest.NodeAddr(1, v4), podAt(42, 1, 5, v4), podAt(42, 2, 5, v4)} {
		doors = append(doors, LineDoor{Port: uint16(7000 + i), To: netip.AddrPortFrom(to, netnstest.Port)})
	}
	return doors
}

// withLine changes a config: its gateway of a peering has a line.
func withLine(c *Config, peering string, consumer bool, line Line) {
	for i := range c.Gateways {
		g := &c.Gateways[i]
		if g.Peering != peering {
			continue
		}
		ends := func(v4 bool) (at, peer netip.Addr) {
			if consumer {
				return consumerAt(v4), providerAt(v4)
			}
			return providerAt(v4), consumerAt(v4)
		}
		if g.Line = &line; len(line.Views) == 0 && line.Doors == nil {
			g.Line = nil
		}
		g.ProbeAt, g.ProbePeer = ends(true)
		g.LineAt, g.LinePeer = ends(false)
	}
	for _, view := range line.Views {
		r := c.Routes[0] // by the way of all routes
		r.Prefix = single(view)
		c.Routes = append(c.Routes, r)
	}
}

func newLineWorld(t *testing.T, v4 bool) *lineWorld {
	t.Helper()
	w := &lineWorld{
		world: newWorld(t), v4: v4,
		calls: Line{Views: []netip.Addr{lineView(9, v4)}, Callers: callersOf(v4), Ports: []uint16{7000, 7001, 7002, 7003, 7009}},
		doors: Line{Doors: lineDoors(v4)},
	}
	w.rome.change = func(c *Config) { withLine(c, "other", true, w.calls); w.rule(c, 0) }
	w.milan.change = func(c *Config) { withLine(c, "other", false, w.doors); w.rule(c, 1) }
	for _, c := range []*cluster{w.rome, w.milan} {
		for _, n := range c.nodes {
			n.Listen()
		}
	}
	w.start()
	return w
}

func (w *lineWorld) rule(c *Config, side int) {
	for i := range c.Gateways {
		if w.rules[side] != nil {
			w.rules[side](&c.Gateways[i])
		}
	}
}

func (w *lineWorld) setBoth() {
	w.t.Helper()
	w.set(w.rome)
	w.set(w.milan)
}

// TestLine goes, for each family, through a world that stands once.
func TestLine(t *testing.T) {
	t.Parallel()
	for _, v4 := range families {
		t.Run(familyName(v4), func(t *testing.T) {
			t.Parallel()
			testLine(t, newLineWorld(t, v4))
		})
	}
}

func testLine(t *testing.T, w *lineWorld) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *lineWorld)
	}{
		{"callers reach what doors stand for", testLineCalls},
		{"pods reach pods beside it", func(t *testing.T, w *lineWorld) { testPods(t, w.world); testNodes(t, w.world) }},
		{"the same again changes nothing", func(t *testing.T, w *lineWorld) { testIdempotent(t, w.world) }},
		{"segments fit into the tunnel, and much goes through", testLineTransfer},
		{"nobody else reaches anything", testLineOthers},
		{"nothing else comes by the tunnel's ends", testLineSpoofed},
		{"whatever the gateways let pass besides", testLineWidths},
		{"connections of those who may not any more end", testLineEnds},
		{"a process that was not there ends them, too", testLineNewProcess},
		{"gateways that have moved", testLineMoved},
		{"nothing is left", testLineEmpty},
	} {
		if !t.Run(c.name, func(t *testing.T) { c.test(t, w) }) {
			return // one world for all
		}
	}
}

// reach opens a connection by TCP to a port, and reads who the server says this is.
func reach(from *place, to netip.AddrPort, patience time.Duration) (net.Conn, string, error) {
	return reachFrom(from, netip.AddrPort{}, to, "", patience)
}

// reachFrom does so from an address, by a device.
func reachFrom(p *place, from, to netip.AddrPort, device string, patience time.Duration) (c net.Conn, seen string, err error) {
	d := net.Dialer{Timeout: patience}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(from)
	}
	if device != "" {
		d.Control = byDevice(device)
	}
	if err := netns.In(p.File, func() (err error) {
		c, err = d.Dial("tcp", to.String())
		return err
	}); err != nil {
		return nil, "", err
	}
	_ = c.SetDeadline(time.Now().Add(patience))
	var line []byte
	for b := make([]byte, 1); ; line = append(line, b[0]) {
		if _, err := c.Read(b); err != nil {
			_ = c.Close()
			return nil, "", err
		}
		if b[0] == '\n' {
			return c, string(line), nil
		}
	}
}

// clients are as what the doors see who calls, by port. What runs on a node sees the link-local address;
// the CNI of another node masquerades once more.
func (w *lineWorld) clients(t *testing.T) map[uint16]string {
	t.Helper()
	g := w.milan.gatewayAt
	c := w.milan.config(g)
	end := lineEnds(c, c.numbers())[lineEnd{"other", w.v4}].String()
	node := netnstest.NodeAddr(g, w.v4).String()
	seen := map[uint16]string{7000: node, 7001: node, 7002: node, 7003: node}
	seen[uint16(7000+g)] = end
	seen[uint16(7003-g)] = podAt(42, 2-g, 1, w.v4).String()
	return seen
}

func (w *lineWorld) at(port uint16) netip.AddrPort { return netip.AddrPortFrom(w.calls.Views[0], port) }

func testLineCalls(t *testing.T, w *lineWorld) {
	for port, as := range w.clients(t) {
		for _, n := range w.rome.nodes {
			c, seen, err := reach(n.Pod, w.at(port), patience)
			if err != nil {
				t.Errorf("from %s to port %d: %v", n.Name, port, err)
				continue
			}
			_ = c.Close()
			if seen != as {
				t.Errorf("from %s to port %d: seen as %s, want %s", n.Name, port, seen, as)
			}
		}
	}
}

func testLineTransfer(t *testing.T, w *lineWorld) {
	for port := range w.clients(t) {
		for _, n := range w.rome.nodes {
			c, _, err := reach(n.Pod, w.at(port), patience)
			if err != nil {
				t.Fatal(err)
			}
			headers := 60
			if w.v4 {
				headers = 40
			}
			if got := maxSegment(t, c); got > tunnelMTU-headers {
				t.Errorf("%s to port %d: segments of %d do not fit into %d", n.Name, port, got, tunnelMTU)
			}
			exchange(t, c, bytes.Repeat([]byte("0123456789abcdef"), 1<<16))
			_ = c.Close()
		}
	}
}

// isolated is a Guard that isolates all pods of both sides for all that they do.
func isolated(v4 bool) *Guard {
	return &Guard{HereIn: callersOf(v4), HereOut: callersOf(v4), ThereIn: callersOf(v4), ThereOut: callersOf(v4)}
}

// testLineWidths has connections that go on whatever else the gateways let pass, and others begin.
func testLineWidths(t *testing.T, w *lineWorld) {
	closed := func(g *Gateway) { g.Limited, g.Closed = true, true }
	limited := func(g *Gateway) { g.Limited, g.FromHere, g.FromThere = true, true, true }
	shut := func(g *Gateway) { g.ShutHere, g.ShutThere = callersOf(w.v4), callersOf(w.v4) }
	guarded := func(g *Gateway) { g.Guard = isolated(w.v4) }
	mapped := func(g *Gateway) {
		g.Mapped = prefixes("10.43.0.8/29", "10.43.0.16/28")
		g.Doors = []Door{{At: port("10.43.0.17:80"), To: port("192.168.0.2:8080"), From: callersOf(w.v4)}}
	}
	open := map[string]net.Conn{}
	for port := range w.clients(t) {
		for _, n := range w.rome.nodes {
			c, _, err := reach(n.Pod, w.at(port), patience)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			open[fmt.Sprintf("%s to port %d", n.Name, port)] = c
		}
	}
	for _, c := range []struct {
		name string
		is   func(*Gateway)
	}{
		{"limited", limited},
		{"closed", closed},
		{"full", nil},
		{"shut", shut},
		{"limited and shut", func(g *Gateway) { limited(g); shut(g) }},
		{"guarded", guarded},
		{"limited and guarded", func(g *Gateway) { limited(g); guarded(g) }},
		{"closed and guarded", func(g *Gateway) { closed(g); guarded(g) }},
		{"mapped", mapped},
		{"closed and mapped", func(g *Gateway) { closed(g); mapped(g) }},
		{"with transit", func(g *Gateway) { g.Transit = prefixes("10.99.0.0/16") }},
		{"with no view and no range of the peer's", func(g *Gateway) { g.Views = nil; closed(g) }},
		{"full again", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			w.rules = [2]func(*Gateway){c.is, c.is}
			w.setBoth()
			testLineCalls(t, w)
			for name, o := range open {
				exchange(t, o, []byte("still there?"))
				if t.Failed() {
					t.Fatalf("%s: it was there and is not", name)
				}
			}
			if c, _, err := reach(w.rome.nodes[1].Other, w.at(7000), silence); err == nil {
				_ = c.Close()
				t.Error("who is no caller reaches the other end")
			}
		})
	}
	w.rules = [2]func(*Gateway){}
	w.setBoth()
	testPods(t, w.world)
}

// testLineEnds takes away, one after the other, what connections need that are there.
func testLineEnds(t *testing.T, w *lineWorld) {
	calls, doors := w.calls, w.doors
	first, second := w.rome.nodes[0].Pod, w.rome.nodes[1].Pod
	for _, c := range []struct {
		name   string
		change func()
		// ends says which end, of those of the first caller and of the second, by port.
		ends func(second bool, port uint16) bool
	}{
		{"a caller", func() { w.calls.Callers = callersOf(w.v4)[:1] }, func(second bool, _ uint16) bool { return second }},
		{"a port", func() { w.calls.Ports = []uint16{7000, 7003} }, func(_ bool, port uint16) bool { return port == 7001 || port == 7002 }},
		{"a door", func() { w.doors.Doors = lineDoors(w.v4)[1:] }, func(_ bool, port uint16) bool { return port == 7000 }},
		{"what a door stands for", func() {
			w.doors.Doors = lineDoors(w.v4)
			w.doors.Doors[2].To = netip.AddrPortFrom(podAt(42, 1, 6, w.v4), netnstest.Port)
		}, func(_ bool, port uint16) bool { return port == 7002 }},
		{"the address", func() { w.calls.Views = []netip.Addr{lineView(10, w.v4)} }, func(bool, uint16) bool { return true }},
		{"the line of the consumer", func() { w.calls = Line{} }, func(bool, uint16) bool { return true }},
		{"the line of the provider", func() { w.doors = Line{} }, func(bool, uint16) bool { return true }},
	} {
		for _, is := range []struct {
			name string
			rule func(*Gateway)
		}{{"full", nil}, {"closed", func(g *Gateway) { g.Limited, g.Closed = true, true }}} {
			t.Run(c.name+", "+is.name, func(t *testing.T) {
				w.rules = [2]func(*Gateway){is.rule, is.rule}
				w.setBoth()
				type conn struct {
					net.Conn
					ends bool
					name string
				}
				var there []conn
				for port := range w.clients(t) {
					for i, from := range []*place{first, second} {
						o, _, err := reach(from, w.at(port), patience)
						if err != nil {
							t.Fatalf("from %s to port %d: %v", from.Name, port, err)
						}
						defer func() { _ = o.Close() }()
						there = append(there, conn{o, c.ends(i == 1, port), fmt.Sprintf("%s to port %d", from.Name, port)})
					}
				}
				if is.rule == nil {
					o, _, err := first.Dial(podAt(w.rome.view, 2, 5, w.v4), patience)
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = o.Close() }()
					there = append(there, conn{o, false, "a pod's"})
				}
				c.change()
				w.setBoth()
				for _, o := range there {
					if !o.ends {
						exchange(t, o, []byte("still there?"))
						continue
					}
					_ = o.SetDeadline(time.Now().Add(silence))
					_, _ = o.Write([]byte("?"))
				}
				for _, o := range there {
					if !o.ends {
						continue
					}
					if _, err := o.Read(make([]byte, 1)); err == nil {
						t.Errorf("%s goes on", o.name)
					}
				}
				w.calls, w.doors = calls, doors
				w.setBoth()
				testLineCalls(t, w)
			})
		}
	}
	w.rules = [2]func(*Gateway){}
	w.setBoth()
}

// testLineNewProcess sets a config with one caller less by a kernel that knows nothing of the one before.
func testLineNewProcess(t *testing.T, w *lineWorld) {
	calls := w.calls
	for _, c := range []struct {
		name string
		less Line
	}{
		{"a caller less", Line{Views: calls.Views, Callers: callersOf(w.v4)[:1], Ports: calls.Ports}},
		{"no line", Line{}},
	} {
		o, _, err := reach(w.rome.nodes[1].Pod, w.at(7000), patience)
		if err != nil {
			t.Fatal(err)
		}
		w.calls = c.less
		n := w.rome.nodes[0]
		again, err := New(Options{Host: n.File, Namespaces: n.held})
		if err != nil {
			t.Fatal(err)
		}
		n.Must(again.Set(t.Context(), w.rome.config(0)))
		again.Close()
		_ = o.SetDeadline(time.Now().Add(silence))
		_, _ = o.Write([]byte("?"))
		if _, err := o.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: a connection goes on", c.name)
		}
		_ = o.Close()
		w.calls = calls
		w.setBoth()
		testLineCalls(t, w)
	}
}

// testLineMoved has the gateways of both sides on other nodes than before.
func testLineMoved(t *testing.T, w *lineWorld) {
	o, _, err := reach(w.rome.nodes[1].Pod, w.at(7000), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = o.Close() }()
	w.move(t)
	exchange(t, o, []byte("the consumer's gateway has moved, and the caller speaks first"))
	testLineCalls(t, w)
	w.milan.gatewayAt = 1
	w.set(w.milan, 1)
	rome := w.gateway(w.rome)
	rome.Must(rome.Kernel.LinkDel(rome.Link(tunnelName)))
	tunnel(w.gateway(w.milan), rome, tunnelMTU)
	w.set(w.milan, 1)
	w.set(w.rome)
	w.set(w.milan, 0)
	testLineCalls(t, w)
	testPods(t, w.world)
}

func testLineEmpty(t *testing.T, w *lineWorld) {
	for _, c := range []*cluster{w.rome, w.milan} {
		for _, n := range c.nodes {
			n.Must(n.kernel.Set(t.Context(), Config{}))
			for _, left := range n.leftovers(t) {
				t.Errorf("%s: left: %s", n.Name, left)
			}
		}
	}
}
