package reflection

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// FuzzJudge: whatever a ShadowObject says, what is made has its name in the mapped
// namespace and is labelled for its tenant, nothing of somebody else's is written, and
// what is said repeats nothing of a Secret. What of its content is made is the matter of
// FuzzDecode in offloading/content.
func FuzzJudge(f *testing.F) {
	const secret = "s3cret-of-4711"
	good := text(jsonType, jsonKey, login("x"))
	f.Add("Secret", "shop", "registry", "", good, 0)
	f.Add("Secret", "shop", "registry", "another", good, 1)
	f.Add("Secret", "shop", "registry", "", `{"content":{"type":"Opaque","data":{"a":"eA=="}}}`, 2)
	f.Add("Secret", "a/b", "..", "", good, 2)
	f.Add("ConfigMap", "shop", "x", "", `{"content":{"data":{"a":"b"}}}`, 3)
	f.Add("EndpointSlice", "shop", "web-x", "", sliceText("10.201.0.7"), 4)
	f.Add("EndpointSlice", "shop", "web-x", "", sliceText("127.0.0.1"), 8)
	f.Add("Service", "shop", "web", "", `{"content":{"ports":[{"port":80}]}}`, 0)
	f.Add("NetworkPolicy", "shop", "web", "", `{"content":{"podSelector":{},"types":["Ingress","Egress"],"ingress":[{"peers":[{"namespaces":["shop","kube-system"]},{"block":"10.0.0.0/8"}]}]}}`, 0)
	f.Add("NetworkPolicy", "shop", "web", "", `{"content":{"podSelector":{},"types":["Egress"],"egress":[{"everybody":true,"ports":[{"protocol":"TCP","port":80}]}]}}`, 32)
	f.Fuzz(func(t *testing.T, kind, namespace, name, object, said string, around int) {
		home := v1alpha1.HomeObject{Kind: kind, Namespace: namespace, Name: name}
		if around < 0 { // what must not be repeated, well formed or not
			said = `{"` + secret + `":1}` + said
		}
		s := &v1alpha1.ShadowObject{ObjectMeta: metav1.ObjectMeta{Name: object}, Spec: v1alpha1.ShadowObjectSpec{Home: home, Object: said}}
		if object == "" {
			s.Name = v1alpha1.ShadowObjectName(home)
		}
		known, travels := kindOf(kind)
		c := claim{shadow: s, tenant: "rome", place: place{name: "shop-rome"}, kind: known}
		if travels && around&3 != 0 {
			c.have = known.New()
			c.have.SetNamespace("shop-rome")
			c.have.SetName(name)
		}
		if around&4 != 0 {
			c.rules.Allows = func(netip.Addr) bool { return true }
		}
		if around&8 != 0 {
			c.service = service("shop-rome", "web")
			if around&16 != 0 {
				mark(c.service, "rome", namespace)
			}
		}
		c.rules.Spaces = map[string]string{"shop": "shop-rome"}
		if around&32 != 0 {
			c.rules.Closed = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
		}
		switch around & 3 {
		case 2:
			if c.have != nil {
				mark(c.have, "rome", namespace)
			}
		case 3:
			c.place = place{over: true}
		}
		d := judge(c)
		if len(d.message) > 1000 || kind == kindSecret && strings.Contains(d.message, secret) {
			t.Fatalf("says %q", d.message)
		}
		if d.want == nil {
			if d.create || d.replace || d.patch || d.reason == v1alpha1.ReasonReady {
				t.Fatalf("writes nothing, and does %+v", d)
			}
			return
		}
		w := d.want
		if w.GetNamespace() != "shop-rome" || w.GetName() != name || !travels || len(validation.IsDNS1123Subdomain(name)) > 0 ||
			w.GetLabels()[v1alpha1.LabelTenant] != "rome" || len(w.GetFinalizers())+len(w.GetOwnerReferences()) > 0 {
			t.Fatalf("makes %s %s/%s", kind, w.GetNamespace(), w.GetName())
		}
		if kind == kindSlice && (c.rules.Allows == nil || c.service == nil || !owned(c.service, "rome", namespace)) {
			t.Fatal("a slice without a network, or for a Service that is not the tenant's")
		}
		if p, ok := w.(*networkingv1.NetworkPolicy); ok {
			if wrong := opens(&p.Spec, c.rules.Closed); wrong != "" {
				t.Fatalf("%s: %+v", wrong, p.Spec)
			}
		}
		if c.have != nil && !owned(c.have, "rome", namespace) {
			t.Fatal("an object of somebody else is written")
		}
	})
}

// opens says what a NetworkPolicy opens that no tenant may.
func opens(s *networkingv1.NetworkPolicySpec, closed []networkingv1.PolicyType) string {
	var peers []networkingv1.NetworkPolicyPeer
	for _, r := range s.Ingress {
		peers = append(peers, r.From...)
	}
	for _, r := range s.Egress {
		peers = append(peers, r.To...)
	}
	for _, p := range peers {
		if n := p.NamespaceSelector; n != nil && (len(n.MatchLabels) > 0 || len(n.MatchExpressions) != 1 || n.MatchExpressions[0].Key != "kubernetes.io/metadata.name" || !slices.Equal(n.MatchExpressions[0].Values, []string{"shop-rome"})) {
			return "a namespace that is not the tenant's"
		}
		if p.IPBlock != nil && strings.HasPrefix(p.IPBlock.CIDR, "10.") {
			return "private addresses"
		}
	}
	if slices.ContainsFunc(s.PolicyTypes, func(t networkingv1.PolicyType) bool { return slices.Contains(closed, t) }) {
		return "what the owner has closed"
	}
	return ""
}

// FuzzAnswer: what a provider says against an object reaches nobody in its own words.
func FuzzAnswer(f *testing.F) {
	f.Add("Refused", "s3cret", "x", int64(0))
	f.Add("NameTaken", "\x1b[2J", strings.Repeat("n", 300), int64(0))
	f.Add("Unaddressed", "", "", int64(0))
	f.Add("", "", "", int64(1))
	f.Fuzz(func(t *testing.T, reason, message, name string, observed int64) {
		for _, kind := range []string{kindSecret, kindConfigMap, kindService, kindSlice, kindIngress, kindBudget, kindPolicy} {
			for _, status := range []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionStatus(name)} {
				s := &v1alpha1.ShadowObject{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ShadowObjectName(v1alpha1.HomeObject{Kind: kind, Namespace: "shop", Name: "registry"})}}
				s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: status, Reason: reason, Message: message, ObservedGeneration: observed}}
				got := answer(kind, s)
				s.Status.Conditions[0].Message = ""
				if got != answer(kind, s) || len(got.told) > 350 || observed != 0 && got.told != "" {
					t.Fatalf("%s: says %q", kind, got.told)
				}
				if status != metav1.ConditionFalse && (status != metav1.ConditionTrue || otherwise[reason].kind != kind) && got != (verdict{}) {
					t.Fatalf("%s: %s/%s counts as an answer: %+v", kind, status, reason, got)
				}
			}
		}
	})
}
