package dataplane

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netnstest"
)

// TestKernel goes through a world that stands once.
func TestKernel(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.start()
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"the same again changes nothing", testIdempotent},
		{"a new process finds all as it should be", testNewProcess},
		{"pods reach pods by views, and are seen by views", testPods},
		{"a node reaches pods and is seen by the external address", testNodes},
		{"segments fit into the tunnel, and much goes through", testTransfer},
		{"a packet larger than any MTU goes through", testLargePing},
		{"what a peer may not send is dropped and counted", testSpoofed},
		{"only what is allowed is reached", testLimited},
		{"without the gateway's device nothing is sent elsewhere", testNoVeth},
		{"without its tunnel a gateway says that there is no way", testNoTunnel},
		{"connections survive the move of a gateway", testMove},
		{"nothing is left", testEmpty},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, w) })
	}
}

func testIdempotent(t *testing.T, w *world) {
	for _, c := range []*cluster{w.rome, w.milan} {
		for i, n := range c.nodes {
			before := n.kernel.writes.Load()
			generation := w.generation(n)
			w.set(c, i)
			if after := n.kernel.writes.Load(); after != before {
				t.Errorf("%s: %d writes", n.Name, after-before)
			}
			if after := w.generation(n); after != generation {
				t.Errorf("%s: nftables went from generation %d to %d", n.Name, generation, after)
			}
		}
	}
}

func (w *world) generation(n *worldNode) uint32 {
	w.t.Helper()
	g, err := n.kernel.host.filter.generation()
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

func testNewProcess(t *testing.T, w *world) {
	for i, n := range w.rome.nodes {
		again, err := New(Options{Host: n.File, Namespaces: n.held})
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Set(t.Context(), w.rome.config(i)); err != nil {
			t.Error(err)
		}
		if writes := again.writes.Load(); writes != 0 {
			t.Errorf("%s: %d writes", n.Name, writes)
		}
		again.Close()
	}
}

// testPods goes both ways between all nodes, of which one in each cluster is the gateway.
func testPods(t *testing.T, w *world) {
	for _, way := range []struct{ from, to *cluster }{{w.rome, w.milan}, {w.milan, w.rome}} {
		for from := range way.from.nodes {
			for to := range way.to.nodes {
				for _, v4 := range families {
					want := podAt(way.to.view, from+1, 5, v4).String()
					w.seen(t, way.from.nodes[from].Pod, podAt(way.from.view, to+1, 5, v4), want)
				}
			}
		}
	}
}

func testNodes(t *testing.T, w *world) {
	for _, n := range w.rome.nodes {
		for to := range w.milan.nodes {
			for _, v4 := range families {
				w.seen(t, n.Place, podAt(w.rome.view, to+1, 5, v4), externalAt(w.milan.external, v4).String())
			}
		}
	}
}

// seen opens a connection and looks who the server says it is with.
func (w *world) seen(t *testing.T, from *place, to netip.Addr, want string) {
	t.Helper()
	c, seen, err := from.Dial(to, patience)
	if err != nil {
		t.Errorf("from %s to %s: %v", from.Name, to, err)
		return
	}
	_ = c.Close()
	if seen != want {
		t.Errorf("from %s to %s: seen as %s, want %s", from.Name, to, seen, want)
	}
}

func testTransfer(t *testing.T, w *world) {
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18) // 4 MB
	for _, from := range w.rome.nodes {
		for _, v4 := range families {
			c, _, err := from.Pod.Dial(podAt(w.rome.view, 2, 5, v4), patience)
			if err != nil {
				t.Fatal(err)
			}
			headers := 60
			if v4 {
				headers = 40
			}
			if got := maxSegment(t, c); got > tunnelMTU-headers {
				t.Errorf("%s: segments of %d do not fit into %d", from.Name, got, tunnelMTU)
			}
			exchange(t, c, sent)
			_ = c.Close()
		}
	}
}

func maxSegment(t *testing.T, c net.Conn) int {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	if err := raw.Control(func(fd uintptr) {
		size, err = unix.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, unix.TCP_MAXSEG)
	}); err != nil || size == 0 {
		t.Fatal(size, err)
	}
	return size
}

// exchange sends to an echo server and reads it back.
func exchange(t *testing.T, c net.Conn, sent []byte) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := c.Write(sent)
		failed <- err
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatalf("reading %d bytes back: %v", len(sent), err)
	}
	if err := <-failed; err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("what came back is not what was sent (%v)", err)
	}
}

func testLargePing(t *testing.T, w *world) {
	for i, from := range w.rome.nodes {
		for _, v4 := range families {
			if err := from.Pod.Ping(podAt(42, i+1, 5, v4), podAt(w.rome.view, 2, 5, v4), 9000, patience); err != nil {
				t.Errorf("from %s: %v", from.Name, err)
			}
		}
	}
}

// testSpoofed sends out of the peer's end of the tunnel what its gateway would not.
func testSpoofed(t *testing.T, w *world) {
	drops := func(reason Reason) uint64 {
		list, err := w.milan.nodes[0].kernel.Drops(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range list {
			if d.Reason == reason && d.Peering != "" {
				return d.Packets
			}
		}
		t.Fatalf("no counter for %s in %v", reason, list)
		return 0
	}
	rome := w.gateway(w.rome)
	for _, c := range []struct {
		reason   string
		from, to netip.Prefix
		want     Reason
	}{
		{"a source that is not the peer's", netip.MustParsePrefix("198.51.100.1/32"), single(podAt(42, 1, 5, true)), DropSource},
		{"a view of ours", single(podAt(w.milan.view, 1, 5, true)), single(podAt(42, 1, 5, true)), DropSource},
		{"a destination that is no pod", single(podAt(42, 1, 9, true)), netip.MustParsePrefix("192.168.0.2/32"), DropDestination},
		{"the external address", single(podAt(42, 1, 9, true)), single(externalAt(realExternal, true)), DropDestination},
		{"the gateway itself", single(podAt(42, 1, 9, true)), single(errorSource(true)), DropLocal},
		{"IPv6, a source that is not the peer's", netip.MustParsePrefix("2001:db8::1/128"), single(podAt(42, 1, 5, false)), DropSource},
		{"IPv6, a destination that is no pod", single(podAt(42, 1, 9, false)), netip.MustParsePrefix("fd19::2/128"), DropDestination},
	} {
		before := drops(c.want)
		// From inside the peer's gateway, where the peer may do as it likes.
		rome.Address(tunnelName, c.from.String())
		sent := send(t, rome, c.from.Addr(), c.to.Addr())
		isCounted(t, c.reason, func() uint64 { return drops(c.want) }, before, sent)
		rome.Unaddress(tunnelName, c.from)
	}
	w.set(w.rome)
	testPods(t, w)
}

// testLimited allows addresses one by one, at milan's gateway for what comes in and at
// rome's for what goes out.
func testLimited(t *testing.T, w *world) {
	for _, side := range []struct {
		name    string
		cluster *cluster
		list    func(*Gateway) *[]netip.Addr
	}{
		{"here", w.milan, func(g *Gateway) *[]netip.Addr { return &g.Here }},
		{"there", w.rome, func(g *Gateway) *[]netip.Addr { return &g.There }},
	} {
		var allowed []netip.Addr
		side.cluster.change = func(c *Config) {
			for i := range c.Gateways {
				c.Gateways[i].Limited = true
				*side.list(&c.Gateways[i]) = allowed
			}
		}
		open, _, err := w.rome.nodes[1].Pod.Dial(podAt(w.rome.view, 2, 6, true), patience)
		if err != nil {
			t.Fatal(err)
		}
		w.set(side.cluster)
		gateway := side.cluster.nodes[0].kernel.gateways["other"].filter
		for _, v4 := range families {
			to := podAt(w.rome.view, 2, 5, v4)
			if c, _, err := w.rome.nodes[1].Pod.Dial(to, silence); err == nil {
				_ = c.Close()
				t.Errorf("%s: %s is reached although nothing is allowed", side.name, to)
			}
			rules, writes := gateway.known.read.handles, side.cluster.nodes[0].kernel.writes.Load()
			allowed = append(allowed, podAt(42, 2, 5, v4))
			w.set(side.cluster)
			if now := side.cluster.nodes[0].kernel.writes.Load(); now != writes+1 {
				t.Errorf("%s: %d writes for one element", side.name, now-writes)
			}
			if again, err := gateway.read(); err != nil || !equal(again.handles, rules) {
				t.Errorf("%s: an element made rules anew (%v)", side.name, err)
			}
			w.seen(t, w.rome.nodes[1].Pod, to, podAt(w.milan.view, 2, 5, v4).String())
			if c, _, err := w.rome.nodes[1].Pod.Dial(podAt(w.rome.view, 2, 6, v4), silence); err == nil {
				_ = c.Close()
				t.Errorf("%s: the other pod is reached", side.name)
			}
		}
		stays, _, err := w.rome.nodes[1].Pod.Dial(podAt(w.rome.view, 2, 5, true), patience)
		if err != nil {
			t.Fatal(err)
		}
		allowed = nil
		w.set(side.cluster)
		exchange(t, stays, []byte("what a set has let begin stays open"))
		_ = stays.Close()
		_ = open.SetDeadline(time.Now().Add(silence))
		_, _ = open.Write([]byte("?"))
		if _, err := open.Read(make([]byte, 1)); err == nil {
			t.Errorf("%s: what began when all might goes on", side.name)
		}
		_ = open.(*net.TCPConn).SetLinger(0)
		_ = open.Close()
		side.cluster.change = nil
		w.set(side.cluster)
	}
}

// testNoVeth takes the gateway's device away, as it goes with the process that held its namespace:
// what is for the peer goes nowhere until the next Set, and not by the node's default route.
func testNoVeth(t *testing.T, w *world) {
	node := w.rome.nodes[0]
	for _, v4 := range families {
		_, all, _ := net.ParseCIDR(everything(v4).String())
		usual := &netlink.Route{Dst: all, Gw: netnstest.NodeAddr(1, v4).AsSlice(), LinkIndex: node.Link("eth0").Attrs().Index}
		node.Must(node.Kernel.RouteAdd(usual))
		defer func() { node.Must(node.Kernel.RouteDel(usual)) }()
	}
	for _, n := range w.rome.nodes {
		n.Pod.Quiet()
	}
	node.Must(node.Kernel.LinkDel(node.Link(Device("other"))))
	for _, v4 := range families {
		c, _, err := node.Pod.Dial(podAt(w.rome.view, 1, 5, v4), patience)
		if err == nil {
			_ = c.Close()
		}
		if !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EHOSTUNREACH) {
			t.Errorf("from %s without the gateway's device: %v", node.Name, err)
		}
	}
	w.set(w.rome)
	testPods(t, w)
}

func testNoTunnel(t *testing.T, w *world) {
	for _, n := range w.rome.nodes {
		n.Pod.Quiet()
	}
	rome := w.gateway(w.rome)
	rome.Must(rome.Kernel.LinkDel(rome.Link(tunnelName)))
	w.set(w.rome)
	for _, from := range w.rome.nodes {
		for _, v4 := range families {
			c, _, err := from.Pod.Dial(podAt(w.rome.view, 1, 5, v4), patience)
			if err == nil {
				_ = c.Close()
			}
			if !errors.Is(err, unix.ENETUNREACH) && !errors.Is(err, unix.EHOSTUNREACH) {
				t.Errorf("from %s without a tunnel: %v", from.Name, err)
			}
		}
	}
	tunnel(rome, w.gateway(w.milan), tunnelMTU)
	w.set(w.rome)
	w.set(w.milan)
	testPods(t, w)
}

// testMove moves rome's gateway to its other node while connections are open, with Limited
// on both sides and only one direction allowed.
func testMove(t *testing.T, w *world) {
	limit := func(here, there []netip.Addr) func(*Config) {
		return func(c *Config) {
			for i := range c.Gateways {
				c.Gateways[i].Limited, c.Gateways[i].Here, c.Gateways[i].There = true, here, there
			}
		}
	}
	server := []netip.Addr{podAt(42, 2, 5, true), podAt(42, 2, 5, false)}
	w.rome.change, w.milan.change = limit(nil, server), limit(server, nil)
	w.set(w.rome)
	w.set(w.milan)
	type open struct {
		client, server net.Conn
	}
	var active []net.Conn
	var idle []open
	for i, n := range w.rome.nodes {
		for _, v4 := range families {
			c, _, err := n.Pod.Dial(podAt(w.rome.view, 2, 5, v4), patience)
			if err != nil {
				t.Fatal(err)
			}
			active = append(active, c)
			client, server := w.pair(t, w.rome.nodes[i].Pod, w.milan.nodes[1].Pod, podAt(w.rome.view, 2, 5, v4))
			idle = append(idle, open{client, server})
		}
	}
	w.move(t)
	for _, c := range idle { // the server speaks first
		exchangeOnce(t, c.server, c.client)
		exchangeOnce(t, c.client, c.server)
	}
	for _, c := range active {
		exchange(t, c, []byte("still there"))
	}
	w.rome.change, w.milan.change = nil, nil
	w.set(w.rome)
	w.set(w.milan)
	testPods(t, w)
	testNodes(t, w)
}

// move makes rome's gateway on its second node, brings the tunnel there, and then tells the
// first.
func (w *world) move(t *testing.T) {
	t.Helper()
	w.rome.gatewayAt = 1
	w.set(w.rome, 1)
	milan := w.gateway(w.milan)
	milan.Must(milan.Kernel.LinkDel(milan.Link(tunnelName)))
	tunnel(w.gateway(w.rome), milan, tunnelMTU)
	w.set(w.rome, 1)
	w.set(w.milan)
	w.set(w.rome, 0)
	if names, err := w.rome.nodes[0].held.List(); err != nil || len(names) != 0 {
		t.Errorf("the first node still holds %v (%v)", names, err)
	}
}

// testEmpty empties one node after the other and looks for what is left.
func testEmpty(t *testing.T, w *world) {
	for _, n := range w.rome.nodes {
		if err := n.kernel.Set(t.Context(), Config{}); err != nil {
			t.Fatal(err)
		}
		for _, left := range n.leftovers(t) {
			t.Errorf("%s: left: %s", n.Name, left)
		}
		before := n.kernel.writes.Load()
		if err := n.kernel.Set(t.Context(), Config{}); err != nil || n.kernel.writes.Load() != before {
			t.Errorf("%s: nothing twice: %v, %d writes", n.Name, err, n.kernel.writes.Load()-before)
		}
	}
	if !w.rome.nodes[0].Has("cni0") {
		t.Error("the bridge is gone")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.rome.nodes[0].kernel.Set(ctx, w.rome.config(0)); err == nil || w.rome.nodes[0].Has(vxlanName) {
		t.Errorf("set after it was called off: %v", err)
	}
	// And all comes back.
	w.rome.gatewayAt = 0
	w.set(w.rome)
	milan := w.gateway(w.milan)
	if milan.Has(tunnelName) {
		milan.Must(milan.Kernel.LinkDel(milan.Link(tunnelName)))
	}
	tunnel(w.gateway(w.rome), milan, tunnelMTU)
	w.set(w.rome)
	w.set(w.milan)
	testPods(t, w)
}
