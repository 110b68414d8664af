package machine

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

var (
	lanA4, lanA6 = netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("fd00:a::1/64")
	hostC        = pair{netip.MustParsePrefix("203.0.113.9/32"), netip.MustParsePrefix("fd00:c::9/128")}
	hostR        = pair{netip.MustParsePrefix("203.0.113.1/32"), netip.MustParsePrefix("fd00:c::1/128")}
	all4, all6   = netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")
)

// pair is an address of each family.
type pair struct{ v4, v6 netip.Prefix }

func (p pair) Addresses() []netip.Addr  { return []netip.Addr{p.v4.Addr(), p.v6.Addr()} }
func (p pair) prefixes() []netip.Prefix { return []netip.Prefix{p.v4, p.v6} }

func routed(s *Spec) {
	s.Sysctls = map[string]string{"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}
}

func network(t *testing.T, m *Machine) *Network {
	t.Helper()
	n, err := m.Network()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

// onBridge plugs a machine into a router's bridge as number n.
func onBridge(router, m *Network, n int) error {
	address := []netip.Prefix{
		netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", n)), netip.MustParsePrefix(fmt.Sprintf("fd00:a::%d/64", n)),
	}
	port := fmt.Sprintf("port%d", n)
	return errors.Join(
		router.Bridge("lan"),
		router.Address("lan", lanA4, lanA6),
		Wire(router, port, m, "eth0", "seed"+port),
		router.Enslave(port, "lan"),
		m.Address("eth0", address...),
		m.RouteBoth(all4, all6, pair{lanA4, lanA6}),
	)
}

// pointToPoint joins a machine and a router without a common network.
func pointToPoint(router, m *Network) error {
	err := errors.Join(
		Wire(router, "wan", m, "eth0", "seed"),
		router.Address("wan", hostR.prefixes()...),
		m.Address("eth0", hostC.prefixes()...),
	)
	for i := range 2 {
		err = errors.Join(err, router.Direct(hostC.prefixes()[i], "wan"), m.Direct(hostR.prefixes()[i], "eth0"))
	}
	return errors.Join(err, m.RouteBoth(all4, all6, hostR))
}

func TestWiredMachinesReachEachOther(t *testing.T) {
	w := newWorld(t)
	router := w.start(t, w.spec("router", routed))
	a, b, c := w.start(t, w.spec("a", nil)), w.start(t, w.spec("b", nil)), w.start(t, w.spec("c", nil))
	for range 2 { // the second time finds everything there
		err := errors.Join(
			onBridge(network(t, router), network(t, a), 11),
			onBridge(network(t, router), network(t, b), 12),
			pointToPoint(network(t, router), network(t, c)),
		)
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range []*Machine{b, c} {
		put(t, m, Unit{Name: "listen", Args: []string{w.program, "test-listen", "[::]:7000", m.Name}})
	}
	for _, reach := range []struct {
		reason, to, want string
	}{
		{"over the bridge", "192.0.2.12:7000", "b"},
		{"over the bridge, IPv6", "[fd00:a::12]:7000", "b"},
		{"through the router", "203.0.113.9:7000", "c"},
		{"through the router, IPv6", "[fd00:c::9]:7000", "c"},
	} {
		if got := runUnit(t, a, w.program, "test-dial", reach.to); got != reach.want {
			t.Errorf("%s: %s answers %q, want %q", reach.reason, reach.to, got, reach.want)
		}
	}
}

func TestWireIsTheSameAfterARestart(t *testing.T) {
	w := newWorld(t)
	spec := w.spec("a", nil)
	router, m := w.start(t, w.spec("router", routed)), w.start(t, spec)
	if err := onBridge(network(t, router), network(t, m), 11); err != nil {
		t.Fatal(err)
	}
	before := macOf(t, m, "eth0") + " " + macOf(t, router, "port11")
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	// At once, while the kernel may still be clearing away the old pair.
	m = w.start(t, spec)
	if err := onBridge(network(t, router), network(t, m), 11); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(before, macOf(t, m, "eth0")+" "+macOf(t, router, "port11")); d != "" {
		t.Errorf("its neighbours see another machine (-before +after):\n%s", d)
	}
	put(t, m, Unit{Name: "listen", Args: []string{w.program, "test-listen", "192.0.2.11:7000", "a"}})
	if got := runUnit(t, router, w.program, "test-dial", "192.0.2.11:7000"); got != "a" {
		t.Errorf("after the restart it answers %q", got)
	}
}

func macOf(t *testing.T, m *Machine, name string) string {
	t.Helper()
	link, err := network(t, m).LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().HardwareAddr.String()
}

func TestAddressesAreUsableAtOnce(t *testing.T) {
	w := newWorld(t)
	router, m := network(t, w.start(t, w.spec("router", routed))), network(t, w.start(t, w.spec("a", nil)))
	if err := onBridge(router, m, 11); err != nil {
		t.Fatal(err)
	}
	link, err := m.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	all, err := m.AddrList(link, netlink.FAMILY_V6)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.IP.IsGlobalUnicast() && a.Flags&unix.IFA_F_TENTATIVE != 0 {
			t.Errorf("%s waits for others to object", a)
		}
	}
}

func TestKillTakesInterfacesAlong(t *testing.T) {
	w := newWorld(t)
	router, m := w.start(t, w.spec("router", routed)), w.start(t, w.spec("a", nil))
	outer, err := router.Network()
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Close()
	inner, err := m.Network()
	if err != nil {
		t.Fatal(err)
	}
	err = onBridge(outer, inner, 11)
	inner.Close() // an open handle keeps a network alive
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the router loses its end of the wire", func() error {
		links, err := outer.LinkList()
		for _, link := range links {
			if strings.HasPrefix(link.Attrs().Name, "port") {
				return fmt.Errorf("%s is there", link.Attrs().Name)
			}
		}
		return err
	})
}

func TestNetworkMistakes(t *testing.T) {
	w := newWorld(t)
	n := network(t, w.start(t, w.spec("a", nil)))
	for _, c := range []struct {
		reason string
		err    error
		want   string
	}{
		{"an address for nothing", n.Address("eth7", lanA4), "finding eth7"},
		{"bringing nothing up", n.Up("eth7"), "finding eth7"},
		{"a bridge of nothing", n.Enslave("eth7", "lan"), "finding eth7"},
		{"a bridge that is none", n.Enslave("lo", "lan"), "finding lan"},
		{"a route to nothing", n.Direct(all4, "eth7"), "finding eth7"},
		{"a gateway out of reach", n.Route(all4, netip.MustParseAddr("192.0.2.1")), "finding the way to 192.0.2.1"},
		{"a name longer than the kernel takes", n.Bridge("a-name-of-sixteen"), "making bridge a-name-of-sixteen"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.reason, c.err, c.want)
		}
	}
	gone := &Machine{Spec: Spec{Name: "gone"}, PID: 1 << 30}
	if _, err := gone.Network(); err == nil || !strings.Contains(err.Error(), "machine gone") {
		t.Errorf("the network of a machine that is gone: %v", err)
	}
}

func TestHostNetwork(t *testing.T) {
	requireRoot(t)
	n, err := HostNetwork()
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if _, err := n.LinkByName("lo"); err != nil {
		t.Errorf("the host has no loopback: %v", err)
	}
}

func TestHardwareAddresses(t *testing.T) {
	seen := map[string]string{}
	for i := range 1000 {
		seed := fmt.Sprintf("default/rome-%d/a", i)
		address := hardware(seed)
		if len(address) != 6 || address[0]&1 != 0 || address[0]&2 == 0 {
			t.Fatalf("%s of %s is not a locally administered unicast address", address, seed)
		}
		if d := cmp.Diff(address, hardware(seed)); d != "" {
			t.Fatalf("the address of %s is not always the same:\n%s", seed, d)
		}
		if other, taken := seen[address.String()]; taken {
			t.Fatalf("%s and %s both have %s", seed, other, address)
		}
		seen[address.String()] = seed
	}
}
