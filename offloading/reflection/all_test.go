package reflection

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// rules gives the home namespace rules, in place of those it has.
func (w *world) rules(rules ...v1alpha1.ReflectionRule) {
	w.t.Helper()
	if o := get(w, w.home, v1alpha1.OffloadingName, &v1alpha1.NamespaceOffloading{}); o != nil {
		o.Spec.Reflection = rules
		w.update(o)
		return
	}
	w.create(&v1alpha1.NamespaceOffloading{ObjectMeta: objectMeta(w.home, v1alpha1.OffloadingName), Spec: v1alpha1.NamespaceOffloadingSpec{Reflection: rules}})
}

// list lets the lister look at the home namespace, and everything at what it wakes; it
// returns the names of that.
func (w *world) list() string {
	w.t.Helper()
	w.woken = nil
	req := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: w.home, Name: v1alpha1.OffloadingName}}
	if _, err := w.lister.Reconcile(ctx, req); err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, home := range w.woken {
		names = append(names, home.Kind+"/"+home.Name)
		w.as(home.Kind, home.Name)
	}
	return strings.Join(names, " ")
}

// later lets everything look at an object when its grace is over.
func (w *world) later(name string) {
	w.t.Helper()
	w.both(name)
	w.clock.Step(grace)
	w.both(name)
}

// labelled sets the labels of an object at home.
func (w *world) labelled(obj client.Object, labels map[string]string) {
	w.t.Helper()
	obj.SetLabels(labels)
	w.update(obj)
}

// TestAllTravels: what no pod refers to goes by a rule while a pod of its namespace is
// there, and follows what is done to it, to the rule and to the pod.
func TestAllTravels(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	web := map[string]string{"app": "web"}
	secret, other := pullSecret(w.home, "registry", "s3cret-1"), pullSecret(w.home, "other", "s3cret-2")
	secret.Labels = web
	w.create(secret)
	w.create(other)
	all := ruleOf(kindSecret, v1alpha1.ReflectAll, "app", "web")
	w.rules(all)
	if got := w.list(); got != "" || w.lists != 0 {
		t.Fatalf("%q is to travel, after %d lists, before a pod is there", got, w.lists)
	}
	pod := w.pod("web")
	if got := w.list(); got != "Secret/registry" || w.password("registry") != "s3cret-1" || w.lists != 2 || w.reads != 1 {
		t.Fatalf("%q, %q after %d lists, %d reads", got, w.password("registry"), w.lists, w.reads)
	}
	w.both("other")
	if w.shadow("other") != nil || w.reads != 1 {
		t.Error("one travels, or is read, that does not match")
	}
	before := w.writes
	if got := w.list(); got != "" {
		t.Errorf("%q is woken though it is there", got)
	}
	if w.both("registry"); w.writes != before {
		t.Errorf("%d writes though nothing changes", w.writes-before)
	}
	gone := func(when string) {
		t.Helper()
		w.send("registry") // it is seen to be gone
		if w.shadow("registry") != nil || w.made("registry") != nil || w.consumer.notes.count() != 0 {
			t.Errorf("%s: it stays, or is remembered", when)
		}
	}
	back := func() {
		t.Helper()
		if w.list(); w.made("registry") == nil {
			t.Fatal("it does not come back")
		}
	}
	t.Run("changed", func(t *testing.T) {
		secret.Data[jsonKey] = login("s3cret-3")
		w.update(secret)
		if w.both("registry"); w.password("registry") != "s3cret-3" {
			t.Error(w.password("registry"))
		}
	})
	t.Run("another label", func(t *testing.T) {
		w.labelled(secret, map[string]string{"app": "db"})
		if w.both("registry"); w.made("registry") == nil {
			t.Error("no grace")
		}
		w.later("registry")
		gone("another label")
		w.labelled(secret, web)
		back()
	})
	t.Run("another selector", func(t *testing.T) {
		w.rules(ruleOf(kindSecret, v1alpha1.ReflectAll, "app", "db"))
		w.later("registry")
		gone("another selector")
		w.rules(all)
		back()
	})
	t.Run("no rule", func(t *testing.T) {
		w.rules()
		lists := w.lists
		w.later("registry")
		gone("no rule")
		if got := w.list(); got != "" || w.lists != lists+2 {
			t.Errorf("%q, %d lists without a rule, want one of each kind", got, w.lists-lists)
		}
		w.rules(all)
		back()
	})
	t.Run("denied before", func(t *testing.T) {
		w.rules(ruleOf(kindSecret, v1alpha1.ReflectDeny), all)
		w.both("registry")
		gone("denied")
		if got := w.list(); got != "" {
			t.Errorf("%q is to travel in spite of Deny", got)
		}
		w.rules(all, ruleOf(kindSecret, v1alpha1.ReflectDeny))
		back()
	})
	t.Run("kept by hand", func(t *testing.T) {
		secret.Annotations = map[string]string{v1alpha1.AnnotationReflect: "false"}
		w.update(secret)
		w.both("registry")
		gone("kept by hand")
		secret.Annotations = nil
		w.update(secret)
		back()
	})
	t.Run("deleted", func(t *testing.T) {
		w.remove(secret)
		w.both("registry")
		gone("deleted")
		secret = pullSecret(w.home, "registry", "s3cret-4")
		secret.Labels = web
		w.create(secret)
		back()
	})
	t.Run("referred to as well", func(t *testing.T) {
		w.rules()
		user := w.pod("user", "registry")
		w.later("registry")
		if w.made("registry") == nil {
			t.Error("gone though a pod refers to it")
		}
		w.rules(all)
		w.remove(user)
		w.later("registry")
		if w.made("registry") == nil {
			t.Error("gone though a rule sends it")
		}
	})
	if n := w.told(""); n != 0 {
		t.Errorf("%d events though all went well", n)
	}
	w.remove(pod)
	if w.both("registry"); w.made("registry") == nil {
		t.Error("no grace after the last pod")
	}
	w.later("registry")
	gone("the last pod")
}

// TestAllOnlyWhereAsked: names are listed only where a pod is at a provider that answers, and
// the namespace is offloaded; not of a kind of which a rule keeps all home. Content is not read.
func TestAllOnlyWhereAsked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.create(pullSecret(w.home, "registry", "s3cret"))
	w.create(configMap(w.home, "app", nil))
	w.pod("web")
	deny, may := v1alpha1.ReflectDeny, v1alpha1.ReflectReferred
	for _, c := range []struct {
		reason string
		lists  int
		rules  []v1alpha1.ReflectionRule
	}{
		{"no rule", 2, nil},
		{"only what is referred to", 2, []v1alpha1.ReflectionRule{ruleOf(kindSecret, may), ruleOf(kindConfigMap, may)}},
		{"nothing of one kind", 1, []v1alpha1.ReflectionRule{ruleOf(kindSecret, deny), ruleOf(kindConfigMap, deny, "app", "web")}},
		{"nothing", 0, []v1alpha1.ReflectionRule{ruleOf(kindSecret, deny), ruleOf(kindConfigMap, deny)}},
		{"all that travels together", 2, []v1alpha1.ReflectionRule{ruleOf(kindService, v1alpha1.ReflectAll)}},
	} {
		w.rules(c.rules...)
		w.lists = 0
		woken := w.list()
		w.as(kindConfigMap, "app")
		w.as(kindSecret, "registry")
		if woken != "" || w.lists != c.lists || w.reads != 0 || w.shadow("registry") != nil {
			t.Errorf("%s: %q is woken, %d lists, %d reads", c.reason, woken, w.lists, w.reads)
		}
	}
	w.lists = 0
	w.rules(ruleOf(kindSecret, v1alpha1.ReflectAll))
	w.label(w.home, nil)
	w.list()
	w.label(w.home, map[string]string{v1alpha1.LabelOffloaded: "true"})
	w.state.Reachable = false
	w.list()
	w.state.Reachable = true
	if w.lists != 0 {
		t.Error("listed though not offloaded, or the provider is away")
	}
	if got := w.list(); got != "Secret/registry" || w.lists != 2 {
		t.Errorf("%q after %d lists", got, w.lists)
	}
	w.label(w.home, nil) // unoffloaded; the pods are still leaving
	if w.later("registry"); w.made("registry") == nil {
		t.Error("gone before its pods")
	}
}

// TestAllByHand: what is annotated goes without a rule and without a pod that refers to it, stays
// home where a rule says so, and goes away with the annotation.
func TestAllByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := pullSecret(w.home, "registry", "s3cret")
	w.create(secret)
	w.create(pullSecret(w.home, "other", "s3cret"))
	w.rules()
	annotate := func(value string) {
		t.Helper()
		secret.Annotations = map[string]string{v1alpha1.AnnotationReflect: value}
		w.update(secret)
	}
	annotate("true")
	if got := w.list(); got != "" {
		t.Errorf("%q is to travel before a pod is there", got)
	}
	w.pod("web")
	if got := w.list(); got != "Secret/registry" || w.made("registry") == nil {
		t.Fatalf("%q is woken, and it is not there", got)
	}
	w.rules(ruleOf(kindSecret, v1alpha1.ReflectDeny))
	w.both("registry")
	if got := w.list(); got != "" || w.made("registry") != nil {
		t.Error("it goes in spite of a rule")
	}
	w.rules(ruleOf(kindSecret, v1alpha1.ReflectReferred))
	if w.list(); w.made("registry") == nil {
		t.Fatal("it does not come back")
	}
	annotate("yes")
	w.later("registry")
	if got := w.list(); got != "" || w.made("registry") != nil {
		t.Error("it stays without the annotation")
	}
}

// TestAllStays: what never travels does not by a rule either; what somebody has to know
// is said once, on the object.
func TestAllStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pod("web")
	for _, obj := range []client.Object{
		token(w.home, "robot"), configMap(w.home, "kube-root-ca.crt", nil), pullSecret(w.home, v1alpha1.TokenSecretPrefix+"uid", "s3cret"),
		configMap(w.home, "big", map[string]string{"a": strings.Repeat("\x01", 400<<10)}), configMap(w.home, "full", nil),
	} {
		w.create(obj)
	}
	w.rules(ruleOf(kindConfigMap, v1alpha1.ReflectAll), ruleOf(kindSecret, v1alpha1.ReflectAll))
	w.fail = func(verb string, obj client.Object) error {
		if s, ok := obj.(*v1alpha1.ShadowObject); ok && verb == "create" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "shadowobjects"}, s.Name, nil) // as a quota does
		}
		return nil
	}
	for range 2 {
		if got := w.list(); got != "Secret/robot ConfigMap/big ConfigMap/full" {
			t.Fatal(got)
		}
	}
	told := map[string]int{}
	for len(w.recorded.Events) > 0 {
		e := <-w.recorded.Events
		for _, words := range []string{"service-account-token", "as JSON, at most 2211744", "403", "s3cret"} {
			told[words] += strings.Count(e, words)
		}
	}
	if told["service-account-token"] != 1 || told["as JSON, at most 2211744"] != 1 || told["403"] != 1 || told["s3cret"] != 0 {
		t.Error(told)
	}
	w.as(kindConfigMap, "kube-root-ca.crt")
	list := &v1alpha1.ShadowObjectList{}
	if err := w.raw.List(ctx, list, client.InNamespace(w.TenantNamespace())); err != nil || len(list.Items) != 0 {
		t.Errorf("%d travel: %v", len(list.Items), err)
	}
	w.fail = nil
	w.list()
	w.kind = kindConfigMap
	if w.madeMap("full") == nil || w.madeMap("big") != nil {
		t.Error("not made when there is room again, or too large")
	}
	w.rules(ruleOf(kindConfigMap, v1alpha1.ReflectAll, "app", "?"), ruleOf(kindConfigMap, v1alpha1.ReflectAll))
	if got := w.list(); got != "" || w.told("spec.reflection[0].selector cannot be read") != 1 {
		t.Errorf("%q by a rule that cannot be read, or that is not said", got)
	}
}

// TestAllWithoutRight: what may not be read yet is left as it is.
func TestAllWithoutRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.kind = kindConfigMap
	w.create(configMap(w.home, "app", nil))
	w.pod("web")
	w.rules(ruleOf(kindConfigMap, v1alpha1.ReflectAll))
	w.list()
	w.forbidden = true
	if got := w.list(); got != "" {
		t.Errorf("%q", got)
	}
	if w.later("app"); w.madeMap("app") == nil {
		t.Error("it goes with the right to read it")
	}
	w.forbidden = false
	w.remove(get(w, w.home, "app", &corev1.ConfigMap{}))
	if w.both("app"); w.madeMap("app") != nil {
		t.Error("it stays though it is gone from home")
	}
}

// TestPolicies: which rules the API server takes, and what it says of the others.
func TestPolicies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, kind := range carried {
		for _, policy := range []v1alpha1.ReflectionPolicy{v1alpha1.ReflectDeny, v1alpha1.ReflectReferred, v1alpha1.ReflectAll} {
			o := &v1alpha1.NamespaceOffloading{ObjectMeta: objectMeta(w.home, v1alpha1.OffloadingName), Spec: v1alpha1.NamespaceOffloadingSpec{
				Reflection: []v1alpha1.ReflectionRule{ruleOf(kind, policy)}}}
			err := w.raw.Create(ctx, o, client.DryRunAll)
			refused := policy == v1alpha1.ReflectReferred && kind != kindSecret && kind != kindConfigMap
			if (err != nil) != refused || refused && !strings.Contains(err.Error(), "policy Referred is for Secret and ConfigMap, which pods refer to; the other kinds have All or Deny") {
				t.Errorf("%s %s: %v", policy, kind, err)
			}
		}
	}
}
