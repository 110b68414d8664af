package agent

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/policy"
)

// TestCompiled goes all the way from policies to what a gateway is told: one that lets web reach the
// port sql of db, and one that lets web call nothing but a block without a part.
func TestCompiled(t *testing.T) {
	selects := func(app string) metav1.LabelSelector {
		return metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
	}
	web := selects("web")
	policies := []networkingv1.NetworkPolicy{
		{ObjectMeta: metav1.ObjectMeta{Name: "db"}, Spec: networkingv1.NetworkPolicySpec{PodSelector: selects("db"), Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From: []networkingv1.NetworkPolicyPeer{{PodSelector: &web}}, Ports: []networkingv1.NetworkPolicyPort{{Port: new(intstr.FromString("sql"))}},
		}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: networkingv1.NetworkPolicySpec{
			PodSelector: web, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress: []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.81.0.0/16", Except: []string{"10.81.128.0/17"}}}}}},
		}},
	}
	// In turin, which has db at this cluster, and web at home.
	db := policy.Pod{Namespace: "shop", UID: "db", Labels: map[string]string{"app": "db"}, Ports: []policy.Port{{Name: "sql", Protocol: corev1.ProtocolTCP, Number: 5432}}}
	dbAt := func(address string) policy.Pod {
		here := db
		here.Addresses = addrs(address)
		return here
	}
	webAt := func(address string) policy.Pod {
		return policy.Pod{Namespace: "shop", UID: "web", Labels: map[string]string{"app": "web"}, Addresses: addrs(address)}
	}
	for _, c := range []struct {
		reason string
		at     string
		world  policy.World
		want   *dataplane.Guard
	}{
		{"at the provider, where db runs", atTurin, policy.World{Guarded: []policy.Pod{db}, Others: []policy.Pod{webAt("10.50.1.1")}, ByUID: true}, &dataplane.Guard{
			HereIn: addrs("10.42.2.7", "10.42.2.9"), HereOut: addrs("10.42.2.9"), // new is in no rules yet
			Entries: []dataplane.Entry{
				{Name: "shop/db/Ingress/TCP/true#1", Pods: addrs("10.42.2.7"), Peers: prefixes("10.50.1.1/32"), Protocol: 6, Named: true, Pairs: []netip.AddrPort{netip.MustParseAddrPort("10.42.2.7:5432")}},
				{Name: "shop/web/Egress//false#1", Out: true, Peers: prefixes("10.81.0.0/17")},
			},
		}},
		{"at home, where web runs, and one that is not known yet at the provider", atMilan, policy.World{Guarded: []policy.Pod{webAt("10.42.1.5")}}, &dataplane.Guard{
			HereOut: addrs("10.42.1.5"), ThereIn: addrs("10.42.3.4"), ThereOut: addrs("10.42.3.4"),
			Entries: []dataplane.Entry{
				{Name: "shop/db/Ingress/TCP/true#1", Protocol: 6, Named: true},
				{Name: "shop/web/Egress//false#1", Out: true, Pods: addrs("10.42.1.5"), Peers: prefixes("10.42.0.0/17")},
			},
		}},
		{"at home, and web runs at the provider", atMilan, policy.World{
			Guarded: []policy.Pod{dbAt("10.42.1.5")}, Others: []policy.Pod{webAt("10.81.3.4")}, Far: []policy.Pod{webAt("10.81.3.4")}, Near: []policy.Pod{dbAt("10.42.1.5")},
		}, &dataplane.Guard{
			HereIn: addrs("10.42.1.5"), ThereOut: addrs("10.42.3.4"),
			Entries: []dataplane.Entry{
				{Name: "shop/db/Ingress/TCP/true#1", Pods: addrs("10.42.1.5"), Peers: prefixes("10.42.3.4/32"), Protocol: 6, Named: true, Pairs: []netip.AddrPort{netip.MustParseAddrPort("10.42.1.5:5432")}},
				{Name: "shop/web/Egress//false#1", Out: true, Peers: prefixes("10.42.0.0/17")},
				{Name: "shop/web/Egress//false#1/there", There: true, Out: true, Pods: addrs("10.42.3.4"), Peers: prefixes("10.81.0.0/17")},
			},
		}},
	} {
		c.world.Namespace, c.world.Policies = "shop", policies
		c.world.Namespaces = map[string]map[string]string{"shop": {}}
		specs, problems := policy.Compile(c.world).Shards("shop", 0)
		if len(specs) != 1 || len(problems) != 0 {
			t.Fatalf("%s: %d shards, problems %v", c.reason, len(specs), problems)
		}
		k := input(ruled(v1alpha1.NetworkRules{ObjectMeta: metav1.ObjectMeta{Namespace: c.at, Name: v1alpha1.NetworkRulesName("shop", 0)}, Spec: specs[0]}))
		if len(k.problems) != 0 {
			t.Errorf("%s: problems are %v", c.reason, k.problems)
		}
		p := k.input.Peerings[1]
		if c.at == atMilan {
			p = k.input.Peerings[0]
		}
		got := plan.Compute(plan.Input{Node: "a", Nodes: k.input.Nodes[:1], Peerings: []plan.Peering{p}}).Config.Gateways[0].Guard
		if d := cmp.Diff(c.want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}, netip.AddrPort{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}
