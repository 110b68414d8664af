package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// describe writes units one argument a line, so that a golden file reads well.
func describe(units []machine.Unit) string {
	var b strings.Builder
	for _, u := range units {
		how := "kept running"
		if u.Once {
			how = "once"
		}
		fmt.Fprintf(&b, "unit %s (%s)\n", u.Name, how)
		for _, arg := range u.Args {
			fmt.Fprintf(&b, "    %s\n", arg)
		}
		for _, variable := range u.Env {
			fmt.Fprintf(&b, "    env %s\n", variable)
		}
	}
	return b.String()
}

func TestControlUnits(t *testing.T) {
	for _, c := range plan().Clusters {
		units := append([]machine.Unit{c.etcdUnit(), c.apiServerUnit()}, c.controllerUnits()...)
		golden(t, c.Name+"-control.txt", describe(units))
	}
}

func TestNodeUnits(t *testing.T) {
	for _, c := range plan().Clusters {
		golden(t, c.Name+"-node.txt", describe(append([]machine.Unit{c.masqueradeUnit(1)}, c.nodeUnits(1)...)))
	}
}

// TestImagesComeBeforeTheKubelet guards a position that startNode relies on.
func TestImagesComeBeforeTheKubelet(t *testing.T) {
	for _, c := range plan().Clusters {
		var names []string
		for _, unit := range c.nodeUnits(1) {
			names = append(names, unit.Name)
		}
		if d := cmp.Diff([]string{"containerd", "kubelet", "kube-proxy"}, names); d != "" {
			t.Errorf("units of %s: images are loaded after the second (-want +got):\n%s", c.Name, d)
		}
	}
}

func TestNodeFiles(t *testing.T) {
	for _, c := range plan().Clusters {
		for i := 1; i <= c.Nodes; i++ {
			if i > 1 && c.Name == "rome" {
				continue // milan shows how nodes differ
			}
			files := c.nodeFiles(i)
			var b strings.Builder
			for _, path := range slices.Sorted(maps.Keys(files)) {
				fmt.Fprintf(&b, "===== %s\n%s", path, files[path])
			}
			golden(t, c.NodeName(i)+"-files.txt", b.String())
		}
	}
}

func TestConflistIsJSON(t *testing.T) {
	for _, c := range plan().Clusters {
		var list struct {
			Plugins []struct {
				IPAM struct {
					Ranges [][]struct{ Subnet netip.Prefix }
					Routes []struct{ Dst netip.Prefix }
				}
			}
		}
		if err := json.Unmarshal([]byte(c.bridgeConflist(2)), &list); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		ipam := list.Plugins[0].IPAM
		if len(ipam.Ranges) != len(c.PodRanges) || len(ipam.Routes) != len(c.PodRanges) {
			t.Errorf("%s has %d pod ranges; its plugin has %v and %v", c.Name, len(c.PodRanges), ipam.Ranges, ipam.Routes)
		}
		for at, want := range c.PodPrefixes(2) {
			if got := ipam.Ranges[at][0].Subnet; got != want {
				t.Errorf("node 2 of %s takes pod addresses from %s, want %s", c.Name, got, want)
			}
		}
	}
}

func TestMachineSpecs(t *testing.T) {
	c := plan().Clusters[0]
	for name, spec := range map[string]machine.Spec{
		"control-machine.json": c.machineSpec(c.ControlName()), "node-machine.json": c.nodeSpec(2),
	} {
		text, err := json.MarshalIndent(spec, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, string(text)+"\n")
	}
	if first := c.nodeSpec(1).Sysctls; first["net/bridge/bridge-nf-call-iptables"] != "1" || c.machineSpec("x").Sysctls["net/bridge/bridge-nf-call-iptables"] != "0" {
		t.Error("a node's settings leak into those of other machines")
	}
}

func TestNodeObject(t *testing.T) {
	s := plan()
	rome := s.Clusters[0].node(2)
	want := map[string]string{
		"kubernetes.io/hostname": "rome-2", "kubernetes.io/os": "linux", "provider": "anna", "region": "eu-south", "topology.kubernetes.io/region": "eu-south",
	}
	if d := cmp.Diff(want, rome.Labels); d != "" {
		t.Errorf("labels (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"10.42.1.0/24"}, rome.Spec.PodCIDRs); d != "" || rome.Spec.PodCIDR != "10.42.1.0/24" {
		t.Errorf("pod range %s (-want +got):\n%s", rome.Spec.PodCIDR, d)
	}
	milan := s.Clusters[1].node(3)
	if d := cmp.Diff([]string{"10.42.2.0/24", "fd42:0:0:2::/64"}, milan.Spec.PodCIDRs); d != "" || milan.Name != "milan-3" {
		t.Errorf("node %s (-want +got):\n%s", milan.Name, d)
	}
	if _, there := milan.Labels["topology.kubernetes.io/region"]; there {
		t.Error("a cluster without a region has nodes with one")
	}
}

func TestNthSubnet(t *testing.T) {
	for _, c := range []struct {
		reason, of string
		n          int
		want       string
	}{
		{"the first begins where the range does", "10.42.0.0/16", 0, "10.42.0.0/24"},
		{"the next one", "10.42.0.0/16", 1, "10.42.1.0/24"},
		{"the last one of a /16", "10.42.0.0/16", 255, "10.42.255.0/24"},
		{"into the second byte", "10.0.0.0/8", 256, "10.1.0.0/24"},
		{"into the second byte, and the third", "10.0.0.0/8", 259, "10.1.3.0/24"},
		{"a carry through two bytes", "10.255.255.0/24", 1, "11.0.0.0/24"},
		{"a range that is one part", "10.42.7.0/24", 0, "10.42.7.0/24"},
		{"a range that was not masked", "10.42.7.9/16", 1, "10.42.1.0/24"},
		{"IPv6, the first", "fd42::/48", 0, "fd42::/64"},
		{"IPv6, the next", "fd42::/48", 1, "fd42:0:0:1::/64"},
		{"IPv6, into the higher byte", "fd42::/48", 256, "fd42:0:0:100::/64"},
		{"IPv6, the last of a /48", "fd42::/48", 65535, "fd42:0:0:ffff::/64"},
		{"IPv6, a carry past /48", "fd42:0:0:ffff::/64", 1, "fd42:0:1::/64"},
	} {
		got := nthSubnet(netip.MustParsePrefix(c.of), c.n)
		if want := netip.MustParsePrefix(c.want); got != want {
			t.Errorf("%s: part %d of %s is %s, want %s", c.reason, c.n, c.of, got, want)
		}
	}
}

// TestPodPrefixesAreApart checks the plan of the largest cluster there can be.
func TestPodPrefixesAreApart(t *testing.T) {
	c := &Cluster{Cluster: config.Cluster{Name: "big", PodRanges: prefixes("10.42.0.0/16", "fd42::/48")}}
	seen := map[netip.Prefix]int{}
	for i := 1; i <= 50; i++ {
		for at, p := range c.PodPrefixes(i) {
			if other, taken := seen[p]; taken {
				t.Fatalf("nodes %d and %d both have %s", i, other, p)
			}
			seen[p] = i
			if r := c.PodRanges[at]; !r.Contains(p.Addr()) || p != p.Masked() {
				t.Fatalf("node %d has %s, not a part of %s", i, p, r)
			}
		}
	}
}

func TestWellKnownAddresses(t *testing.T) {
	s := plan()
	var got []string
	for _, c := range s.Clusters {
		got = append(got, fmt.Sprint(c.Name, " API ", c.API(), " first ", c.serviceAddresses(1), " DNS ", c.serviceAddresses(10)))
	}
	want := []string{
		"rome API 198.18.96.2:6443 first [10.43.0.1] DNS [10.43.0.10]",
		"milan API 198.18.97.2:6443 first [10.43.0.1 fd43::1] DNS [10.43.0.10 fd43::a]",
		"athens API [fd5a:70e1:a90:62::2]:6443 first [fd43::1] DNS [fd43::a]",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("addresses (-want +got):\n%s", d)
	}
}

func TestNames(t *testing.T) {
	c := plan().Clusters[1]
	got := append([]string{c.ControlName(), c.NATName(), c.port(), hostInterface(15)}, c.NodeNames()...)
	if d := cmp.Diff([]string{"milan-control", "milan-nat", "c1", "pelago15", "milan-1", "milan-2", "milan-3"}, got); d != "" {
		t.Errorf("names (-want +got):\n%s", d)
	}
	for _, c := range []struct {
		name   string
		want   int
		reason string
	}{
		{"milan-1", 1, "the first"}, {"milan-3", 3, "the last"}, {"milan-4", 0, "one too many"}, {"rome-1", 0, "another cluster's"}, {"milan-control", 0, "no node"},
	} {
		got, err := plan().Clusters[1].number(c.name)
		if got != c.want || (err == nil) != (c.want != 0) {
			t.Errorf("%s: node %s is number %d, %v, want %d", c.reason, c.name, got, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "milan-1 milan-2 milan-3") {
			t.Errorf("%s: the error does not list the nodes: %v", c.reason, err)
		}
	}
}
