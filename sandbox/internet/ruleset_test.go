package internet

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestRuleset(t *testing.T) {
	for name, c := range map[string]Config{
		"empty.nft": {}, "plain.nft": worldConfig(), "impaired.nft": impaired(),
	} {
		golden(t, name, Ruleset(c))
	}
}

func TestNATRuleset(t *testing.T) {
	golden(t, "nat.nft", NATRuleset("inside", "outside", worldConfig().Host.Prefixes))
}

func TestRouting(t *testing.T) {
	golden(t, "routing.txt", describe(RoutingFor(impaired())))
}

// describe shows a routing as the tools of Linux would.
func describe(r Routing) string {
	var b strings.Builder
	for _, d := range r.Devices {
		fmt.Fprintf(&b, "device %s joins %s and %s\n", d.Name, d.A.Cluster, d.B.Cluster)
	}
	for _, r := range r.Routes {
		fmt.Fprintf(&b, "route %s dev %s via %s table %d\n", r.Prefix, r.Interface, r.Gateway, r.Table)
	}
	for _, r := range r.Rules {
		fmt.Fprintf(&b, "rule iif %s to %s lookup %d\n", r.In, r.To, r.Table)
	}
	return b.String()
}

func TestRoutingKeepsDeviceNames(t *testing.T) {
	before := impaired()
	after := impaired()
	after.Ports = append(after.Ports, Port{Cluster: "athens", Interface: "athens0", Prefixes: prefixes("198.18.3.0/24")})
	names := func(c Config) (out []string) {
		for _, d := range RoutingFor(c).Devices {
			out = append(out, d.Name)
		}
		return out
	}
	if d := cmp.Diff(names(before), names(after)); d != "" {
		t.Errorf("a cluster more renames devices (-before +after):\n%s", d)
	}
}

func TestOnlyImpairedLinksAreRelayed(t *testing.T) {
	for _, c := range []struct {
		reason string
		link   Link
		want   int
	}{
		{"a plain wire stays in the kernel", Link{}, 0},
		{"so does a cut one", Link{Cut: true}, 0},
		{"delay", Link{Delay: time.Millisecond}, 1},
		{"loss", Link{Loss: 0.1}, 1},
		{"rate", Link{Rate: 1e6}, 1},
		{"a cut WAN link keeps its device and with it what is under way elsewhere", Link{Rate: 1e6, Cut: true}, 1},
	} {
		config := worldConfig()
		c.link.A, c.link.B = "milan", "rome"
		config.Links = []Link{c.link}
		if got := len(RoutingFor(config).Devices); got != c.want {
			t.Errorf("%s: %d devices", c.reason, got)
		}
	}
}

// TestLargestRuleset holds the plan's 30 clusters against what nft takes.
func TestLargestRuleset(t *testing.T) {
	requireRoot(t)
	n := newNamespace(t, "nft", "hold")
	config := Config{Host: worldConfig().Host}
	for i := range 30 {
		config.Ports = append(config.Ports, Port{
			Cluster: fmt.Sprintf("%d-%s", i, strings.Repeat("x", 40)), Interface: fmt.Sprintf("port%d", i),
			Prefixes: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 18, byte(i), 0}), 24)},
		})
	}
	if err := config.Validate(); err != nil {
		t.Fatal(err)
	}
	n.run(Ruleset(config), "nft", "-f", "-")
	counts, err := parseCounters([]byte(n.run("", "nft", "-j", "list", "counters", "table", "inet", table)))
	if err != nil || len(counts) != 30*29*2 {
		t.Errorf("%d counters, %v", len(counts), err)
	}
}

func TestParseCounters(t *testing.T) {
	got, err := parseCounters([]byte(`{"nftables":[{"metainfo":{}},{"counter":{"name":"a","packets":3,"bytes":180}}]}`))
	if err != nil || got["a"] != (count{3, 180}) || len(got) != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := parseCounters([]byte("{")); err == nil {
		t.Error("half an answer is taken for a whole one")
	}
}
