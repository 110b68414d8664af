package dataplane

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// arrivals counts, at a hook, what comes to a place to begin a connection of TCP at the port of servers,
// over UDP for the one of send, or as an echo request.
func arrivals(t *testing.T, p *place, at *nftables.ChainHook) func() uint64 {
	t.Helper()
	table := &nftables.Table{Name: "arrivals", Family: nftables.TableFamilyINet}
	chain := &nftables.Chain{Name: "all", Table: table, Type: nftables.ChainTypeFilter, Hooknum: at, Priority: nftables.ChainPriorityRaw}
	p.Must(p.Nftables(func(c *nftables.Conn) {
		c.AddTable(table)
		c.AddChain(chain)
		for _, of := range []struct {
			protocol     byte
			offset, size uint32
			is           []byte
		}{
			{unix.IPPROTO_TCP, 2, 2, binary.BigEndian.AppendUint16(nil, netnstest.Port)},
			{unix.IPPROTO_UDP, 2, 2, binary.BigEndian.AppendUint16(nil, 9)},
			{unix.IPPROTO_ICMP, 0, 1, []byte{8}},
			{unix.IPPROTO_ICMPV6, 0, 1, []byte{128}},
		} {
			exprs := append(protocolIs(of.protocol), transport(of.offset, of.size), &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: of.is})
			if of.protocol == unix.IPPROTO_TCP {
				exprs = append(exprs, synOnly().exprs...)
			}
			c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: append(exprs, &expr.Counter{})})
		}
	}))
	t.Cleanup(func() { _ = p.Nftables(func(c *nftables.Conn) { c.DelTable(table) }) })
	return func() (sum uint64) {
		c, err := nftables.New(nftables.WithNetNSFd(int(p.File.Fd())))
		p.Must(err)
		rules, err := c.GetRules(table, chain)
		p.Must(err)
		for _, r := range rules {
			for _, e := range r.Exprs {
				if counter, ok := e.(*expr.Counter); ok {
					sum += counter.Packets
				}
			}
		}
		return sum
	}
}

// everywhere counts what arrives at all pods and nodes of a cluster.
func everywhere(t *testing.T, c *cluster) func() uint64 {
	t.Helper()
	var counts []func() uint64
	for _, n := range c.nodes {
		for _, p := range []*place{n.Pod, n.Other, n.Place} {
			counts = append(counts, arrivals(t, p, nftables.ChainHookInput))
		}
	}
	return func() (sum uint64) {
		for _, count := range counts {
			sum += count()
		}
		return sum
	}
}

// dropped is how many packets a node's gateways have dropped, for one reason or all if it is empty.
func (n *worldNode) dropped(t *testing.T, reason Reason) (sum uint64) {
	t.Helper()
	list, err := n.kernel.Drops(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		if reason == "" || d.Reason == reason {
			sum += d.Packets
		}
	}
	return sum
}

// refuses has something tried, which has to fail, until it is counted: on a busy machine the first try may
// be over before anything is sent.
func (n *worldNode) refuses(t *testing.T, reason Reason, try func() error) {
	t.Helper()
	before := n.dropped(t, reason)
	netnstest.Await(t, "it is counted", patience, func() bool {
		if err := try(); err == nil {
			t.Error("it is reached")
			return true
		}
		return n.dropped(t, reason) > before
	})
}

// testLineOthers has others than the callers, and callers for something else, try to reach milan.
func testLineOthers(t *testing.T, w *lineWorld) {
	arrived := everywhere(t, w.milan)
	inside := arrivals(t, w.gateway(w.rome), nftables.ChainHookPrerouting)
	dial := func(from *place, to netip.AddrPort) func() error {
		return func() error {
			c, _, err := reach(from, to, silence)
			if err == nil {
				_ = c.Close()
			}
			return err
		}
	}
	talk := func(from *place, to netip.AddrPort) func() error {
		return func() error {
			var c net.Conn
			if err := netns.In(from.File, func() (err error) { c, err = net.Dial("udp", to.String()); return err }); err != nil {
				return err
			}
			defer func() { _ = c.Close() }()
			_, err := c.Write([]byte("hello"))
			return fmt.Errorf("sent: %w", err)
		}
	}
	rome, milan := w.rome.nodes, w.milan.nodes
	c := w.milan.config(0)
	end := lineEnds(c, c.numbers())[lineEnd{"other", w.v4}]
	for _, c := range []struct {
		name string
		try  func() error
		at   *worldNode // the gateway's node, where it is counted
		want Reason
	}{
		{"a pod on the gateway's node that is no caller", dial(rome[0].Other, w.at(7000)), rome[0], DropDenied},
		{"a pod on the other node that is no caller", dial(rome[1].Other, w.at(7002)), rome[0], DropDenied},
		{"the gateway's node", dial(rome[0].Place, w.at(7000)), rome[0], DropDenied},
		{"the other node", dial(rome[1].Place, w.at(7003)), rome[0], DropDenied},
		{"a caller at another port", dial(rome[0].Pod, w.at(netnstest.Port)), rome[0], DropDenied},
		{"a caller on the other node over UDP", talk(rome[1].Pod, w.at(7000)), rome[0], DropDenied},
		{"a caller's echo request", func() error { return rome[1].Pod.Ping(podAt(42, 2, 5, w.v4), w.calls.Views[0], 8, silence) }, rome[0], DropDenied},
		{"a caller where no door is", dial(rome[0].Pod, w.at(7009)), milan[0], DropLocal},
		{"the provider's pod, by what stands for the consumer's end", dial(milan[0].Other, netip.AddrPortFrom(end, netnstest.Port)), milan[0], DropDestination},
		{"the provider's node, by that", dial(milan[0].Place, netip.AddrPortFrom(end, netnstest.Port)), milan[0], DropDestination},
		{"a door's pod, by that", dial(milan[0].Pod, netip.AddrPortFrom(end, netnstest.Port)), milan[0], DropDestination},
		{"the provider's pod, by the consumer's view", dial(milan[0].Other, netip.AddrPortFrom(podAt(w.milan.external, 0, 9, w.v4), 7000)), rome[0], ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			there, in := arrived(), inside()
			c.at.refuses(t, c.want, c.try)
			if now := arrived(); now != there {
				t.Errorf("%d packets arrived", now-there)
			}
			if now := inside(); now != in && c.at == milan[0] && c.want == DropDestination {
				t.Errorf("%d packets came through the tunnel", now-in)
			}
		})
	}
	// Another node has no way to what stands for the consumer's end, and its own numbers.
	if err := dial(milan[1].Pod, netip.AddrPortFrom(end, netnstest.Port))(); err == nil {
		t.Error("a pod of the other node reaches the consumer's end")
	}
}

// testLineSpoofed sends out of each end of the tunnel what the gateway there would not.
func testLineSpoofed(t *testing.T, w *lineWorld) {
	c := w.milan.config(0)
	end := lineEnds(c, c.numbers())[lineEnd{"other", w.v4}]
	rome, milan := w.gateway(w.rome), w.gateway(w.milan)
	stranger := netip.MustParseAddr("2001:db8::1")
	if w.v4 {
		stranger = netip.MustParseAddr("198.51.100.1")
	}
	pod, other := podAt(42, 1, 5, w.v4), podAt(42, 1, 6, w.v4)
	for _, c := range []struct {
		name     string
		at       *place
		from, to netip.Addr
		port     uint16
		udp      bool
		want     Reason
	}{
		{"the other end, to a pod", rome, consumerAt(w.v4), other, netnstest.Port, false, DropDenied},
		{"the other end, to what a door stands for", rome, consumerAt(w.v4), pod, netnstest.Port, false, DropDenied},
		{"the other end, to the node that a door stands for", rome, consumerAt(w.v4), netnstest.NodeAddr(0, w.v4), netnstest.Port, false, DropDenied},
		{"the other end, where no door is", rome, consumerAt(w.v4), providerAt(w.v4), netnstest.Port, false, DropLocal},
		{"the other end, over UDP", rome, consumerAt(w.v4), providerAt(w.v4), 9, true, DropLocal},
		{"the other end, to what stands for itself", rome, consumerAt(w.v4), end, netnstest.Port, false, DropDenied},
		{"the other end, to a pod over UDP", rome, consumerAt(w.v4), pod, 9, true, DropDenied},
		{"a pod of the peer, to a door", rome, podAt(42, 1, 9, w.v4), providerAt(w.v4), 7002, false, DropLocal},
		{"who has no address of the peer's, to a door", rome, stranger, providerAt(w.v4), 7002, false, DropLocal},
		{"who calls himself what stands for the other end, to a pod", rome, end, pod, netnstest.Port, false, DropSource},
		{"the provider's end, to a caller", milan, providerAt(w.v4), pod, netnstest.Port, false, DropDenied},
		{"the provider's end, to another pod", milan, providerAt(w.v4), other, netnstest.Port, false, DropDenied},
		{"the provider's end, to its own view", milan, providerAt(w.v4), w.calls.Views[0], 7000, false, DropDenied},
		{"the provider's end, to the consumer's", milan, providerAt(w.v4), consumerAt(w.v4), 7000, false, DropLocal},
		{"a pod of the provider, to the view of its end", milan, podAt(42, 1, 9, w.v4), w.calls.Views[0], 7000, false, DropDestination},
	} {
		t.Run(c.name, func(t *testing.T) {
			node, cluster := w.milan.nodes[0], w.milan
			if c.at == milan {
				node, cluster = w.rome.nodes[0], w.rome
			}
			arrived := everywhere(t, cluster)
			if c.from != consumerAt(w.v4) && c.from != providerAt(w.v4) {
				c.at.Address(tunnelName, single(c.from).String())
				defer c.at.Unaddress(tunnelName, single(c.from))
			}
			node.refuses(t, c.want, func() error {
				if c.udp {
					return fmt.Errorf("%d sent", send(t, c.at, c.from, c.to))
				}
				defer wayTo(c.at, c.to)()
				conn, _, err := reachFrom(c.at, netip.AddrPortFrom(c.from, 0), netip.AddrPortFrom(c.to, c.port), tunnelName, silence)
				if err == nil {
					_ = conn.Close()
				}
				return err
			})
			if now := arrived(); now != 0 {
				t.Errorf("%d packets arrived", now)
			}
		})
	}
	w.setBoth()
	testLineCalls(t, w)
}

// TestTwoLines has a cluster with two lines by gateways on one node, whose ends have the same addresses:
// once it has the doors, and once it calls.
func TestTwoLines(t *testing.T) {
	t.Parallel()
	const osloAtMilan, milanAtOslo = 91, 92
	for i := range 4 {
		v4, provider := i < 2, i%2 == 0
		t.Run(fmt.Sprintf("%s, it has the doors: %t", familyName(v4), provider), func(t *testing.T) {
			w := newWorld(t)
			oslo := &cluster{name: "oslo", view: milanAtOslo, external: 96}
			w.add(oslo)
			views := [2]netip.Addr{lineView(9, v4), lineView(10, v4)}
			line := func(i int, calls bool) Line {
				if calls {
					return Line{Views: views[i : i+1], Callers: callersOf(v4)[i : i+1], Ports: []uint16{7000, 7001}}
				}
				// One port is alike, and the other one is not.
				return Line{Doors: []LineDoor{{Port: 7000, To: netip.AddrPortFrom(podAt(42, 1+i, 5, v4), netnstest.Port)},
					{Port: 7001, To: netip.AddrPortFrom(netnstest.NodeAddr(1, v4), netnstest.Port)}}}
			}
			for i, c := range []*cluster{w.rome, oslo} {
				c.change = func(c *Config) { withLine(c, "other", provider, line(i, provider)) }
			}
			w.milan.change = func(c *Config) {
				withLine(c, "other", !provider, line(0, !provider))
				for _, g := range c.Gateways {
					g.Peering, g.Views = "oslo", []View{{View: viewRange(osloAtMilan, v4), Real: podRange(v4)}}
					c.Gateways = append(c.Gateways, g)
				}
				withLine(c, "oslo", !provider, line(1, !provider))
				if len(c.Gateways) > 0 && !provider {
					c.Routes[len(c.Routes)-1].Gateway = "oslo"
				}
			}
			for _, c := range []*cluster{w.rome, w.milan, oslo} {
				for _, n := range c.nodes {
					n.Listen()
				}
			}
			w.start()
			w.set(oslo)
			file, err := w.milan.nodes[0].held.Open("oslo")
			if err != nil {
				t.Fatal(err)
			}
			toOslo := netnstest.OpenPlace(t, "gateway of milan to oslo", file)
			tunnel(toOslo, w.gateway(oslo), tunnelMTU)
			w.set(w.milan)
			w.set(oslo)
			if provider {
				testTwoTenants(t, w, oslo, views)
			} else {
				testTwoProviders(t, w, oslo, views)
			}
		})
	}
}

// testTwoTenants calls from the same address and port of both tenants at once.
func testTwoTenants(t *testing.T, w *world, oslo *cluster, views [2]netip.Addr) {
	v4 := views[0].Is4()
	c := w.milan.config(0)
	ends := lineEnds(c, c.numbers())
	if len(ends) != 2 || ends[lineEnd{"other", v4}] == ends[lineEnd{"oslo", v4}] {
		t.Fatalf("what stands for the other ends: %v", ends)
	}
	node := netnstest.NodeAddr(0, v4).String()
	want := [2][2]string{{node, node}, {podAt(42, 2, 1, v4).String(), node}}
	for round := range 20 {
		var all sync.WaitGroup
		for i, of := range []*cluster{w.rome, oslo} {
			for p := range 2 {
				all.Go(func() {
					from := of.nodes[i].Pod
					at := netip.AddrPortFrom(podAt(42, 1+i, 5, v4), uint16(20000+100*p+round))
					conn, seen, err := reachFrom(from, at, netip.AddrPortFrom(views[i], uint16(7000+p)), "", patience)
					if err != nil {
						t.Errorf("%s, port %d: %v", of.name, 7000+p, err)
						return
					}
					defer func() { _ = conn.Close() }()
					exchange(t, conn, []byte(of.name))
					if seen != want[i][p] {
						t.Errorf("%s, port %d: seen as %s, want %s", of.name, 7000+p, seen, want[i][p])
					}
				})
			}
		}
		all.Wait()
	}
	// Neither gets to the other one's line, nor to the door of another port.
	arrived := everywhere(t, w.milan)
	rome := w.gateway(w.rome)
	for _, to := range []netip.AddrPort{
		netip.AddrPortFrom(ends[lineEnd{"oslo", v4}], 20000), netip.AddrPortFrom(ends[lineEnd{"other", v4}], 20000),
		netip.AddrPortFrom(podAt(42, 2, 5, v4), netnstest.Port),
	} {
		w.milan.nodes[0].refuses(t, DropDenied, func() error {
			defer wayTo(rome, to.Addr())()
			c, _, err := reachFrom(rome, netip.AddrPortFrom(consumerAt(v4), 0), to, tunnelName, silence)
			if err == nil {
				_ = c.Close()
			}
			return err
		})
	}
	if now := arrived(); now != 0 {
		t.Errorf("%d arrived", now)
	}
	testLineRate(t, w, oslo, views)
	// One line goes, and the other one stays with its number.
	stays, _, err := reach(w.rome.nodes[0].Pod, netip.AddrPortFrom(views[0], 7000), patience)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stays.Close() }()
	change := w.milan.change
	w.milan.change = func(c *Config) {
		change(c)
		for i := range c.Gateways {
			if c.Gateways[i].Peering == "oslo" {
				c.Gateways[i].Line = nil
			}
		}
	}
	w.set(w.milan)
	exchange(t, stays, []byte("still there?"))
	if c, _, err := reach(oslo.nodes[1].Pod, netip.AddrPortFrom(views[1], 7001), silence); err == nil {
		_ = c.Close()
		t.Error("oslo has no line any more, and calls")
	}
}

// testTwoProviders has the callers of each line call the right provider, and not the other one.
func testTwoProviders(t *testing.T, w *world, oslo *cluster, views [2]netip.Addr) {
	at := func(i int) netip.AddrPort { return netip.AddrPortFrom(views[i], 7001) }
	counts := [2]func() uint64{everywhere(t, w.rome), everywhere(t, oslo)}
	for i := range 2 {
		before := [2]uint64{counts[0](), counts[1]()}
		c, _, err := reach(w.milan.nodes[i].Pod, at(i), patience)
		if err != nil {
			t.Fatalf("line %d: %v", i, err)
		}
		exchange(t, c, []byte("who are you?"))
		_ = c.Close()
		if counts[i]() == before[i] || counts[1-i]() != before[1-i] {
			t.Errorf("line %d leads to the other provider", i)
		}
		before = [2]uint64{counts[0](), counts[1]()}
		if c, _, err := reach(w.milan.nodes[1-i].Pod, at(i), silence); err == nil {
			_ = c.Close()
			t.Errorf("a caller of the other line calls by line %d", i)
		}
		if counts[0]() != before[0] || counts[1]() != before[1] {
			t.Errorf("what a caller of the other line sends by line %d arrives", i)
		}
	}
}
