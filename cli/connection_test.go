package cli

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestExplainConnectionByFamilies walks a way of two families to its end, and to the NetworkPolicy
// and the NetworkRules at which it ends.
func TestExplainConnectionByFamilies(t *testing.T) {
	s := capturing(t)
	space := v1alpha1.PeeringNamespace("milan")
	var theirs v1alpha1.NetworkConfig
	if err := s.c.Get(t.Context(), client.ObjectKey{Namespace: space, Name: v1alpha1.NetworkProvider}, &theirs); err != nil {
		t.Fatal(err)
	}
	theirs.Status.Views = []v1alpha1.NetworkView{{Real: "10.42.0.0/16", View: "10.254.0.0/16"}}
	if err := s.c.Status().Update(t.Context(), &theirs); err != nil {
		t.Fatal(err)
	}
	for name, six := range map[string]string{"web": "fd42::7", "db": "fd54::5"} {
		var p corev1.Pod
		if err := s.c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &p); err != nil {
			t.Fatal(err)
		}
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: six})
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		if err := s.c.Status().Update(t.Context(), &p); err != nil {
			t.Fatal(err)
		}
	}
	says := func(reason, from, to string, all ...string) {
		t.Helper()
		r := s.run("explain", "connection", from, to, "-n", "shop")
		for _, word := range all {
			if !strings.Contains(strings.Join(strings.Fields(r.out), " "), word) {
				t.Errorf("%s: nothing says %q: %+v", reason, word, r)
			}
		}
	}
	says("all is well", "web", "db", "NetworkPolicies let it pass, by IPv4", "NetworkPolicies let it pass, by IPv6", "All is well.")
	says("milan sees IPv4 alone", "db", "web", "10.81.0.7", "fd42::7 is in no range that milan sees", `It stops where "web has an address where db runs, by IPv6" is not so`)
	rules := &v1alpha1.NetworkRules{ObjectMeta: metav1.ObjectMeta{Namespace: space, Name: v1alpha1.NetworkRulesName("shop", 0)}, Spec: v1alpha1.NetworkRulesSpec{
		Namespace: "shop", Shards: 1, Revision: "0123456789abcdef", Guarded: []v1alpha1.NetworkDirection{v1alpha1.NetworkEgress}}}
	s.create(rules)
	says("the gateways here do not know the pod yet", "web", "db", "NetworkRules shop.0 in namespace pelago-peering-milan do not have it")
	s.create(&networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "quiet"}, Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}}})
	says("a policy forbids it", "web", "db", "NetworkPolicy quiet in namespace shop does not let web begin it", "kubectl -n shop edit networkpolicy quiet")
}
