package test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/reach"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// damage is what a firewall of somebody's does to some of the ways that "pelago test network"
// tries between its pods "home" and "milan".
type damage struct {
	name, cluster string
	// hook is the place of the rule among the node's: prerouting, where packets of pods have
	// the addresses that were called, or forward, where those of Services are exchanged.
	hook, rule string
	// from and by are the ways that fail: those of one pod, or both if it is "", and their kinds.
	from string
	by   []string
	// family is that of the ways that fail, "" if all do.
	family reach.Family
	why    string
}

// hits says whether a way fails of it.
func (d damage) hits(p reach.Path) bool {
	return (d.from == "" || d.from == p.From) && slices.Contains(d.by, p.By) && (d.family == "" || d.family == p.Family)
}

// sights are by which prefixes rome sees milan's pods, and milan rome's, where milan calls rome's API
// server, and an address of rome's load balancer.
type sights struct{ milan, rome, api, balancer string }

// damages are one of each kind of way, and all that carries large packets.
func damages(at sights) []damage {
	// Only what comes from pods of this node: on its way from node to node it has been translated.
	const ranges = `iifname != "pelago*" ip saddr 10.42.0.0/16 ip daddr `
	direct, names := []string{"pod address", "pod name"}, []string{"service name", "full name", "pod name"}
	tcp := append([]string{"service address", "node port", "load balancer", "pod address"}, names...)
	const dns = "ip saddr 10.42.0.0/16 meta l4proto { tcp, udp } th dport 53 drop"
	calls, datagrams := fmt.Sprintf(" tcp dport %d drop", reach.Port), fmt.Sprintf(" udp dport %d drop", reach.Port)
	return []damage{
		{"addresses of pods at milan", "rome", "prerouting", ranges + at.milan + calls, "home", direct, "", "no answer"},
		{"addresses of Services at rome", "rome", "prerouting", ranges + "10.43.0.0/16" + calls, "home", []string{"service address", "service name", "full name"}, "", "no answer"},
		{"node ports", "rome", "prerouting", "tcp dport 30000-32767 drop", "home", []string{"node port"}, "", "no answer"},
		{"names at rome", "rome", "prerouting", dns, "home", names, "", "does not resolve"},
		{"addresses of pods at rome", "milan", "prerouting", ranges + at.rome + calls, "milan", direct, "", "no answer"},
		{"addresses of Services at milan", "milan", "prerouting", ranges + "10.43.0.0/16" + calls, "milan", []string{"service name", "full name"}, "", "no answer"},
		{"names at milan", "milan", "prerouting", dns, "milan", append([]string{"UDP to service name"}, names...), "", "does not resolve"},
		{"large packets", "rome", "forward", "ip daddr " + at.milan + " meta length > 1000 drop", "", tcp, "", "loses what is large"},
		{"UDP to pods at milan", "rome", "prerouting", ranges + at.milan + datagrams, "home", []string{"UDP to pod address"}, "", "no answer"},
		{"UDP to Services at rome", "rome", "prerouting", ranges + "10.43.0.0/16" + datagrams, "home", []string{"UDP to service address"}, "", "no answer"},
		{"UDP to pods at rome", "milan", "prerouting", ranges + at.rome + datagrams, "milan", []string{"UDP to pod address"}, "", "no answer"},
		{"UDP to Services at milan", "milan", "prerouting", ranges + "10.43.0.0/16" + datagrams, "milan", []string{"UDP to service name"}, "", "no answer"},
		{"load balancers", "rome", "prerouting", "ip saddr 10.42.0.0/16 ip daddr " + at.balancer + calls, "home", []string{"load balancer"}, "", "no answer"},
		{"home's API", "milan", "prerouting", ranges + at.api + " tcp dport 443 drop", "milan", []string{"home's API"}, "", "no answer"},
	}
}

// familyFile is two clusters of both families, that have the same addresses.
const familyFile = `clusters:
- {name: rome, nodes: 1, cni: bridge, domain: rome.example, addons: [coredns], podRanges: ["10.42.0.0/16", "fd42::/48"], serviceRanges: ["10.43.0.0/16", "fd43::/112"]}
- {name: milan, nodes: 2, cni: flannel, addons: [coredns], labels: {region: north}, podRanges: ["10.42.0.0/16", "fd42::/48"], serviceRanges: ["10.43.0.0/16", "fd43::/112"]}
`

// TestNetworkFamilies holds that "pelago test network" tries each family where there are two, and does
// not call well what has one of them broken.
func TestNetworkFamilies(t *testing.T) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: "families", File: sandboxFile(t, familyFile), Pelago: true})
	c := newContinuum(t, s, "rome", "milan")
	box(t, s, "rome", "milan")
	c.peer(t, "rome", "milan")
	c.nodeReady(t, "rome", "milan")
	count := map[reach.Family]int{}
	for _, way := range c.testNetwork(t, 0, "--settle", "90s") {
		count[way.Family]++
	}
	if count[reach.IPv4] != count[reach.IPv6] || count[reach.IPv6] == 0 {
		t.Errorf("there are %v ways", count)
	}
	calls := fmt.Sprintf("ip6 saddr fd42::/48 tcp dport %d drop", reach.Port)
	c.damaged(t, damage{"IPv6", "rome", "prerouting", `iifname != "pelago*" ` + calls, "home",
		[]string{"pod address", "pod name", "service address", "service name", "full name"}, reach.IPv6, "no answer"})
}

// networkBreaks holds that "pelago test network" finds all ways good where they are, and finds
// exactly those bad that a firewall on the nodes breaks. If all is false some are broken at once,
// else each by itself.
func networkBreaks(t *testing.T, c *continuum, all bool) {
	var at sights
	for _, way := range c.testNetwork(t, 0, "--settle", "90s", "--with", "load-balancer,api") {
		if !way.OK && (way.Untried == "" || way.By != "node port") {
			t.Errorf("it ends well, and says that %s to %s by %s is bad, or not tried: %s%s", way.From, way.To, way.By, way.Why, way.Untried)
		}
		if way.By == "load balancer" {
			at.balancer = way.Host
		}
	}
	for name, view := range map[string]*string{v1alpha1.NetworkProvider: &at.milan, v1alpha1.NetworkConsumer: &at.rome} {
		n, err := get[v1alpha1.NetworkConfig](c, "rome", v1alpha1.PeeringNamespace("milan"), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range n.Status.Views {
			if v.Real == n.Spec.Pods[0] {
				*view = v.View
			}
		}
		if api, err := netip.ParseAddrPort(n.Spec.APIServer); err == nil {
			if there, ok := v1alpha1.ViewOf(n.Status.Views, api.Addr()); ok {
				at.api = there.String()
			}
		}
	}
	if balancer, err := netip.ParseAddr(at.balancer); err != nil || at.api == "" {
		t.Fatalf("milan calls rome's API at %q, and rome's load balancer has %q: %v", at.api, at.balancer, err)
	} else { // that of the next run is another one
		at.balancer = netip.PrefixFrom(balancer, 24).Masked().String()
	}
	each := damages(at)
	if all {
		for _, d := range each {
			t.Run(d.name, func(t *testing.T) { c.damaged(t, d) })
		}
		return
	}
	c.damaged(t, each[0], each[2], each[6], each[9])
}

// damaged runs the test while nodes are damaged.
func (c *continuum) damaged(t *testing.T, damages ...damage) {
	nodes := map[string][]string{}
	for _, d := range damages {
		if nodes[d.cluster] == nil {
			nodes[d.cluster] = c.nodes(t, d.cluster)
		}
	}
	const table = "damage"
	on := func(cluster string, commands ...string) {
		for _, node := range nodes[cluster] {
			for _, line := range commands {
				c.Run(t, append([]string{"run", cluster, "--node", node, "--"}, strings.Split(line, "|")...)...)
			}
		}
	}
	for cluster := range nodes {
		t.Cleanup(func() { on(cluster, "nft|delete|table|inet|"+table) })
		on(cluster, "nft|add|table|inet|"+table)
	}
	for i, d := range damages {
		chain := fmt.Sprintf("c%d", i)
		on(d.cluster, fmt.Sprintf("nft|add chain inet %s %s { type filter hook %s priority -350; }", table, chain, d.hook),
			fmt.Sprintf("nft|add rule inet %s %s %s", table, chain, d.rule))
	}
	with := "load-balancer,api"
	if slices.ContainsFunc(damages, func(d damage) bool { return d.hook == "forward" }) {
		with = "load-balancer" // by which address answers of home's API server leave depends on the gateway
	}
	for _, way := range c.testNetwork(t, 1, "--settle", "30s", "--with", with) {
		if way.Untried != "" {
			continue // what is not known, or not asked for
		}
		mine := slices.DeleteFunc(slices.Clone(damages), func(d damage) bool { return !d.hits(way.Path) })
		told := slices.ContainsFunc(mine, func(d damage) bool { return strings.Contains(way.Why, d.why) })
		if way.OK != (len(mine) == 0) || !way.OK && !told {
			t.Errorf("from %s by %s (%s): good is %t, %q; it is damaged by %v", way.From, way.By, way.Host, way.OK, way.Why, mine)
		}
	}
}

// testNetwork is testWays with milan alone.
func (c *continuum) testNetwork(t *testing.T, code int, args ...string) []reach.Result {
	t.Helper()
	return c.testWays(t, code, append([]string{"milan"}, args...)...)
}

// testWays runs "pelago test network", which is to end with a code, and returns what it says of each way.
func (c *continuum) testWays(t *testing.T, code int, args ...string) []reach.Result {
	t.Helper()
	r := c.TryPelago(t, "rome", append([]string{"test", "network", "-o", "json"}, args...)...)
	var said struct{ Paths []reach.Result }
	err := json.Unmarshal([]byte(r.Out), &said)
	const least = 10 // ways there are between two pods
	if err != nil || r.Code != code || len(said.Paths) < least {
		t.Fatalf("pelago test network ends with %d, want %d, and tells of %d ways: %v\n%s%s", r.Code, code, len(said.Paths), err, r.Out, r.Errs)
	}
	return said.Paths
}
