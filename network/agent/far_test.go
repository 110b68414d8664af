package agent

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/policy"
)

const (
	homesRange = "10.43.0.0/24"
	homesAPI   = "10.43.0.2"
	// database is mapped in shop, and its address stands for it.
	database, itsAddress = "192.0.2.50", "10.43.0.4"
)

// lawless is home with a real gateway to a provider that enforces nothing: what it sends is what its
// pod would, and what arrives is there. Home has back at 10.42.1.5, with a Service, and other beside
// it; at the provider runs web, that home sees as 10.81.3.4.
type lawless struct {
	home, web *netnstest.Place
	node      *netnstest.Node
	kernel    *dataplane.Kernel
	facts     facts
}

func newLawless(t *testing.T) *lawless {
	t.Helper()
	home, held := netnstest.NewCluster(t, "home"), &netns.Held{}
	w := &lawless{node: home.Nodes[0], home: home.Nodes[0].Pod, web: netnstest.NewPlace(t, "web"), facts: apiFacts()}
	w.facts.mtus = map[string]int{w.facts.self: 1500}
	w.facts.nodes[0].Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: netnstest.NodeAddr(0, true).String()}}
	w.facts.configs[0].Spec.APIServer = netip.AddrPortFrom(netip.MustParseAddr(homesAPI), netnstest.Port).String()
	w.facts.api = []discoveryv1.EndpointSlice{apiSlice(netnstest.Port, netnstest.NodeAddr(0, true).String())}
	w.node.Listen()
	other := home.Nodes[1]
	other.Address("lo", database+"/32")
	other.Listen()
	w.node.Route(database+"/32", netnstest.NodeAddr(1, true).String(), "eth0")
	w.facts.mappings = []v1alpha1.IPMapping{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "orders"},
		Spec:       v1alpha1.IPMappingSpec{Address: database, Ports: []v1alpha1.IPMappingPort{{Name: "sql", Port: netnstest.Port}}},
		Status:     v1alpha1.IPMappingStatus{Address: itsAddress, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}},
	}}
	var err error
	if w.kernel, err = dataplane.New(dataplane.Options{Host: w.node.File, Namespaces: held}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.kernel.Close)
	t.Cleanup(func() {
		names, _ := held.List()
		for _, name := range names {
			_ = held.Remove(name)
		}
	})
	c := w.apply(t) // makes the gateway's namespace
	gateway := c.Gateways[0]
	file, err := held.Open(gateway.Peering)
	if err != nil {
		t.Fatal(err)
	}
	space := netnstest.OpenPlace(t, "gateway", file)
	space.Join(gateway.Tunnel, w.web, "home", gateway.MTU)
	for p, device := range map[*netnstest.Place]string{space: gateway.Tunnel, w.web: "home"} {
		p.Must(p.Kernel.LinkSetARPOff(p.Link(device)))
		p.Must(p.Kernel.LinkSetHardwareAddr(p.Link(device), []byte{2, 0, 0, 0, 0, 1}))
	}
	w.web.Address("home", "10.42.3.4/16")
	w.web.Route(homesRange, "10.42.1.5", "home")
	w.web.Listen()
	return w
}

// apply has the agent do what it knows.
func (w *lawless) apply(t *testing.T) dataplane.Config {
	t.Helper()
	in := input(w.facts).input
	in.Peerings = in.Peerings[:1] // milan's
	p := plan.Compute(in)
	if err := w.kernel.Set(t.Context(), p.Config); err != nil {
		t.Fatal(err)
	}
	return p.Config
}

// policies are compiled as home's manager does for its own gateways.
func (w *lawless) policies(t *testing.T, specs ...networkingv1.NetworkPolicySpec) {
	t.Helper()
	pod := func(name, address string) policy.Pod {
		return policy.Pod{Namespace: "shop", UID: name, Labels: map[string]string{"app": name}, Addresses: addrs(address)}
	}
	back, web := []policy.Pod{pod("back", "10.42.1.5")}, []policy.Pod{pod("web", "10.81.3.4")}
	world := policy.World{Namespace: "shop", Namespaces: map[string]map[string]string{"shop": {}}, Guarded: back, Others: web, Far: web, Near: back,
		Mapped: []policy.Mapped{{Real: addrs(database)[0], External: addrs(itsAddress)[0]}}}
	for _, spec := range specs {
		world.Policies = append(world.Policies, networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: spec})
	}
	shards, problems := policy.Compile(world).Shards("shop", 0)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	var all []v1alpha1.NetworkRules
	for _, spec := range shards {
		all = append(all, v1alpha1.NetworkRules{ObjectMeta: metav1.ObjectMeta{Namespace: atMilan, Name: v1alpha1.NetworkRulesName("shop", spec.Shard), ResourceVersion: "1"}, Spec: spec})
	}
	w.facts.rule(&rulebook{}, all)
	w.apply(t)
}

// TestLawlessProvider holds that home's gateways keep a pod at a provider that enforces nothing to
// what home's policies say of it, and that all else goes on: what it may, nodes, and home's API.
func TestLawlessProvider(t *testing.T) {
	w := newLawless(t)
	selects := func(app string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	egress := func(to ...networkingv1.NetworkPolicyPeer) networkingv1.NetworkPolicySpec {
		s := networkingv1.NetworkPolicySpec{PodSelector: selects("web"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}
		if len(to) > 0 {
			s.Egress = []networkingv1.NetworkPolicyEgressRule{{To: to}}
		}
		return s
	}
	ingress := func(port int32) networkingv1.NetworkPolicySpec {
		return networkingv1.NetworkPolicySpec{PodSelector: selects("web"), Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From: []networkingv1.NetworkPolicyPeer{{PodSelector: new(selects("back"))}}, Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromInt32(port))}},
		}}}
	}
	toBack := networkingv1.NetworkPolicyPeer{PodSelector: new(selects("back"))}
	inBlock := func(cidr string) networkingv1.NetworkPolicyPeer {
		return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr}}
	}
	const back, web = "10.42.1.5", "10.81.3.4"
	for _, c := range []struct {
		reason                                          string
		policies                                        []networkingv1.NetworkPolicySpec
		webToBack, backToWeb, otherToWeb, webToDatabase bool
	}{
		{"no policy", nil, true, true, true, true},
		{"it may begin nothing", []networkingv1.NetworkPolicySpec{egress()}, false, true, true, false},
		{"it may call back", []networkingv1.NetworkPolicySpec{egress(toBack)}, true, true, true, false},
		{"it may call a block with back in it", []networkingv1.NetworkPolicySpec{egress(inBlock("10.42.1.0/24"))}, true, true, true, false},
		{"it may call a block without back", []networkingv1.NetworkPolicySpec{egress(inBlock("10.42.2.0/24"))}, false, true, true, false},
		{"it may call the database, by its own address", []networkingv1.NetworkPolicySpec{egress(inBlock(database + "/32"))}, false, true, true, true},
		{"it may call the database, by what stands for it", []networkingv1.NetworkPolicySpec{egress(inBlock(itsAddress + "/32"))}, false, true, true, true},
		{"back alone may call it", []networkingv1.NetworkPolicySpec{ingress(netnstest.Port)}, true, true, false, true},
		{"back alone may call it, at another port", []networkingv1.NetworkPolicySpec{ingress(1)}, true, false, false, true},
		{"no policy any more", nil, true, true, true, true},
	} {
		w.policies(t, c.policies...)
		for _, try := range []struct {
			from *netnstest.Place
			to   string
			want bool
		}{{w.web, back, c.webToBack}, {w.home, web, c.backToWeb}, {w.node.Other, web, c.otherToWeb}, {w.node.Place, web, true}, {w.web, homesAPI, true}, {w.web, itsAddress, c.webToDatabase}} {
			patience := netnstest.Silence
			if try.want {
				patience = netnstest.Patience
			}
			conn, _, err := try.from.Dial(netip.MustParseAddr(try.to), patience)
			if err == nil {
				_ = conn.Close()
			}
			if (err == nil) != try.want {
				t.Errorf("%s: from %s to %s: %v", c.reason, try.from.Name, try.to, err)
			}
		}
	}
}
