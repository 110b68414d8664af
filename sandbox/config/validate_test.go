package config

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidate(t *testing.T) {
	name := func(n string) func(*Cluster) { return func(c *Cluster) { c.Name = n } }
	version := func(v string) func(*Cluster) { return func(c *Cluster) { c.Version = v } }
	nodes := func(n int) func(*Cluster) { return func(c *Cluster) { c.Nodes = n } }
	label := func(k, v string) func(*Cluster) { return func(c *Cluster) { c.Labels = map[string]string{k: v} } }
	pods := func(p ...string) func(*Cluster) { return func(c *Cluster) { c.PodRanges = prefixes(p...) } }
	services := func(p ...string) func(*Cluster) { return func(c *Cluster) { c.ServiceRanges = prefixes(p...) } }
	both := func(p, s string) func(*Cluster) {
		return func(c *Cluster) { c.PodRanges, c.ServiceRanges = prefixes(p), prefixes(s) }
	}
	for _, c := range []struct {
		reason string
		change func(*Cluster)
		want   string // part of the one error; "" for none
	}{
		{"the default", func(*Cluster) {}, ""},
		{"20 characters fit", name(strings.Repeat("a", 20)), ""},
		{"21 do not", name(strings.Repeat("a", 21)), "has 21 characters; use at most 20"},
		{"a control plane machine", name("a-control"), `name: "a-control" ends in -control: machines are named after clusters, and a cluster a could have a machine of that name; choose another name`},
		{"a NAT box", name("a-nat"), "ends in -nat"},
		{"a node", name("a-12"), "ends in -12"},
		{"a number inside is no ending", name("a-1-b"), ""},
		{"a number without a dash is no ending", name("a1"), ""},
		{"the router", name("internet"), "is the machine between the clusters"},
		{"capitals", name("Rome"), "cannot be part of a host name"},
		{"a dash at the end", name("rome-"), "cannot be part of a host name"},
		{"no name", name(""), "name: is missing"},
		{"oldest release", version("v1.34.0"), ""},
		{"too old", version("v1.33.9"), "is not a Kubernetes release"},
		{"too new", version("v1.37.0"), "is not a Kubernetes release"},
		{"no v", version("1.36.3"), "write v1.36.3"},
		{"no patch", version("v1.36"), "choose v1.34.x"},
		{"a leading zero", version("v1.36.03"), "is not a Kubernetes release"},
		{"a path", version("v1.36.3/../.."), "is not a Kubernetes release"},
		{"no nodes", nodes(0), "nodes: is 0; choose 1 to 50"},
		{"most nodes", nodes(50), ""},
		{"too many nodes", nodes(51), "nodes: is 51"},
		{"a label", label("pelago.dev/kind", "edge_1.x"), ""},
		{"a label the kubelet may set", label("topology.kubernetes.io/region", "eu"), ""},
		{"a label the kubelet may not set", label("kubernetes.io/hostname", "x"), "has a prefix that Kubernetes keeps for itself"},
		{"another one", label("node-role.kubernetes.io/master", ""), "has a prefix that Kubernetes keeps for itself"},
		{"anyone's node label", label("node.kubernetes.io/class", "x"), ""},
		{"a bad key", label("a b", "x"), `labels["a b"]: is not a Kubernetes label key`},
		{"a bad value", label("a", "x y"), `"x y" is not a Kubernetes label value`},
		{"a long value", label("a", strings.Repeat("x", 64)), "is not a Kubernetes label value"},
		{"IPv6 alone", both("fd42::/48", "fd43::/112"), ""},
		{"families differ", pods("fd42::/48"), "serviceRanges: has the families [IPv4], podRanges has [IPv6]"},
		{"another order", func(c *Cluster) {
			c.PodRanges, c.ServiceRanges = prefixes("10.42.0.0/16", "fd42::/48"), prefixes("fd43::/112", "10.43.0.0/16")
		}, "families [IPv6 IPv4]"},
		{"three ranges", pods("10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"), "has 3 ranges"},
		{"overlap of kinds", services("10.42.7.0/24"), "serviceRanges[0]: 10.42.7.0/24 overlaps 10.42.0.0/16 of clusters[0].podRanges[0]"},
		{"the machines' addresses", pods("198.18.0.0/16"), "overlaps 198.18.0.0/15, the addresses of the sandbox's machines"},
		{"around the machines' addresses", pods("198.0.0.0/8"), "overlaps 198.18.0.0/15"},
		{"the machines' IPv6 addresses", both("fd5a:70e1:a90::/56", "fd43::/112"), "overlaps fd5a:70e1:a90::/48"},
		{"loopback", pods("127.0.0.0/16"), "loopback"},
		{"link-local", pods("169.254.0.0/16"), "link-local"},
		{"multicast", services("224.0.0.0/16"), "multicast"},
		{"IPv6 multicast", both("fd42::/48", "ff05::/112"), "multicast"},
		{"IPv6 link-local", both("fe80::/64", "fd43::/112"), "link-local"},
		{"IPv4 in disguise", both("::ffff:10.0.0.0/120", "fd43::/112"), "is IPv4 in an IPv6 form"},
		{"host bits", pods("10.42.1.0/16"), "10.42.1.0/16 begins inside the range; write 10.42.0.0/16"},
		{"a /24 for each of 2 nodes", pods("10.42.0.0/23"), ""},
		{"a /24 for one of 2 nodes", pods("10.42.0.0/24"), "podRanges[0]: 10.42.0.0/24 holds a /24 for 1 of 2 nodes; choose a /23 or larger"},
		{"a /64 for one of 2 nodes", both("fd42::/64", "fd43::/112"), "choose a /63 or larger"},
		{"less than a /24", pods("10.42.0.0/25"), "is too small; choose a prefix length of 8 to 24"},
		{"more IPv6 networks than the controller hands out", both("fd42::/47", "fd43::/112"), "is too large"},
		{"most Services", services("10.64.0.0/12"), ""},
		{"too many Services", services("10.0.0.0/11"), "kube-apiserver takes at most 2^20 addresses"},
		{"most IPv6 Services", both("fd42::/48", "fd43::/108"), ""},
		{"too many IPv6 Services", both("fd42::/48", "fd43::/107"), "kube-apiserver takes at most 2^20 addresses"},
		{"too few Services", services("10.43.0.0/29"), "is too small"},
		{"no such plugin", func(c *Cluster) { c.CNI = "Flannel" }, "did you mean flannel?"},
		{"no such add-on", func(c *Cluster) { c.Addons = []string{"istio"} }, "use one of coredns, metrics-server, local-path, load-balancer"},
		{"an add-on twice", func(c *Cluster) { c.Addons = []string{"coredns", "coredns"} }, "coredns is listed twice"},
		{"no add-ons", func(c *Cluster) { c.Addons = nil }, ""},
		{"an unset range", func(c *Cluster) { c.PodRanges = []netip.Prefix{{}} }, "podRanges[0]: is not an address range"},
	} {
		k := plain("rome")
		c.change(&k)
		err := Sandbox{Clusters: []Cluster{k}}.Validate()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.reason, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("%s: one mistake, several reports:\n%v", c.reason, err)
		}
	}
}

func TestDefault(t *testing.T) {
	got, err := Default([]string{"rome", "milan"}, 3)
	if err != nil {
		t.Fatal(err)
	}
	rome, milan := plain("rome"), plain("milan")
	rome.Nodes, milan.Nodes = 3, 3
	if d := cmp.Diff(Sandbox{Clusters: []Cluster{rome, milan}}, got, byPrefix); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestDefaultRefuses(t *testing.T) {
	var many []string
	for i := range 31 {
		many = append(many, fmt.Sprintf("c%d", i))
	}
	for _, c := range []struct {
		reason string
		names  []string
		nodes  int
		want   string
	}{
		{"no nodes is not the default of nodes", []string{"rome"}, 0, "clusters[0].nodes: is 0; choose 1 to 50"},
		{"no clusters", nil, 2, "clusters: has no cluster; list at least one"},
		{"one name twice", []string{"rome", "rome"}, 2, `clusters[1].name: "rome" is also the name of clusters[0]; choose another name`},
		{"more than the address plan has", many, 2, "clusters: lists 31 clusters, a sandbox has addresses for 30; remove some or use a second sandbox (--name)"},
	} {
		_, err := Default(c.names, c.nodes)
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %s", c.reason, err, c.want)
		}
	}
}

func TestNearest(t *testing.T) {
	for _, c := range []struct{ reason, name, want string }{
		{"a slip", "nodez", "nodes"},
		{"another case", "behindNat", "behindNAT"},
		{"two slips", "podRangse", "podRanges"},
		{"three slips", "podRnage", ""},
		{"a singular", "label", "labels"},
		{"nothing like it", "provider", ""},
		{"far too long", strings.Repeat("n", 1000), ""},
	} {
		if got := nearest(c.name, clusterFields); got != c.want {
			t.Errorf("%s: nearest(%q) = %q, want %q", c.reason, c.name, got, c.want)
		}
	}
}
