package test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
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
	// domain is what it is called in its own DNS, cluster.local if empty.
	domain string
	v4, v6 relation
	nat    bool
	nodes  int
}

// world is a sandbox: milan, that has pods in 10.42.0.0/16, and its consumers.
type world struct {
	name string
	// cni is milan's, and only4 and only6 say which family alone it has.
	cni          string
	only4, only6 bool
	consumers    []member
	// both has milan be a consumer of its first consumer as well.
	both bool
	// pair has rome reach milan in band alone, and its pods at milan and at oslo take a direct path.
	pair bool
}

// sample has a consumer behind NAT that reaches its provider in band alone, and one that is its
// provider too.
var sample = world{name: "sample", cni: "flannel", both: true, pair: true, consumers: []member{
	{name: "oslo", nodes: 1, cni: "bridge", v4: partly, v6: identical},
	{name: "rome", nodes: 1, cni: "bridge", domain: "rome.example", v4: identical, v6: partly, nat: true},
}}

// other has what sample has not. Packets of one family do not care how the other one's addresses
// lie, so that the four consumers of both have all pairs of family and relation, of plugin and
// relation at one of the ends, and of all of these with each kind, direction, place and link. One
// has IPv6 alone, and is a provider too.
var other = world{name: "other", cni: "bridge", both: true, consumers: []member{
	{name: "genoa", nodes: 1, cni: "bridge", v6: identical},
	{name: "naples", nodes: 2, cni: "flannel", v4: disjoint, v6: disjoint, nat: true},
}}

// mixed are worlds of clusters of both families whose peers have one alone, as consumers and as
// providers.
var mixed = []world{
	{name: "IPv4-at-dual", cni: "bridge", both: true, consumers: []member{{name: "rome", nodes: 2, cni: "flannel", v4: identical}}},
	{name: "IPv6-at-dual", cni: "flannel", both: true, consumers: []member{{name: "rome", nodes: 2, cni: "bridge", v6: identical}}},
}

// worlds are all combinations, each with a consumer behind NAT, and every second one with
// tunnels both ways.
func worlds() (all []world) {
	for _, family := range []string{"IPv4", "dual", "IPv6"} {
		for _, cni := range []string{"bridge", "flannel"} {
			for _, r := range []relation{identical, partly, disjoint} {
				w := world{cni: cni, only4: family == "IPv4", only6: family == "IPv6", both: len(all)%2 == 0}
				four, six := r, r
				if w.only4 {
					six = absent
				}
				if w.only6 {
					four = absent
				}
				w.name = strings.Join([]string{string(r), family, cni}, "-")
				w.consumers = []member{{name: "rome", nodes: 2, cni: cni, v4: four, v6: six}, {name: "naples", nodes: 2, cni: cni, domain: "naples.example", v4: four, v6: six, nat: true}}
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
	for i, m := range append([]member{w.milan()}, w.consumers...) {
		var pods, services []string
		if m.v4 != absent {
			p, s := spans(m.v4, i, "10.%d.0.0/16", "10.42.0.0/17", "10.42.128.0/17")
			pods, services = append(pods, p), append(services, s)
		}
		if m.v6 != absent {
			p, s := spans(m.v6, i, "fd%d::/112", "fd42::/57", "fd42:0:0:80::/112")
			pods, services = append(pods, `"`+strings.Replace(p, "::/112", "::/48", 1)+`"`), append(services, `"`+s+`"`)
		}
		fmt.Fprintf(&b, "- {name: %s, nodes: %d, cni: %s, domain: %s, behindNAT: %t, addons: [coredns, load-balancer], podRanges: [%s], serviceRanges: [%s]}\n",
			m.name, m.nodes, m.cni, v1alpha1.DomainOf(m.domain), m.nat, strings.Join(pods, ", "), strings.Join(services, ", "))
	}
	return b.String()
}

// milan is the provider of a world.
func (w world) milan() member {
	m := member{name: hub, nodes: 2, cni: w.cni, v4: identical, v6: identical}
	if w.only4 {
		m.v6 = absent
	}
	if w.only6 {
		m.v4 = absent
	}
	return m
}

// between is how the addresses of a consumer and of milan lie to each other, absent in a family
// that one of both does not have.
func (w world) between(m member) (v4, v6 relation) {
	v4, v6 = m.v4, m.v6
	if w.only6 {
		v4 = absent
	}
	if w.only4 {
		v6 = absent
	}
	return v4, v6
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

// matrix are the worlds to try: two that have all pairs, or all where PELAGO_TEST_ALL is 1.
func matrix() []world {
	pairs := []world{sample, other}
	if !kubetest.All() {
		return pairs
	}
	return slices.Concat(pairs, worlds(), mixed)
}

// TestNetworkMatrix has pods of clusters of every kind reach each other in every way that there
// is, and be seen by their own addresses, or a part of them where PELAGO_TEST_PART names one.
func TestNetworkMatrix(t *testing.T) {
	kubetest.RequireClusters(t)
	for i, w := range kubetest.Part(t, matrix()) {
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
	if !w.only6 && slices.ContainsFunc(w.consumers, func(m member) bool { return m.v4 == absent }) {
		c.calledByIPv6(t, hub)
	}
	var aside *pair
	if w.pair {
		aside = newPair(t, c)
	}
	begin := time.Now()
	var all []*passage
	for _, m := range w.consumers {
		v4, v6 := w.between(m)
		all = append(all, &passage{continuum: c, world: w.name, consumer: m.name, provider: hub, v4: v4, v6: v6, inBand: w.pair && m.name == "rome", domain: v1alpha1.DomainOf(m.domain)})
	}
	if first := w.consumers[0]; w.both {
		v4, v6 := w.between(first)
		all = append(all, &passage{continuum: c, world: w.name, consumer: hub, provider: first.name, v4: v4, v6: v6, second: true, domain: v1alpha1.DefaultDomain})
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
		if w.pair && link.set == nil {
			t.Run("Talk", aside.talk) // what goes on while the links are slow
		}
	}
	if w.pair {
		for _, m := range w.consumers {
			c.Run(t, "link", "set", m.name, hub)
		}
		t.Run("Direct", aside.path)
		t.Run("Unpeer", aside.unpeered)
	}
}

// calledByIPv6 has a cluster of both families tell consumers addresses of IPv6: its API server's,
// and that of the endpoint for strangers at a node's port.
func (c *continuum) calledByIPv6(t *testing.T, cluster string) {
	t.Helper()
	both := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"ipFamilyPolicy":"PreferDualStack"}}`))
	auth := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.SystemNamespace, Name: "pelago-auth"}}
	if err := c.Clients[cluster].Patch(t.Context(), auth, both); err != nil {
		t.Fatal(err)
	}
	node := address(c.hosts(t, cluster), "IPv6")
	control := netip.PrefixFrom(netip.MustParseAddr(node), 64).Masked().Addr().Next().Next() // as the sandbox has it
	c.settings(t, cluster, func(values map[string]any) {
		values["auth"] = map[string]any{"url": "https://" + join(node, auth.Spec.Ports[0].NodePort)}
		server, _ := values["apiServer"].(map[string]any)
		if server == nil {
			server = map[string]any{}
		}
		server["url"], values["apiServer"] = "https://"+join(control.String(), 6443), server
	})
}

// hosts are the addresses of a cluster's first node.
func (c *continuum) hosts(t *testing.T, cluster string) (all []corev1.PodIP) {
	t.Helper()
	n, err := get[corev1.Node](c, cluster, "", cluster+"-1")
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range n.Status.Addresses {
		all = append(all, corev1.PodIP{IP: a.Address})
	}
	return all
}

// TestMatrixWorlds holds that the worlds are all combinations, and that sample and other have every
// pair that they are said to have.
func TestMatrixWorlds(t *testing.T) {
	names := map[string]bool{}
	for _, w := range worlds() {
		names[w.name] = true
	}
	if len(names) != 3*2*3 {
		t.Errorf("%d worlds, want 18: %v", len(names), names)
	}
	pairs := map[string]bool{}
	for _, w := range []world{sample, other} {
		for _, m := range w.consumers {
			for family, r := range map[string]relation{"IPv4": m.v4, "IPv6": m.v6} {
				pairs[family+" "+string(r)] = true
				if r == absent {
					continue
				}
				for _, cni := range []string{m.cni, w.cni} {
					pairs[cni+" "+string(r)], pairs[cni+" "+family] = true, true
				}
				if m.nat {
					pairs["NAT "+family] = true
				}
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
	for _, pair := range []string{"IPv4 ", "bridge IPv4", "bridge IPv6", "flannel IPv4", "flannel IPv6", "NAT IPv4", "NAT IPv6"} {
		if !pairs[pair] {
			t.Errorf("no consumer has %s", pair)
		}
	}
	if !slices.ContainsFunc(worlds(), func(w world) bool { return w.both }) {
		t.Error("no world has tunnels both ways")
	}
}
