package namespace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// knows says what a provider's build knows.
func (w *world) knows(peering string, features ...string) {
	w.t.Helper()
	p := get(w, "", peering, &v1alpha1.Peering{})
	p.Status.Remote = &v1alpha1.ClusterInfo{ID: p.Spec.ClusterID, Name: "x", Features: features}
	if err := w.raw.Status().Update(ctx, p); err != nil {
		w.t.Fatal(err)
	}
}

// offloads writes the NamespaceOffloading of a namespace that is here for a tenant.
func (w *world) offloads(namespace string, spec v1alpha1.NamespaceOffloadingSpec) *v1alpha1.NamespaceOffloading {
	w.t.Helper()
	o := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.OffloadingName}, Spec: spec}
	if err := w.raw.Create(ctx, o); err != nil {
		w.t.Fatal(err)
	}
	w.also = append(w.also, namespace)
	w.t.Cleanup(func() {
		_ = w.raw.Patch(ctx, o, merge("metadata", map[string]any{"finalizers": nil}))
		_ = w.raw.Delete(ctx, o)
	})
	return o
}

// let sets spec.onward of the NamespaceOffloading at home.
func (w *world) let(policy v1alpha1.OnwardPolicy) {
	w.t.Helper()
	w.patch(w.offloading(), "spec", map[string]any{"onward": policy})
}

// chain is milan's namespace at rome, and rome's name of it at oslo. Every cluster is on
// one API server.
type chain struct {
	*world
	rome, oslo, middle, last string
}

func newChain(t *testing.T, policy v1alpha1.OnwardPolicy) *chain {
	t.Helper()
	w := newWorld(t, "rome", "oslo")
	c := &chain{world: w, rome: w.peer("rome"), oslo: w.peer("oslo")}
	c.middle = v1alpha1.DefaultRemoteNamespace(w.home, c.rome)
	c.last = v1alpha1.DefaultRemoteNamespace(c.middle, c.oslo)
	w.knows(c.rome, v1alpha1.FeatureOnward)
	w.knows(c.oslo, v1alpha1.FeatureOnward)
	w.offload(v1alpha1.NamespaceOffloadingSpec{ClusterSelector: region("rome"), Onward: policy})
	w.settle()
	t.Cleanup(func() { w.end(c.last); w.end(c.middle) })
	w.offloads(c.middle, v1alpha1.NamespaceOffloadingSpec{ClusterSelector: region("oslo")})
	w.settle()
	return c
}

// entry is what a peering's map says of a namespace, at home and in the provider's copy.
func (c *chain) entry(peering, namespace string) (here, there *v1alpha1.NamespaceMapping) {
	c.t.Helper()
	of := func(space string) *v1alpha1.NamespaceMapping {
		if m := get(c.world, space, v1alpha1.NamespaceMapName, &v1alpha1.NamespaceMap{}); m != nil {
			if e, ok := m.Spec.Namespaces[namespace]; ok {
				return &e
			}
		}
		return nil
	}
	return of(v1alpha1.PeeringNamespace(peering)), of(v1alpha1.TenantNamespace(peering))
}

func (c *chain) labels(namespace string) map[string]string {
	c.t.Helper()
	n := get(c.world, "", namespace, &corev1.Namespace{})
	if n == nil {
		return nil
	}
	out := map[string]string{}
	for _, key := range append([]string{v1alpha1.LabelOffloaded}, entryLabels...) {
		if value, ok := n.Labels[key]; ok {
			out[strings.TrimPrefix(key, "pelago.dev/")] = value
		}
	}
	return out
}

// at is what an offloading says of a cluster.
func (c *chain) at(namespace, peering string) v1alpha1.ClusterOffloading {
	c.t.Helper()
	o := get(c.world, namespace, v1alpha1.OffloadingName, &v1alpha1.NamespaceOffloading{})
	i := slices.IndexFunc(o.Status.Clusters, func(at v1alpha1.ClusterOffloading) bool { return at.Name == peering })
	if i < 0 {
		return v1alpha1.ClusterOffloading{}
	}
	return o.Status.Clusters[i]
}

func (c *chain) stalled() string {
	c.t.Helper()
	o := get(c.world, c.middle, v1alpha1.OffloadingName, &v1alpha1.NamespaceOffloading{})
	if said := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionStalled); said != nil {
		return said.Message
	}
	return ""
}

// TestOnward: with milan's consent its namespace goes on to oslo, which is told no more than
// a name and a word; without, or when it is taken back, nothing of it is or stays there.
func TestOnward(t *testing.T) {
	t.Parallel()
	c := newChain(t, v1alpha1.OnwardDeny)
	if said := c.stalled(); !strings.Contains(said, "pelago offload namespace "+c.home+" --onward") {
		t.Errorf("the refusal names no remedy: %q", said)
	}
	if here, _ := c.entry(c.rome, c.home); *here != (v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingDefaultName}) {
		t.Errorf("not allowed is not absent: %+v", here)
	}
	if here, _ := c.entry(c.oslo, c.middle); here != nil || len(c.labels(c.middle)) > 0 {
		t.Fatalf("%v %v: goes onward without leave", here, c.labels(c.middle))
	}

	c.let(v1alpha1.OnwardAllow)
	c.settle()
	want := v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingDefaultName, Onward: v1alpha1.OnwardAllow}
	if here, there := c.entry(c.rome, c.home); *here != want || *there != want {
		t.Errorf("milan's: %+v %+v", here, there)
	}
	tenant := get(c.world, "", c.rome, &v1alpha1.Tenant{})
	want = v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingDefaultName, OriginNamespace: c.home, OriginOwner: ownerOf(tenant.UID)}
	if here, there := c.entry(c.oslo, c.middle); here == nil || there == nil || *here != want || *there != want {
		t.Fatalf("rome's: %+v %+v, want %+v; %s", here, there, want, c.stalled())
	}
	if diff := cmp.Diff(map[string]string{"onward": "true", "offloaded": "true"}, c.labels(c.middle)); diff != "" {
		t.Errorf("at rome: %s", diff)
	}
	if diff := cmp.Diff(map[string]string{"origin-namespace": c.home, "origin-owner": want.OriginOwner}, c.labels(c.last)); diff != "" {
		t.Errorf("at oslo: %s", diff)
	}
	if !c.at(c.home, c.rome).Onward || c.at(c.middle, c.oslo).Onward {
		t.Error("rome has to say that pods go onward, and oslo that they do not")
	}
	if b := get(c.world, c.middle, managerBinding, &rbacv1.RoleBinding{}); b.RoleRef.Name != managerMappedRole || b.Labels[v1alpha1.LabelTenant] != c.rome {
		t.Errorf("the manager's rights in the tenant's namespace: %+v", b)
	}
	writes := c.writes
	c.settle()
	if c.writes != writes {
		t.Errorf("%d writes at rest", c.writes-writes)
	}

	t.Run("one hop", func(t *testing.T) {
		c.patch(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.last}}, "metadata", map[string]any{"labels": map[string]any{v1alpha1.LabelOnward: "true"}})
		n := get(c.world, "", c.last, &corev1.Namespace{})
		if _, refused, _ := c.offloader.here(ctx, n); !strings.Contains(refused, "no further") {
			t.Errorf("%q: what has an origin is offloaded again", refused)
		}
		c.settle()
		if _, ok := c.labels(c.last)["onward"]; ok {
			t.Error("a label that nobody asked for stays")
		}
	})
	t.Run("withdrawn", c.withdraw)
}

// withdraw: milan takes its consent back while a pod is at oslo.
func (c *chain) withdraw(t *testing.T) {
	c.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.middle, Name: "default"}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.middle, Name: "web"},
		Spec: corev1.PodSpec{NodeName: c.oslo, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	c.create(pod)
	c.let(v1alpha1.OnwardDeny)
	c.settle()
	if p := get(c.world, c.middle, "web", &corev1.Pod{}); p == nil || p.DeletionTimestamp == nil {
		t.Error("the pod at oslo is not asked to leave")
	}
	if diff := cmp.Diff(map[string]string{"offloaded": v1alpha1.OffloadedLeaving}, c.labels(c.middle)); diff != "" {
		t.Errorf("while pods leave: %s", diff)
	}
	if here, _ := c.entry(c.oslo, c.middle); here == nil || !there(get(c.world, "", c.last, &corev1.Namespace{})) {
		t.Error("the namespace at oslo goes before the pod")
	}
	if !c.at(c.home, c.rome).Onward {
		t.Error("pods are at oslo, and milan is told that none are")
	}
	c.leave(pod)
	c.settle()
	if here, there := c.entry(c.oslo, c.middle); here != nil || there != nil || len(c.labels(c.middle)) > 0 {
		t.Errorf("%v %v %v: something stays", here, there, c.labels(c.middle))
	}
	c.end(c.last)
	c.settle()
	if c.at(c.home, c.rome).Onward || !strings.Contains(c.stalled(), "--onward") || c.says()["phase"] != "Ready" {
		t.Errorf("%+v %s %v", c.at(c.home, c.rome), c.stalled(), c.says())
	}
	c.let(v1alpha1.OnwardAllow)
	c.settle()
	if !there(get(c.world, "", c.last, &corev1.Namespace{})) || c.stalled() != "" {
		t.Errorf("allowed again, and it is not there: %s", c.stalled())
	}
}

// TestOnwardPodsThatStay: pods that do not leave when the consent is taken back are deleted
// after a minute, and given up after two; so it is at once if the label alone goes.
func TestOnwardPodsThatStay(t *testing.T) {
	t.Parallel()
	c := newChain(t, v1alpha1.OnwardAllow)
	f := func() *plan {
		t.Helper()
		o := get(c.world, c.middle, v1alpha1.OffloadingName, &v1alpha1.NamespaceOffloading{})
		f, err := c.offloader.gather(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		return decide(f)
	}
	c.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: c.middle, Name: "default"}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: c.middle, Name: "web"},
		Spec: corev1.PodSpec{NodeName: c.oslo, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	c.create(pod)
	c.patch(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.middle}}, "metadata", map[string]any{"labels": map[string]any{v1alpha1.LabelOnward: nil}})
	if _, err := c.offloader.Reconcile(ctx, offloadingOf(c.middle)); err != nil { // stores that oslo is left
		t.Fatal(err)
	}
	if p := f(); len(p.evict) != 1 || len(p.drop) != 0 || len(p.remove) != 0 {
		t.Errorf("at first: %+v", p)
	}
	c.clock.Step(patience)
	if p := f(); len(p.evict) != 0 || len(p.remove) != 1 || len(p.drop) != 0 {
		t.Errorf("after a minute: %+v", p)
	}
	c.clock.Step(podsLimit - patience)
	if p := f(); len(p.drop) != 1 {
		t.Errorf("after two: %+v", p)
	}
}

// TestOnwardCrash lets all processes die at their writes while the consent is taken back,
// which is given again each time.
func TestOnwardCrash(t *testing.T) {
	t.Parallel()
	c := newChain(t, v1alpha1.OnwardAllow)
	kubetest.CrashPoints(t, func(after int) (int, bool) {
		c.let(v1alpha1.OnwardAllow)
		c.settle()
		if !there(get(c.world, "", c.last, &corev1.Namespace{})) {
			t.Fatalf("before dying at write %d: %s", after, c.stalled())
		}
		c.let(v1alpha1.OnwardDeny)
		c.writes, c.dieAfter, c.died = 0, after, false
		for quiet := 0; quiet < 2 && !c.died; quiet++ {
			before := c.writes
			if err := c.look(); err != nil && !errors.Is(err, errDead) {
				t.Fatal(err)
			}
			if c.writes != before {
				quiet = -1
			}
		}
		writes, died := c.writes, c.died
		c.dieAfter = -1
		c.restart()
		c.settle()
		here, _ := c.entry(c.oslo, c.middle)
		if here != nil || there(get(c.world, "", c.last, &corev1.Namespace{})) || len(c.labels(c.middle)) > 0 {
			t.Fatalf("died before write %d: %v %v", after, here, c.labels(c.middle))
		}
		c.end(c.last)
		return writes, died
	})
}

// TestOnwardOlder: a provider of an older build is told nothing that it would not keep, and
// gets no namespace of a tenant; it joins when it is upgraded.
func TestOnwardOlder(t *testing.T) {
	t.Parallel()
	c := newChain(t, v1alpha1.OnwardAllow)
	if !there(get(c.world, "", c.last, &corev1.Namespace{})) {
		t.Fatal(c.stalled())
	}
	c.knows(c.oslo, v1alpha1.FeaturePeering)
	c.knows(c.rome, v1alpha1.FeaturePeering)
	c.settle()
	if here, _ := c.entry(c.rome, c.home); here.Onward != "" {
		t.Errorf("rome would not keep %+v", here)
	}
	c.knows(c.rome, v1alpha1.FeatureOnward)
	c.settle()
	if here, there := c.entry(c.oslo, c.middle); here != nil || there != nil {
		t.Errorf("oslo would take it for rome's own: %+v %+v", here, there)
	}
	c.end(c.last)
	c.settle()
	said := meta.FindStatusCondition(c.at(c.middle, c.oslo).Conditions, v1alpha1.ConditionOffloadingRequired)
	if said == nil || said.Reason != v1alpha1.ReasonUnsupported || !strings.Contains(said.Message, "upgrades") {
		t.Errorf("%+v", said)
	}
	o := get(c.world, c.middle, v1alpha1.OffloadingName, &v1alpha1.NamespaceOffloading{})
	if ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady); !strings.Contains(ready.Message, "upgrades") {
		t.Errorf("%+v", ready)
	}
	c.knows(c.oslo, v1alpha1.FeatureOnward)
	c.settle()
	if !there(get(c.world, "", c.last, &corev1.Namespace{})) {
		t.Error("it does not join when it is upgraded")
	}
}

// TestRefusedHere: which namespaces of this cluster may be offloaded.
func TestRefusedHere(t *testing.T) {
	mapped := map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: "milan", v1alpha1.LabelHomeNamespace: "shop"}
	and := func(pairs ...string) map[string]string {
		out := maps.Clone(mapped)
		for i := 0; i < len(pairs); i += 2 {
			if out[pairs[i]] = pairs[i+1]; pairs[i+1] == "" {
				delete(out, pairs[i])
			}
		}
		return out
	}
	for _, c := range []struct {
		reason string
		labels map[string]string
		want   string // in the refusal
	}{
		{"its own", nil, ""},
		{"its own, with a label that says nothing there", map[string]string{v1alpha1.LabelOnward: "true"}, ""},
		{"a tenant's that says nothing", mapped, "pelago offload namespace shop --onward"},
		{"a tenant's that lets it", and(v1alpha1.LabelOnward, "true"), ""},
		{"another value is no leave", and(v1alpha1.LabelOnward, "yes"), "--onward"},
		{"a tenant's of a tenant, whatever it says", and(v1alpha1.LabelOnward, "true", v1alpha1.LabelOriginNamespace, "shop", v1alpha1.LabelOriginOwner, "0123456789abcdef"), "no further"},
		{"half an origin is one", and(v1alpha1.LabelOnward, "true", v1alpha1.LabelOriginOwner, "0123456789abcdef"), "no further"},
		{"a tenant's that somebody has relabelled", and(v1alpha1.LabelOnward, "true", v1alpha1.LabelManagedBy, ""), "not as Pelago makes these"},
		{"one that was taken away from its tenant", and(v1alpha1.LabelTenant, "", v1alpha1.LabelOnward, "true"), "was run here for a tenant"},
		{"one that was kept when its tenant ended", and(v1alpha1.LabelTenant, "", v1alpha1.LabelManagedBy, ""), "was run here for a tenant"},
		{"or without its name at home", and(v1alpha1.LabelOnward, "true", v1alpha1.LabelHomeNamespace, ""), "not as Pelago makes these"},
	} {
		got := refusedHere(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-milan", Labels: c.labels}}, "pelago-system")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q", c.reason, got)
		}
	}
}

// TestOnwardLabels: the labels of a mapped namespace follow its entry, and go when it goes.
func TestOnwardLabels(t *testing.T) {
	const owner = "0123456789abcdef"
	allowed := map[string]string{v1alpha1.LabelOnward: "true"}
	from := map[string]string{v1alpha1.LabelOriginNamespace: "shop", v1alpha1.LabelOriginOwner: owner}
	entry := func(policy v1alpha1.OnwardPolicy, namespace, owner string) *v1alpha1.NamespaceMapping {
		return &v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingDefaultName, Onward: policy, OriginNamespace: namespace, OriginOwner: owner}
	}
	for _, c := range []struct {
		reason string
		entry  *v1alpha1.NamespaceMapping // nil: not wanted any more
		have   map[string]string
		want   map[string]string // nil: left as it is
	}{
		{"allowed", entry(v1alpha1.OnwardAllow, "", ""), nil, allowed},
		{"allowed already", entry(v1alpha1.OnwardAllow, "", ""), allowed, nil},
		{"not any more", entry("", "", ""), allowed, map[string]string{}},
		{"denied", entry(v1alpha1.OnwardDeny, "", ""), allowed, map[string]string{}},
		{"a word of later builds", entry("Ask", "", ""), allowed, map[string]string{}},
		{"an origin", entry("", "shop", owner), nil, from},
		{"another origin", entry("", "bank", owner), from, map[string]string{v1alpha1.LabelOriginNamespace: "bank", v1alpha1.LabelOriginOwner: owner}},
		{"an origin goes no further", entry(v1alpha1.OnwardAllow, "shop", owner), allowed, from},
		{"no origin any more", entry("", "", ""), from, map[string]string{}},
		{"not wanted: no leave is left", nil, allowed, map[string]string{}},
		{"not wanted: the origin stays as long as the namespace", nil, from, nil},
		{"half an origin is refused", entry("", "shop", ""), allowed, map[string]string{}},
		{"so is the other half", entry("", "", owner), nil, nil},
		{"an owner that is no word", entry("", "shop", "../../etc/passwd"), nil, nil},
		{"a namespace that is none", entry("", "a/b", owner), nil, nil},
		{"a namespace too long", entry("", strings.Repeat("a", 64), owner), nil, nil},
	} {
		tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}
		n := mapped("shop-rome", "shop")
		maps.Copy(n.Labels, c.have)
		f := &estate{now: time.Now(), tenant: tenant, system: v1alpha1.SystemNamespace, subject: &rbacv1.Subject{Name: "u"},
			existing: map[string]*corev1.Namespace{n.Name: n}, ours: []*corev1.Namespace{n}, bindings: map[string]*rbacv1.RoleBinding{}, own: map[string]*rbacv1.RoleBinding{},
			leaving: map[string]departure{n.Name: {since: time.Now(), pods: 1}}, desired: &v1alpha1.NamespaceMap{}}
		if c.entry != nil {
			f.desired.Spec.Namespaces = map[string]v1alpha1.NamespaceMapping{"shop": *c.entry}
		}
		var got map[string]string
		for _, s := range arrange(f).steps {
			if s.relabel {
				got = labelsOf(s.entry)
				if got == nil {
					got = map[string]string{}
				}
			}
		}
		if got != nil && got[v1alpha1.LabelOriginNamespace] == "" {
			delete(got, v1alpha1.LabelOriginNamespace)
			delete(got, v1alpha1.LabelOriginOwner)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
}

// TestEntryChanges: what an entry does not say any more is taken out at the provider.
func TestEntryChanges(t *testing.T) {
	const name = string(v1alpha1.MappingDefaultName)
	gone := map[string]any{"strategy": name, "remoteName": nil, "onward": nil, "originNamespace": nil, "originOwner": nil, "domain": nil}
	with := func(pairs ...string) map[string]any {
		out := maps.Clone(gone)
		for i := 0; i < len(pairs); i += 2 {
			out[pairs[i]] = pairs[i+1]
		}
		return out
	}
	plain := v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingDefaultName}
	allow, from := plain, plain
	allow.Onward = v1alpha1.OnwardAllow
	from.OriginNamespace, from.OriginOwner = "shop", "0123456789abcdef"
	for _, c := range []struct {
		reason string
		have   any
		want   v1alpha1.NamespaceMapping
		change any // nil: none
	}{
		{"new", nil, plain, map[string]any{"strategy": name}},
		{"new, with leave", nil, allow, map[string]any{"strategy": name, "onward": "Allow"}},
		{"new, of elsewhere", nil, from, map[string]any{"strategy": name, "originNamespace": "shop", "originOwner": "0123456789abcdef"}},
		{"as it is", map[string]any{"strategy": name, "onward": "Allow"}, allow, nil},
		{"as it is, of elsewhere", map[string]any{"strategy": name, "originNamespace": "shop", "originOwner": "0123456789abcdef"}, from, nil},
		{"leave", map[string]any{"strategy": name}, allow, with("onward", "Allow")},
		{"no leave any more", map[string]any{"strategy": name, "onward": "Allow"}, plain, gone},
		{"no word of it", map[string]any{"strategy": name, "onward": map[string]any{}}, allow, with("onward", "Allow")},
		{"another owner", map[string]any{"strategy": name, "originNamespace": "shop", "originOwner": "x"}, from, with("originNamespace", "shop", "originOwner", "0123456789abcdef")},
		{"not of elsewhere any more", map[string]any{"strategy": name, "originNamespace": "shop", "originOwner": "x"}, plain, gone},
	} {
		have := map[string]any{}
		if c.have != nil {
			have["a"] = c.have
		}
		if diff := cmp.Diff(c.change, entryChanges(have, map[string]v1alpha1.NamespaceMapping{"a": c.want})["a"]); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
	}
}

// TestOwnerWord: one tenant has one word, and it says nothing of it.
func TestOwnerWord(t *testing.T) {
	a, b := ownerOf("8c5d9f6e-0000-4000-8000-000000000001"), ownerOf("8c5d9f6e-0000-4000-8000-000000000002")
	if a == b || !v1alpha1.IsOrigin("shop", a) || a != ownerOf("8c5d9f6e-0000-4000-8000-000000000001") {
		t.Error(fmt.Sprint(a, " ", b))
	}
}

// TestTenantGone: what is here for a tenant that is gone goes nowhere.
func TestTenantGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-milan", Labels: map[string]string{
		v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: w.home, v1alpha1.LabelHomeNamespace: "shop", v1alpha1.LabelOnward: "true", v1alpha1.LabelHomeDomain: "milan.example"}}}
	if from, refused, err := w.offloader.here(ctx, n); err != nil || refused == "" || from != (origin{}) {
		t.Errorf("%+v %q %v", from, refused, err)
	}
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: w.home}, Spec: v1alpha1.TenantSpec{
		ClusterID: "8c5d9f6e-0000-4000-8000-000000000001", PeeringUID: "8c5d9f6e-0000-4000-8000-000000000002"}}
	w.create(tenant)
	from, refused, err := w.offloader.here(ctx, n)
	if err != nil || refused != "" || from != (origin{"shop", ownerOf(tenant.UID), "milan.example"}) {
		t.Errorf("%+v %q %v", from, refused, err)
	}
	if err := w.raw.Delete(ctx, tenant); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}
