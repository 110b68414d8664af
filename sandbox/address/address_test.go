package address

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// everyNetwork calls visit with each network there can be and a name for it.
func everyNetwork(visit func(name string, sandbox int, n Network)) {
	for s := range Sandboxes {
		for k := range Clusters {
			visit(fmt.Sprintf("cluster %d of sandbox %d", k, s), s, Cluster(s, k))
		}
		visit(fmt.Sprintf("transit of sandbox %d", s), s, Transit(s))
	}
}

// machines are the addresses that machines of a network can have.
func machines(name string, n Network, isTransit bool) map[string]Pair {
	all := map[string]Pair{name + ", router": n.Router()}
	if isTransit {
		all[name+", host"] = n.Host()
		for k := range Clusters {
			all[fmt.Sprintf("%s, NAT box %d", name, k)] = n.NAT(k)
		}
		return all
	}
	all[name+", control plane"] = n.Control()
	for i := 1; i <= Nodes; i++ {
		all[fmt.Sprintf("%s, node %d", name, i)] = n.Node(i)
	}
	return all
}

func TestNoTwoMachinesShareAnAddress(t *testing.T) {
	owner := map[netip.Addr]string{}
	everyNetwork(func(name string, sandbox int, n Network) {
		network := n.Prefix()
		for machine, pair := range machines(name, n, n == Transit(sandbox)) {
			for i, space := range []netip.Prefix{Space4, Space6} {
				a, net := pair.Addresses()[i], network.Prefixes()[i]
				if other, taken := owner[a]; taken {
					t.Fatalf("%s has %s, which is also that of %s", machine, a, other)
				}
				owner[a] = machine
				if !space.Contains(a) || !net.Contains(a) {
					t.Fatalf("%s has %s, outside %s or %s", machine, a, net, space)
				}
				if a == net.Addr() || a == lastOf(net) {
					t.Fatalf("%s has %s, the first or last address of %s", machine, a, net)
				}
				if bits := pair.Prefixes()[i].Bits(); bits != net.Bits() {
					t.Fatalf("%s has a /%d in %s", machine, bits, net)
				}
			}
		}
	})
	if want := 2 * Sandboxes * (Clusters*(Nodes+2) + Clusters + 2); len(owner) != want {
		t.Errorf("%d addresses were checked, want %d", len(owner), want)
	}
}

// lastOf is the broadcast address of an IPv4 network.
func lastOf(p netip.Prefix) netip.Addr {
	if p.Addr().Is6() {
		return netip.Addr{}
	}
	raw := p.Addr().As4()
	raw[3] |= byte(0xff >> (p.Bits() - 24))
	return netip.AddrFrom4(raw)
}

func TestNetworksAreDisjoint(t *testing.T) {
	names, networks := []string{}, []Pair{}
	everyNetwork(func(name string, sandbox int, n Network) {
		p := n.Prefix()
		for i := range networks {
			if p.V4.Overlaps(networks[i].V4) || p.V6.Overlaps(networks[i].V6) {
				t.Fatalf("%s (%v) overlaps %s (%v)", name, p, names[i], networks[i])
			}
		}
		names, networks = append(names, name), append(networks, p)
		for s := range Sandboxes {
			whole := Sandbox(s)
			inside := whole.V4.Overlaps(p.V4) && whole.V6.Overlaps(p.V6)
			touches := whole.V4.Overlaps(p.V4) || whole.V6.Overlaps(p.V6)
			if s == sandbox && !inside || s != sandbox && touches {
				t.Fatalf("%s (%v) and sandbox %d (%v): inside %t, touches %t", name, p, s, whole, inside, touches)
			}
		}
		for i, router := range n.Router().Prefixes() {
			if p.Prefixes()[i] != router.Masked() {
				t.Fatalf("%s: %s is not the network of its router %s", name, p.Prefixes()[i], router)
			}
		}
	})
}

func TestLoadBalancersAreNobodyElses(t *testing.T) {
	everyNetwork(func(name string, sandbox int, n Network) {
		if n == Transit(sandbox) {
			return
		}
		for i, ends := range n.LoadBalancers() {
			first, last := ends[0], ends[1]
			network := n.Prefix().Prefixes()[i]
			if !first.Less(last) || !network.Contains(first) || !network.Contains(last) {
				t.Fatalf("%s: load balancers %s to %s are not a range in %s", name, first, last, network)
			}
			for machine, pair := range machines(name, n, false) {
				a := pair.Addresses()[i]
				if a.Compare(first) >= 0 && a.Compare(last) <= 0 {
					t.Fatalf("%s has %s, among the load balancers %s to %s", machine, a, first, last)
				}
			}
		}
	})
}

func TestKnownAddresses(t *testing.T) {
	first, last := Cluster(0, 0), Cluster(Sandboxes-1, Clusters-1)
	for _, c := range []struct {
		reason string
		got    Pair
		v4, v6 string
	}{
		{"the lowest network begins the space", first.Prefix(), "198.18.0.0/24", "fd5a:70e1:a90::/64"},
		{"routers have .1", first.Router(), "198.18.0.1/24", "fd5a:70e1:a90::1/64"},
		{"control planes have .2", first.Control(), "198.18.0.2/24", "fd5a:70e1:a90::2/64"},
		{"nodes count from .11", first.Node(1), "198.18.0.11/24", "fd5a:70e1:a90::b/64"},
		{"the last node stays below the load balancers", first.Node(Nodes), "198.18.0.190/24", "fd5a:70e1:a90::be/64"},
		{"clusters are a /24 apart", Cluster(0, 1).Node(2), "198.18.1.12/24", "fd5a:70e1:a90:1::c/64"},
		{"sandboxes are a /19 apart", Cluster(1, 0).Router(), "198.18.32.1/24", "fd5a:70e1:a90:20::1/64"},
		{"the ninth sandbox crosses into 198.19", Cluster(8, 0).Router(), "198.19.0.1/24", "fd5a:70e1:a90:100::1/64"},
		{"the highest cluster network", last.Prefix(), "198.19.253.0/24", "fd5a:70e1:a90:1fd::/64"},
		{"the transit network is the last of a sandbox", Transit(0).Router(), "198.18.31.1/24", "fd5a:70e1:a90:1f::1/64"},
		{"the host is in the transit network", Transit(2).Host(), "198.18.95.254/24", "fd5a:70e1:a90:5f::fe/64"},
		{"NAT boxes have .100 and up", Transit(0).NAT(29), "198.18.31.129/24", "fd5a:70e1:a90:1f::81/64"},
		{"a whole sandbox", Sandbox(1), "198.18.32.0/19", "fd5a:70e1:a90:20::/59"},
	} {
		want := Pair{netip.MustParsePrefix(c.v4), netip.MustParsePrefix(c.v6)}
		if c.got != want {
			t.Errorf("%s: got %v, want %v", c.reason, c.got, want)
		}
	}
}

func TestPairForms(t *testing.T) {
	pair := Cluster(0, 0).Node(1)
	got := fmt.Sprint(pair.Prefixes(), pair.Addresses(), pair.Hosts())
	want := "[198.18.0.11/24 fd5a:70e1:a90::b/64] [198.18.0.11 fd5a:70e1:a90::b] [198.18.0.11/32 fd5a:70e1:a90::b/128]"
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("forms of one pair (-want +got):\n%s", d)
	}
}
