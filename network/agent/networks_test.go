package agent

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/netnstest"
)

// route adds a route of a place, to a network by a device, a router or both.
func route(p *netnstest.Place, to, device string, change func(*netlink.Route)) {
	p.T.Helper()
	r := &netlink.Route{Scope: netlink.SCOPE_LINK}
	if to != "" {
		_, r.Dst, _ = net.ParseCIDR(to)
	}
	if device != "" {
		r.LinkIndex = p.Link(device).Attrs().Index
	}
	if change != nil {
		r.Scope = netlink.SCOPE_UNIVERSE
		change(r)
	}
	p.Must(p.Kernel.RouteAdd(r))
}

func via(router string) func(*netlink.Route) {
	return func(r *netlink.Route) { r.Gw = net.ParseIP(router) }
}

// TestLookAround reads what a kernel knows of where a node is.
func TestLookAround(t *testing.T) {
	node, other := netnstest.NewPlace(t, "node"), netnstest.NewPlace(t, "other")
	for device, addrs := range map[string][]string{
		"eth0": {"192.0.2.7/24", "2001:db8:1::7/64"}, "cni0": {"10.42.0.1/24"}, "pelago-vx": {"10.99.0.1/24"}, "pelago-00": nil, "vpn0": {"10.200.3.4/32"}, "cali1": nil,
	} {
		node.Join(device, other, device, 1500)
		node.Address(device, addrs...)
	}
	route(node, "0.0.0.0/0", "eth0", via("192.0.2.1"))
	route(node, "::/0", "eth0", via("2001:db8:1::1"))
	route(node, "0.0.0.0/1", "vpn0", nil)
	route(node, "10.0.0.0/9", "vpn0", nil)
	route(node, "10.42.1.0/24", "eth0", via("192.0.2.8"))
	route(node, "10.143.0.9/32", "cali1", nil)
	route(node, "192.168.5.5/32", "eth0", via("192.0.2.9"))
	route(node, "192.168.6.0/24", "", func(r *netlink.Route) {
		for _, last := range []byte{10, 11} {
			r.MultiPath = append(r.MultiPath, &netlink.NexthopInfo{LinkIndex: node.Link("eth0").Attrs().Index, Gw: net.IPv4(192, 0, 2, last)})
		}
	})
	route(node, "172.31.0.0/16", "pelago-00", nil)
	route(node, "172.30.0.0/16", "eth0", func(r *netlink.Route) { r.Table, r.Gw = 7077, net.IPv4(192, 0, 2, 8) })
	route(node, "172.29.0.0/16", "", func(r *netlink.Route) { r.Type = unix.RTN_UNREACHABLE })
	route(node, "fd00:7::/48", "eth0", via("2001:db8:1::2"))

	c, err := lookAround(node.File)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.hosts, addrs("192.0.2.1", "2001:db8:1::1")) {
		t.Errorf("routers %v", c.hosts)
	}
	c.hosts = append(c.hosts, netip.MustParseAddr("10.250.0.53"), netip.MustParseAddr("127.0.0.53"), netip.MustParseAddr("10.42.0.10"))
	want := "10.0.0.0/9 10.200.3.4/32 10.250.0.53/32 192.0.2.0/24 192.168.5.5/32 192.168.6.0/24 2001:db8:1::/64 fd00:7::/48"
	if got := networksText(c.report(prefixes("10.42.0.0/24", "10.42.1.0/24"))); got != want {
		t.Errorf("told\n%s, want\n%s", got, want)
	}
	if got := networksText(c.report(prefixes("10.0.0.0/8"))); strings.Contains(got, "10.0.0.0/9") || strings.Contains(got, "10.250") {
		t.Errorf("where pods are wider the node is in %s", got)
	}
}

// TestReport holds what is told where there is more than counts.
func TestReport(t *testing.T) {
	var c connections
	for i := range 300 {
		c.networks = append(c.networks, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), byte(i >> 8), 0}), 24))
	}
	c.networks = append(c.networks, prefixes("192.168.0.0/16")...)
	for i := range 30 {
		c.hosts = append(c.hosts, netip.AddrFrom4([4]byte{172, 20, 0, byte(i)}))
	}
	c.hosts = append(c.hosts, c.hosts...)
	got := c.report(nil)
	single := 0
	for _, p := range got {
		if p.IsSingleIP() {
			single++
		}
	}
	if len(got) != v1alpha1.MaxNetworks || single != maxHosts || !slices.Contains(got, prefixes("192.168.0.0/16")[0]) || !slices.IsSortedFunc(got, netip.Prefix.Compare) {
		t.Errorf("%d are told, %d of them single addresses: %v", len(got), single, got)
	}
	if n := len(networksText(got)); n > 4096 {
		t.Errorf("the text has %d bytes", n)
	}
}

// TestRemembered holds that a network counts for a while longer than it is there.
func TestRemembered(t *testing.T) {
	c, at := connected{}, time.Unix(1000, 0)
	is := func(reason, want string) {
		t.Helper()
		if got := networksText(c.all()); got != want {
			t.Errorf("%s: %s, want %s", reason, got, want)
		}
	}
	c.see(prefixes("10.0.0.0/8", "192.168.1.0/24"), at)
	c.see(prefixes("192.168.1.0/24"), at.Add(connectedFor-time.Second))
	is("a link is away for a while", "10.0.0.0/8 192.168.1.0/24")
	c.see(prefixes("192.168.1.0/24"), at.Add(connectedFor))
	is("it does not come back", "192.168.1.0/24")
	var many []netip.Prefix
	for i := range v1alpha1.MaxNetworks - 1 {
		many = append(many, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i), 0}), 24))
	}
	c.see(prefixes("11.0.0.0/8"), at.Add(connectedFor+time.Second))
	c.see(many, at.Add(connectedFor+2*time.Second))
	if all := c.all(); len(c) != v1alpha1.MaxNetworks || !slices.Contains(all, prefixes("11.0.0.0/8")[0]) || slices.Contains(all, prefixes("192.168.1.0/24")[0]) {
		t.Errorf("of more than counts are left %d: %v", len(c), all)
	}
}
