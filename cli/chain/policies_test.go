package chain

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// policyOf is a NetworkPolicy of namespace shop that selects the pods of an app.
func policyOf(t *testing.T, name, app, spec string) networkingv1.NetworkPolicy {
	t.Helper()
	p := networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	if app != "" {
		p.Spec.PodSelector.MatchLabels = map[string]string{"app": app}
	}
	return p
}

// TestPolicies holds that a way ends where a NetworkPolicy drops it, with the name of the policy, and
// that what lets it pass does not.
func TestPolicies(t *testing.T) {
	with := func(app, spec string) func(*ConnectionFacts) {
		p := policyOf(t, "guard-"+app, app, spec)
		return func(f *ConnectionFacts) { f.Policies = append(f.Policies, p) }
	}
	and := func(changes ...func(*ConnectionFacts)) func(*ConnectionFacts) {
		return func(f *ConnectionFacts) {
			for _, c := range changes {
				c(f)
			}
		}
	}
	rules := func(spec v1alpha1.NetworkRulesSpec) func(*ConnectionFacts) {
		spec.Namespace, spec.Shards = "shop", 1
		return func(f *ConnectionFacts) {
			f.Rules = append(f.Rules, v1alpha1.NetworkRules{ObjectMeta: metav1.ObjectMeta{Namespace: "pelago-peering-milan", Name: "shop.0"}, Spec: spec})
		}
	}
	back := func(f *ConnectionFacts) { f.From, f.To = f.To, f.From }
	older := func(f *ConnectionFacts) {
		l := f.Links["milan"]
		l.Policies = false
		f.Links["milan"] = l
	}
	dual := func(f *ConnectionFacts) {
		l := f.Links["milan"]
		l.SeenAs = append(l.SeenAs, v1alpha1.NetworkView{Real: "fd42::/64", View: "fd90::/64"})
		f.Links["milan"] = l
		f.From, f.To = pod("web", "rome-1", "10.42.0.5", "fd42::5"), pod("db", "milan", "10.81.0.7", "fd81::7")
	}
	port := func(f *ConnectionFacts) {
		f.To.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "sql", ContainerPort: 5432}}}}
	}
	const shut, open = "policyTypes: [Ingress]", "ingress: [{}]"
	egress := []v1alpha1.NetworkDirection{v1alpha1.NetworkEgress}
	isolated := v1alpha1.NetworkRulesPod{Addresses: []string{"10.42.0.5"}, Isolated: egress, Selected: []int32{0}}
	for _, c := range []struct {
		reason string
		change func(*ConnectionFacts)
		state  State
		says   string
	}{
		{"there is none", func(*ConnectionFacts) {}, Done, "none selects either pod"},
		{"one of other pods", with("cache", shut), Done, "none selects either pod"},
		{"one of another namespace", and(with("db", shut), func(f *ConnectionFacts) { f.Policies[0].Namespace = "bank" }), Done, "none selects"},
		{"what is called accepts nobody", with("db", shut), Broken, "guard-db in namespace shop does not let db accept it; what enforces it: the gateways of milan"},
		{"all pods accept nobody", with("", shut), Broken, "guard- in namespace shop"},
		{"it accepts all", with("db", open), Done, "by NetworkPolicy guard-db"},
		{"it accepts the caller by its labels", with("db", "ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]"), Done, "guard-db"},
		{"it accepts others by their labels", with("db", "ingress: [{from: [{podSelector: {matchLabels: {app: api}}}]}]"), Broken, "guard-db"},
		{"it accepts by the labels of namespaces", with("db", "ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]"), Done, "guard-db"},
		{"of other namespaces", with("db", "ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}, podSelector: {}}]}]"), Broken, "guard-db"},
		{"by address", with("db", "ingress: [{from: [{ipBlock: {cidr: 10.42.0.0/16}}]}]"), Done, "guard-db"},
		{"but for this address", with("db", "ingress: [{from: [{ipBlock: {cidr: 10.42.0.0/16, except: [10.42.0.0/24]}}]}]"), Broken, "guard-db"},
		{"by address, of one family of two", and(dual, with("db", "ingress: [{from: [{ipBlock: {cidr: 10.42.0.0/16}}]}]")), Broken, "NetworkPolicies let it pass, by IPv6"},
		{"two policies together", and(with("db", shut), with("db", open)), Done, "guard-db"},
		{"what calls begins nothing", with("web", "policyTypes: [Egress]"), Broken, "guard-web in namespace shop does not let web begin it; what enforces it: the gateways here"},
		{"a policy of egress alone is none of ingress", with("db", "policyTypes: [Egress]"), Done, "none selects"},
		{"some ports", with("db", "ingress: [{ports: [{port: 5432}, {port: 80, endPort: 90, protocol: UDP}]}]"), Done, "TCP 5432, UDP 80 to 90 only, by NetworkPolicy guard-db"},
		{"a port by its name", and(port, with("db", "ingress: [{ports: [{port: sql}]}]")), Done, "TCP 5432 only"},
		{"a name that no port has", with("db", "ingress: [{ports: [{port: sql}]}]"), Broken, "guard-db"},
		{"a protocol that does not cross", with("db", "ingress: [{ports: [{port: 7, protocol: SCTP}]}]"), Broken, "guard-db"},
		{"other ports at either end", and(with("web", "egress: [{ports: [{port: 80}]}]\npolicyTypes: [Egress]"), with("db", "ingress: [{ports: [{port: 5432}]}]")), Broken, "no port is let pass at both ends, by NetworkPolicy guard-db, guard-web"},
		{"the provider knows no policies", and(older, with("db", shut)), Broken, "what enforces it: the gateways here"},
		{"the caller is at the provider", and(with("web", shut), back), Broken, "does not let web accept it; what enforces it: the gateways here"},
		{"and is in a namespace that is not offloaded", and(with("web", shut), back, func(f *ConnectionFacts) {
			f.Mapped["shop"] = nil
			l := f.Links["milan"]
			l.Reach = v1alpha1.ReachFull
			f.Links["milan"] = l
		}), Broken, "this cluster's network plugin, if it enforces"},
		{"both are here", and(with("db", shut), func(f *ConnectionFacts) { f.To.Spec.NodeName = "rome-2" }), Broken, "this cluster's network plugin, if it enforces"},
		{"both are at one provider", and(with("db", shut), func(f *ConnectionFacts) { f.From.Spec.NodeName = "milan" }), Aside, "if the network plugin of milan enforces it"},
		{"the gateways have not heard that it may", and(with("web", "egress: [{}]\npolicyTypes: [Egress]"), rules(v1alpha1.NetworkRulesSpec{Guarded: egress})), Waiting, "NetworkRules shop.0 in namespace pelago-peering-milan do not have it"},
		{"nor that a policy is gone", rules(v1alpha1.NetworkRulesSpec{Rules: []v1alpha1.NetworkRule{{Direction: v1alpha1.NetworkEgress}}, Pods: []v1alpha1.NetworkRulesPod{isolated}}), Waiting, "NetworkRules shop.0"},
		{"nor of a pod that is a peer beside", rules(v1alpha1.NetworkRulesSpec{Rules: []v1alpha1.NetworkRule{{Direction: v1alpha1.NetworkEgress}},
			Pods: []v1alpha1.NetworkRulesPod{isolated, {Addresses: isolated.Addresses, PeerOf: []int32{0}}}}), Waiting, "NetworkRules shop.0"},
		{"they have a rule for it", rules(v1alpha1.NetworkRulesSpec{Rules: []v1alpha1.NetworkRule{{Direction: v1alpha1.NetworkEgress, AnyPeer: true}}, Pods: []v1alpha1.NetworkRulesPod{isolated}}), Done, ""},
		{"one for what is called", rules(v1alpha1.NetworkRulesSpec{Rules: []v1alpha1.NetworkRule{{Direction: v1alpha1.NetworkEgress, Protocol: "TCP", PerPod: true}},
			Pods: []v1alpha1.NetworkRulesPod{isolated, {Addresses: []string{"10.81.0.7"}, PeerOf: []int32{0}, Ports: []v1alpha1.NetworkRulesPorts{{Ports: []int32{5432}}}}}}), Done, ""},
		{"one of its address", rules(v1alpha1.NetworkRulesSpec{Rules: []v1alpha1.NetworkRule{{Direction: v1alpha1.NetworkEgress, Blocks: []v1alpha1.NetworkAddressRange{{First: "10.81.0.0", Last: "10.81.0.7"}}}},
			Pods: []v1alpha1.NetworkRulesPod{isolated}}), Done, ""},
		{"one of another address", rules(v1alpha1.NetworkRulesSpec{Rules: []v1alpha1.NetworkRule{{Direction: v1alpha1.NetworkEgress, Blocks: []v1alpha1.NetworkAddressRange{{First: "10.81.0.8", Last: "10.81.0.9"}}}},
			Pods: []v1alpha1.NetworkRulesPod{isolated}}), Waiting, "NetworkRules shop.0"},
		{"they guard others", rules(v1alpha1.NetworkRulesSpec{Guarded: []v1alpha1.NetworkDirection{v1alpha1.NetworkIngress}}), Done, ""},
		{"the caller has the network of its node, which no policy selects", and(with("web", "policyTypes: [Egress]"), func(f *ConnectionFacts) { f.From.Spec.HostNetwork = true }), Done, "none selects"},
		{"and no selector means", and(with("db", "ingress: [{from: [{podSelector: {}}]}]"), func(f *ConnectionFacts) { f.From.Spec.HostNetwork = true }), Broken, "guard-db"},
	} {
		f := connected()
		c.change(&f)
		got, found := Connection(f), false
		for _, s := range got.Steps {
			if strings.HasPrefix(s.Fact, "NetworkPolicies let it pass") && s.State == c.state && strings.Contains(s.Fact+": "+s.Evidence, c.says) {
				found = true
			}
		}
		if !found {
			t.Errorf("%s: nothing is %s and says %q: %+v", c.reason, c.state, c.says, got.Steps)
		}
		if stop := got.First(); (c.state == Done || c.state == Aside) != (stop == nil) || stop != nil && stop.Remedy == "" {
			t.Errorf("%s: it stops at %+v", c.reason, stop)
		}
	}
}
