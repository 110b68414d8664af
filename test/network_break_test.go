package test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/reach"
)

// damage is what a firewall of somebody's does to some of the ways that "pelago test network"
// tries between its pods "home" and "milan".
type damage struct {
	name, cluster string
	// hook is the place of the rule among the node's: prerouting, where packets of pods have
	// the addresses that were called, or forward, where those of Services are exchanged.
	hook, rule string
	// from and by are the ways that fail: those of one pod, or both if it is "", and kinds, or
	// all if there are none.
	from string
	by   []string
	why  string
}

// hits says whether a way fails of it.
func (d damage) hits(p reach.Path) bool {
	return (d.from == "" || d.from == p.From) && (len(d.by) == 0 || slices.Contains(d.by, p.By))
}

// damages are one of each kind of way, and all that carries large packets. Rome sees milan's
// pods by one prefix, and milan rome's by another.
func damages(milan, rome string) []damage {
	// Only what comes from pods of this node: on its way from node to node it has been translated.
	const ranges = `iifname != "pelago*" ip saddr 10.42.0.0/16 ip daddr `
	direct, names := []string{"pod address", "pod name"}, []string{"service name", "full name", "pod name"}
	calls := fmt.Sprintf(" tcp dport %d drop", reach.Port)
	return []damage{
		{"addresses of pods at milan", "rome", "prerouting", ranges + milan + calls, "home", direct, "no answer"},
		{"addresses of Services at rome", "rome", "prerouting", ranges + "10.43.0.0/16" + calls, "home", []string{"service address", "service name", "full name"}, "no answer"},
		{"node ports", "rome", "prerouting", "tcp dport 30000-32767 drop", "home", []string{"node port"}, "no answer"},
		{"names at rome", "rome", "prerouting", "ip saddr 10.42.0.0/16 meta l4proto { tcp, udp } th dport 53 drop", "home", names, "does not resolve"},
		{"addresses of pods at rome", "milan", "prerouting", ranges + rome + calls, "milan", direct, "no answer"},
		{"addresses of Services at milan", "milan", "prerouting", ranges + "10.43.0.0/16" + calls, "milan", []string{"service name", "full name"}, "no answer"},
		{"names at milan", "milan", "prerouting", "ip saddr 10.42.0.0/16 meta l4proto { tcp, udp } th dport 53 drop", "milan", names, "does not resolve"},
		{"large packets", "rome", "forward", "ip daddr " + milan + " meta length > 1000 drop", "", nil, "loses what is large"},
	}
}

// networkBreaks holds that "pelago test network" finds all ways good where they are, and finds
// exactly those bad that a firewall on the nodes breaks. If all is false some are broken at once,
// else each by itself.
func networkBreaks(t *testing.T, c *continuum, all bool) {
	for _, way := range c.testNetwork(t, 0, "--settle", "40s") {
		if !way.OK {
			t.Errorf("it ends well, and says that %s to %s by %s is bad: %s", way.From, way.To, way.By, way.Why)
		}
	}
	view := map[string]string{}
	for _, name := range []string{v1alpha1.NetworkProvider, v1alpha1.NetworkConsumer} {
		n, err := get[v1alpha1.NetworkConfig](c, "rome", v1alpha1.PeeringNamespace("milan"), name)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range n.Status.Views {
			if v.Real == n.Spec.Pods[0] {
				view[name] = v.View
			}
		}
	}
	each := damages(view[v1alpha1.NetworkProvider], view[v1alpha1.NetworkConsumer])
	if all {
		for _, d := range each {
			t.Run(d.name, func(t *testing.T) { c.damaged(t, d) })
		}
		return
	}
	c.damaged(t, each[0], each[2], each[6])
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
	for _, way := range c.testNetwork(t, 1, "--settle", "12s") {
		mine := slices.DeleteFunc(slices.Clone(damages), func(d damage) bool { return !d.hits(way.Path) })
		told := slices.ContainsFunc(mine, func(d damage) bool { return strings.Contains(way.Why, d.why) })
		if way.OK != (len(mine) == 0) || !way.OK && !told {
			t.Errorf("from %s by %s (%s): good is %t, %q; it is damaged by %v", way.From, way.By, way.Host, way.OK, way.Why, mine)
		}
	}
}

// testNetwork runs "pelago test network", which is to end with a code, and returns what it says
// of each way.
func (c *continuum) testNetwork(t *testing.T, code int, args ...string) []reach.Result {
	t.Helper()
	r := c.TryPelago(t, "rome", append([]string{"test", "network", "milan", "-o", "json"}, args...)...)
	var said struct{ Paths []reach.Result }
	err := json.Unmarshal([]byte(r.Out), &said)
	const least = 10 // ways there are between two pods
	if err != nil || r.Code != code || len(said.Paths) < least {
		t.Fatalf("pelago test network ends with %d, want %d, and tells of %d ways: %v\n%s%s", r.Code, code, len(said.Paths), err, r.Out, r.Errs)
	}
	return said.Paths
}
