package test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// sixFile is two clusters that have IPv6 alone, and the same unique local addresses.
const sixFile = `clusters:
- {name: rome, nodes: 1, cni: bridge, addons: [coredns, load-balancer], podRanges: ["fd42::/48"], serviceRanges: ["fd43::/112"]}
- {name: milan, nodes: 2, cni: flannel, addons: [coredns, load-balancer], labels: {region: north}, podRanges: ["fd42::/48"], serviceRanges: ["fd43::/112"]}
`

// inBoth runs a test with clusters of a file as they are, which is with IPv4, and with IPv6 alone, where all
// have the same unique local addresses.
func inBoth(t *testing.T, file string, run func(t *testing.T, file string)) {
	kubetest.RequireClusters(t)
	t.Run("IPv4", func(t *testing.T) { run(t, file) })
	t.Run("IPv6", func(t *testing.T) {
		ranges := "\n  podRanges: [\"fd42::/48\"]\n  serviceRanges: [\"fd43::/112\"]\n  nodes:"
		run(t, strings.ReplaceAll(file, "\n  nodes:", ranges))
	})
}

// TestNetworkIPv6 has clusters without IPv4 do all that others do over the network: names, home's
// API, policies, reachability, mappings and peering in band included.
func TestNetworkIPv6(t *testing.T) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "net6", File: sandboxFile(t, sixFile), Pelago: true})
	c := newContinuum(t, s, "rome", "milan")
	box(t, s, "rome", "milan")
	c.peer(t, "rome", "milan")
	c.nodeReady(t, "rome", "milan")
	for _, part := range []struct {
		name string
		run  func(*testing.T, *continuum)
	}{
		{"Network", network},
		{"NetworkPolicies", networkPolicies},
		{"NetworkService", networkService},
		{"NetworkFromOutside", networkFromOutside},
		{"NetworkFaults", networkFaults},
		{"TunnelCut", tunnelCut},
		{"Reachability", reachability},
		{"ServiceAlone", serviceAlone},
		{"IPMapping", func(t *testing.T, c *continuum) { mappingHolds(t, c, outsideServer6) }},
		{"InBand", inBandIPv6},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, c) })
	}
}

// inBandIPv6 has rome part from milan and peer with it in band, by an address of IPv6 and though it
// reaches nothing else of milan, and pods run there.
func inBandIPv6(t *testing.T, c *continuum) {
	c.part(t, "rome", "milan")
	t.Cleanup(func() { c.part(t, "rome", "milan") })
	c.walled(t)
	b := &inBand{continuum: c}
	b.shut(t)
	if r := c.TryPelago(t, "rome", "peer", "--remote-kubeconfig", c.Files["milan"], "--in-band"); r.Code != 0 {
		t.Fatalf("exit %d\n%s%s\n%s", r.Code, r.Out, r.Errs, c.TryPelago(t, "rome", "explain", "peering", "milan").Out)
	}
	c.nodeReady(t, "rome", "milan")
	b.introduced(t)
	text, err := b.address()
	if err != nil {
		t.Fatal(err)
	}
	if at, err := netip.ParseAddr(text); err != nil || !at.Is6() {
		t.Errorf("rome calls milan at %s, want an address of IPv6, %v", text, err)
	}
	mainJob(t, c)
}
