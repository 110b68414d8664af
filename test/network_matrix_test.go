package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// How a consumer's addresses of one family lie to those of its provider; absent is a cluster
// without that family.
type relation string

const (
	absent    relation = ""
	identical relation = "identical"
	// partly has one of both hold the other, pods and Services.
	partly   relation = "partly"
	disjoint relation = "disjoint"
)

// hub is the provider of all others of a world.
const hub = "milan"

// member is a cluster of a world.
type member struct {
	name, cni string
	v4, v6    relation
	nat       bool
	nodes     int
}

// world is a sandbox: milan, that has pods in 10.42.0.0/16, and its consumers.
type world struct {
	name string
	// cni and v6 are milan's.
	cni       string
	v6        bool
	consumers []member
	// both has milan be a consumer of its first consumer as well.
	both bool
}

// blend is the world of every run. Packets of one family do not care how the other one's
// addresses lie, so that three consumers have all pairs of family and relation, of plugin and
// relation at one of the ends, and of all of these with each kind, direction, place and, for
// those that can be slow, link.
var blend = world{name: "blend", cni: "flannel", v6: true, both: true, consumers: []member{
	{name: "rome", nodes: 2, cni: "bridge", v4: identical, v6: partly},
	{name: "naples", nodes: 1, cni: "flannel", v4: partly, v6: disjoint, nat: true},
	{name: "turin", nodes: 1, cni: "bridge", v4: disjoint, v6: identical},
}}

// worlds are all combinations, each with a consumer behind NAT, and every second one with
// tunnels both ways.
func worlds() (all []world) {
	for _, v6 := range []bool{false, true} {
		for _, cni := range []string{"bridge", "flannel"} {
			for _, r := range []relation{identical, partly, disjoint} {
				w := world{cni: cni, v6: v6, both: len(all)%2 == 0}
				family, six := "IPv4", absent
				if v6 {
					family, six = "dual", r
				}
				w.name = strings.Join([]string{string(r), family, cni}, "-")
				w.consumers = []member{{name: "rome", nodes: 2, cni: cni, v4: r, v6: six}, {name: "naples", nodes: 2, cni: cni, v4: r, v6: six, nat: true}}
				all = append(all, w)
			}
		}
	}
	return all
}

// file is the world's sandbox.yaml.
func (w world) file() string {
	var b strings.Builder
	b.WriteString("clusters:\n")
	milan := member{name: hub, nodes: 2, cni: w.cni, v4: identical}
	if w.v6 {
		milan.v6 = identical
	}
	for i, m := range append([]member{milan}, w.consumers...) {
		pods, services := spans(m.v4, i, "10.%d.0.0/16", "10.42.0.0/17", "10.42.128.0/17")
		if m.v6 != absent {
			p, s := spans(m.v6, i, "fd%d::/112", "fd42::/57", "fd42:0:0:80::/112")
			pods, services = pods+`, "`+strings.Replace(p, "::/112", "::/48", 1)+`"`, services+`, "`+s+`"`
		}
		fmt.Fprintf(&b, "- {name: %s, nodes: %d, cni: %s, behindNAT: %t, addons: [coredns, load-balancer], podRanges: [%s], serviceRanges: [%s]}\n",
			m.name, m.nodes, m.cni, m.nat, pods, services)
	}
	return b.String()
}

// spans are the ranges of pods and Services of the cluster of a number.
func spans(r relation, number int, whole, half, rest string) (pods, services string) {
	switch r {
	case partly:
		return half, rest
	case disjoint:
		number = 50 + 2*number
	default:
		number = 42
	}
	return fmt.Sprintf(whole, number), fmt.Sprintf(whole, number+1)
}

// TestNetworkMatrix has pods of clusters of every kind reach each other in every way that there
// is, and be seen by their own addresses: one blended world, or all where PELAGO_TEST_ALL is 1.
func TestNetworkMatrix(t *testing.T) {
	kubetest.RequireClusters(t)
	chosen := []world{blend}
	if kubetest.All() {
		chosen = append(chosen, worlds()...)
	}
	for i, w := range chosen {
		t.Run(w.name, func(t *testing.T) { w.run(t, fmt.Sprintf("net%d", i)) })
	}
}

func (w world) run(t *testing.T, name string) {
	s := kubetest.Sandbox(t, kubetest.Options{Name: name, File: sandboxFile(t, w.file()), Pelago: true})
	clusters := []string{hub}
	for _, m := range w.consumers {
		clusters = append(clusters, m.name)
	}
	box(t, s, clusters...)
	c := newContinuum(t, s, clusters...)
	begin := time.Now()
	var all []*passage
	for _, m := range w.consumers {
		all = append(all, &passage{continuum: c, world: w.name, consumer: m.name, provider: hub, v4: m.v4, v6: m.v6})
	}
	if first := w.consumers[0]; w.both {
		all = append(all, &passage{continuum: c, world: w.name, consumer: hub, provider: first.name, v4: first.v4, v6: first.v6, second: true})
	}
	together := func(what string, all []*passage, do func(*passage, *testing.T)) {
		t.Run(what, func(t *testing.T) {
			for _, p := range all {
				t.Run(p.consumer+" at "+p.provider, func(t *testing.T) {
					t.Parallel()
					do(p, t)
				})
			}
		})
		if t.Failed() && strings.HasPrefix(what, "Open") {
			t.FailNow() // what was not opened cannot be passed
		}
	}
	together("Open", all[:len(w.consumers)], (*passage).open)
	together("Open second", all[len(w.consumers):], (*passage).open)
	settlePassages(t, all)
	t.Logf("%d peerings have pods on both sides after %s", len(all), time.Since(begin).Round(time.Second))
	for _, link := range []struct {
		name string
		set  []string
	}{{name: "LAN"}, {"50 ms", []string{"--delay", "25ms"}}} {
		for _, m := range w.consumers {
			if link.set != nil {
				c.Run(t, append([]string{"link", "set", m.name, hub}, link.set...)...)
			}
		}
		together(link.name, all, func(p *passage, t *testing.T) { p.pass(t, link.name) })
	}
}

// TestMatrixWorlds holds that the worlds are all combinations, and that the blended one has
// every pair that it is said to have.
func TestMatrixWorlds(t *testing.T) {
	names := map[string]bool{}
	for _, w := range worlds() {
		names[w.name] = true
	}
	if len(names) != 3*2*2 {
		t.Errorf("%d worlds, want 12: %v", len(names), names)
	}
	pairs := map[string]bool{}
	for _, m := range blend.consumers {
		for family, r := range map[string]relation{"IPv4": m.v4, "IPv6": m.v6} {
			pairs[family+" "+string(r)] = true
			for _, cni := range []string{m.cni, blend.cni} {
				pairs[cni+" "+string(r)], pairs[cni+" "+family] = true, true
			}
			if m.nat {
				pairs["NAT "+family] = true
			}
		}
	}
	for _, r := range []relation{identical, partly, disjoint} {
		for _, with := range []string{"IPv4", "IPv6", "bridge", "flannel"} {
			if !pairs[with+" "+string(r)] {
				t.Errorf("no consumer has %s with %s addresses", with, r)
			}
		}
	}
	for _, pair := range []string{"bridge IPv4", "bridge IPv6", "flannel IPv4", "flannel IPv6", "NAT IPv4", "NAT IPv6"} {
		if !pairs[pair] {
			t.Errorf("no consumer has %s", pair)
		}
	}
	if !slices.ContainsFunc(worlds(), func(w world) bool { return w.both }) {
		t.Error("no world has tunnels both ways")
	}
}
