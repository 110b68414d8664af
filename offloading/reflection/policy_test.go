package reflection

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

func policyOf(t *testing.T, namespace, name, spec string) *networkingv1.NetworkPolicy {
	t.Helper()
	p := &networkingv1.NetworkPolicy{ObjectMeta: objectMeta(namespace, name)}
	p.Labels, p.Annotations = map[string]string{"team": "a"}, map[string]string{"note": "x"}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

// newPolicies is a world with a network, whose home has two namespaces that are at the provider.
func newPolicies(t *testing.T) (w *world, second string) {
	t.Helper()
	w = newWorld(t)
	w.addresses, w.allowed = network{}, network{}
	w.restart()
	w.showing()
	second = kubetest.Server(t).Namespace(t)
	w.maps(w.home, second)
	w.namespace(w.name+"-db", map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: w.name, v1alpha1.LabelHomeNamespace: second})
	m := get(w, w.TenantNamespace(), v1alpha1.NamespaceMapName, &v1alpha1.NamespaceMap{})
	m.Status.Namespaces[second] = v1alpha1.MappedNamespace{Name: w.name + "-db", Phase: v1alpha1.MappingReady}
	if err := w.raw.Status().Update(ctx, m); err != nil {
		t.Fatal(err)
	}
	w.build(v1alpha1.FeatureOfKind(kindPolicy))
	w.kind = kindPolicy
	w.provider.nameServers = func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("169.254.77.53")} }
	return w, second
}

func (w *world) policy(name string) *networkingv1.NetworkPolicy {
	return get(w, w.remote, name, &networkingv1.NetworkPolicy{})
}

// TestPolicyTravels: a NetworkPolicy is at the provider while a pod of its namespace is, with the names
// that namespaces have there, and lets pass what gateways guard.
func TestPolicyTravels(t *testing.T) {
	t.Parallel()
	w, second := newPolicies(t)
	w.label(second, map[string]string{"team": "b"})
	w.create(policyOf(t, w.home, "web", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Ingress, Egress], ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}, podSelector: {}}, {ipBlock: {cidr: 10.0.0.0/8}}]}]}"))
	w.both("web")
	if w.policy("web") != nil {
		t.Fatal("it is there without a pod")
	}
	w.pod("web")
	w.both("web")
	const through = "[{ipBlock: {cidr: 10.201.0.0/16}}, {ipBlock: {cidr: 'fd00:201::/64'}}]"
	const names = "{to: [{ipBlock: {cidr: 169.254.77.53/32}}], ports: [{protocol: UDP, port: 53}, {protocol: TCP, port: 53}]}"
	open := "policyTypes: [Ingress, Egress], egress: [{to: " + through + "}, " + names + "], ingress: ["
	want := policyOf(t, "", "", "{podSelector: {matchLabels: {app: web}}, "+open+"{from: [{namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: ["+w.name+"-db]}]}, podSelector: {}}]}, {from: "+through+"}]}")
	got := w.policy("web")
	if got == nil {
		t.Fatalf("it is not there: %s", w.answer("web"))
	}
	if diff := cmp.Diff(want.Spec, got.Spec); diff != "" || got.Labels["team"] != "" || len(got.Annotations) != 1 {
		t.Errorf("%v %v %s", got.Labels, got.Annotations, diff)
	}
	before := w.writes
	w.both("web")
	if w.writes != before {
		t.Errorf("%d writes, and nothing has changed", w.writes-before)
	}
	w.label(second, nil)
	w.both("web")
	want.Spec.Ingress = want.Spec.Ingress[1:]
	if diff := cmp.Diff(want.Spec, w.policy("web").Spec); diff != "" {
		t.Errorf("the namespace is not selected any more: %s", diff)
	}
	w.terms(func(terms *v1alpha1.TenantTerms) {
		terms.Reflection = &v1alpha1.TenantReflection{Deny: []string{kindPolicy}}
	})
	w.both("web")
	if w.policy("web") != nil || w.answer("web") != "False/Refused" {
		t.Errorf("denied, and %s", w.answer("web"))
	}
	w.terms(func(terms *v1alpha1.TenantTerms) { terms.Reflection = nil })
	w.both("web")
	if err := w.raw.Delete(ctx, policyOf(t, w.home, "web", "{}")); err != nil {
		t.Fatal(err)
	}
	w.both("web")
	if w.policy("web") != nil || w.shadow("web") != nil {
		t.Error("gone at home, and it stays")
	}
}

// TestPolicyOfOwner: what the provider's owner closes in the namespace no policy of the tenant opens.
func TestPolicyOfOwner(t *testing.T) {
	t.Parallel()
	w, _ := newPolicies(t)
	w.create(policyOf(t, w.home, "web", "{podSelector: {}, ingress: [{}]}"))
	w.create(policyOf(t, w.home, "taken", "{podSelector: {}}"))
	w.create(policyOf(t, w.remote, "taken", "{podSelector: {}, policyTypes: [Egress], egress: [{}]}"))
	w.pod("web")
	w.both("web")
	w.both("taken")
	if w.policy("web") == nil || w.answer("taken") != "False/NameTaken" {
		t.Fatalf("web is %s, taken %s", w.answer("web"), w.answer("taken"))
	}
	closed := policyOf(t, w.remote, "closed", "{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}")
	w.create(closed)
	w.both("web")
	if w.policy("web") != nil || w.answer("web") != "False/Refused" || !strings.Contains(w.shadow("web").Status.Conditions[0].Message, "closes Ingress") {
		t.Errorf("closed, and it is %s", w.answer("web"))
	}
	if err := w.raw.Delete(ctx, closed); err != nil {
		t.Fatal(err)
	}
	if w.both("web"); w.policy("web") == nil {
		t.Errorf("open again, and it is %s", w.answer("web"))
	}
}

// TestGuards: a pod may go when its policies are there as they are at home, or are not to be.
func TestGuards(t *testing.T) {
	t.Parallel()
	w, _ := newPolicies(t)
	guards := NewGuards(w.client, w)
	w.consumer.notes = guards.notes
	is := func(when, want string) {
		t.Helper()
		if want != "" {
			want = kindPolicy + " " + want
		}
		if got, _, err := guards.Unsettled(ctx, w.name, &corev1.Pod{ObjectMeta: objectMeta(w.home, "web")}); err != nil || got != want {
			t.Errorf("%s: waits for %q (%v), want %q", when, got, err, want)
		}
	}
	is("without any", "")
	p := policyOf(t, w.home, "web", "{podSelector: {}}")
	w.create(p)
	w.pod("web")
	is("nobody has looked", "web")
	w.send("web")
	is("sent", "web")
	w.take("web")
	is("made", "")
	p.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{}}
	w.update(p)
	is("changed", "web")
	w.send("web")
	is("changed and sent", "web")
	w.take("web")
	is("changed and made", "")
	w.mapped(v1alpha1.MappedNamespace{Name: w.remote, Phase: v1alpha1.MappingPending})
	w.create(policyOf(t, w.home, "late", "{podSelector: {}}"))
	w.both("late")
	is("its place is not there", "late")
	said := func(phase v1alpha1.MappingPhase) {
		t.Helper()
		m := get(w, mapKey(w.name).Namespace, mapKey(w.name).Name, &v1alpha1.NamespaceMap{})
		m.Status.Namespaces = map[string]v1alpha1.MappedNamespace{w.home: {Name: w.remote, Phase: phase, Reason: "Cordoned"}}
		if err := w.raw.Status().Update(ctx, m); err != nil {
			t.Fatal(err)
		}
	}
	said(v1alpha1.MappingRefused)
	is("its place is refused, and so will the pod be", "")
	said(v1alpha1.MappingPending)
	is("its place may come", "late")
	w.mapped(v1alpha1.MappedNamespace{Name: w.remote, Phase: v1alpha1.MappingReady})
	w.take("late")
	is("and is", "")
	w.terms(func(terms *v1alpha1.TenantTerms) {
		terms.Reflection = &v1alpha1.TenantReflection{Deny: []string{kindPolicy}}
	})
	w.take("web")
	w.send("web")
	is("refused", "")
	w.build(v1alpha1.FeatureOfKind(kindSecret))
	w.create(policyOf(t, w.home, "newer", "{podSelector: {}}"))
	is("nobody has looked at one", "newer")
	w.send("newer")
	is("an older provider", "")
	kept := policyOf(t, w.home, "kept", "{podSelector: {}}")
	kept.Annotations[v1alpha1.AnnotationReflect] = "false"
	w.create(kept)
	w.send("kept")
	is("kept home", "")
	guards.notes = newNotes[note]()
	is("a new process", "kept")
}

// TestPoliciesWoken: NetworkPolicies are looked at when the namespaces that they may mean are others.
func TestPoliciesWoken(t *testing.T) {
	t.Parallel()
	w, second := newPolicies(t)
	w.create(policyOf(t, w.home, "web", "{podSelector: {}}"))
	wakers := wakers{cache: w.raw, fleet: w, spaces: func(context.Context, string, string) (bool, error) { return true, nil }}
	asked := func(call func(queue)) bool {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		call(q)
		var all []reconcile.Request
		for q.Len() > 0 {
			r, _ := q.Get()
			q.Done(r)
			all = append(all, r)
		}
		return slices.Contains(all, at(w.name, w.of("web")))
	}
	old := get(w, "", second, &corev1.Namespace{})
	now := old.DeepCopy()
	now.Annotations = map[string]string{"a": "b"}
	if asked(func(q queue) { wakers.named().Update(ctx, event.UpdateEvent{ObjectOld: old, ObjectNew: now}, q) }) {
		t.Error("asked though no label has changed")
	}
	now.Labels = map[string]string{"team": "b"}
	if !asked(func(q queue) { wakers.named().Update(ctx, event.UpdateEvent{ObjectOld: old, ObjectNew: now}, q) }) {
		t.Error("not asked when labels of a namespace change")
	}
	w.pod("first")
	w.both("web")
	if !slices.Contains(wakers.turned(ctx, w.name, w.home), at(w.name, w.of("web"))) {
		t.Error("not asked for one more pod, which may wait for it")
	}
	before := get(w, mapKey(w.name).Namespace, mapKey(w.name).Name, &v1alpha1.NamespaceMap{})
	after := before.DeepCopy()
	delete(after.Spec.Namespaces, second)
	if !asked(func(q queue) { wakers.maps().Update(ctx, event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q) }) {
		t.Error("not asked when a namespace is not to be there any more")
	}
}
