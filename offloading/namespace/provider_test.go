package namespace

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestRemoteName(t *testing.T) {
	for _, c := range []struct {
		reason, home  string
		mapping       v1alpha1.NamespaceMapping
		granted       []string
		want, refusal string
	}{
		{"the default needs no leave", "shop", v1alpha1.NamespaceMapping{Strategy: "DefaultName"}, nil, "shop-rome", ""},
		{"the default may be too long", strings.Repeat("a", 60), v1alpha1.NamespaceMapping{Strategy: "DefaultName"}, nil, "", v1alpha1.ReasonNameTooLong},
		{"63 characters are not too long", strings.Repeat("a", 58), v1alpha1.NamespaceMapping{Strategy: "DefaultName"}, nil, strings.Repeat("a", 58) + "-rome", ""},
		{"the default may be reserved", "kube", v1alpha1.NamespaceMapping{Strategy: "DefaultName"}, nil, "", v1alpha1.ReasonNameForbidden},
		{"a tenant namespace is not to be had", "pelago-tenant", v1alpha1.NamespaceMapping{Strategy: "DefaultName"}, nil, "", v1alpha1.ReasonNameForbidden},
		{"the same name needs leave", "shop", v1alpha1.NamespaceMapping{Strategy: "EnforceSameName"}, nil, "", v1alpha1.ReasonNameForbidden},
		{"leave for a name", "shop", v1alpha1.NamespaceMapping{Strategy: "EnforceSameName"}, []string{"other", "shop"}, "shop", ""},
		{"leave for a beginning", "shop", v1alpha1.NamespaceMapping{Strategy: "EnforceSameName"}, []string{"sh*"}, "shop", ""},
		{"a name is not a beginning", "shops", v1alpha1.NamespaceMapping{Strategy: "EnforceSameName"}, []string{"shop"}, "", v1alpha1.ReasonNameForbidden},
		{"a name selected needs leave", "shop", v1alpha1.NamespaceMapping{Strategy: "SelectedName", RemoteName: "x"}, []string{"shop"}, "", v1alpha1.ReasonNameForbidden},
		{"a name selected with leave", "shop", v1alpha1.NamespaceMapping{Strategy: "SelectedName", RemoteName: "x"}, []string{"*"}, "x", ""},
		{"reserved names are never given", "kube-system", v1alpha1.NamespaceMapping{Strategy: "EnforceSameName"}, []string{"*", "kube-system"}, "", v1alpha1.ReasonNameForbidden},
		{"nor Pelago's own", "shop", v1alpha1.NamespaceMapping{Strategy: "SelectedName", RemoteName: "mine"}, []string{"*"}, "", v1alpha1.ReasonNameForbidden},
		{"no name", "shop", v1alpha1.NamespaceMapping{Strategy: "SelectedName"}, []string{"*"}, "", v1alpha1.ReasonInvalid},
		{"not a name", "shop", v1alpha1.NamespaceMapping{Strategy: "SelectedName", RemoteName: "../x"}, []string{"*"}, "", v1alpha1.ReasonInvalid},
		{"not a name at home", "a/b", v1alpha1.NamespaceMapping{Strategy: "DefaultName"}, nil, "", v1alpha1.ReasonInvalid},
		{"unknown strategy", "shop", v1alpha1.NamespaceMapping{Strategy: "Magic"}, []string{"*"}, "", v1alpha1.ReasonInvalid},
	} {
		tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}
		tenant.Spec.NamespaceNames = c.granted
		name, no := remoteName(c.home, c.mapping, tenant, "mine")
		if name != c.want || no.reason != c.refusal || (no.reason != "") != (no.message != "") {
			t.Errorf("%s: %q %+v, want %q %q", c.reason, name, no, c.want, c.refusal)
		}
	}
}

// mapped is a namespace of the tenant rome.
func mapped(name, home string) *corev1.Namespace {
	return mappedNamespace(name, home, v1alpha1.NamespaceMapping{}, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome"}})
}

func TestArrange(t *testing.T) {
	now := time.Now()
	deleted := func(n *corev1.Namespace) *corev1.Namespace {
		n.DeletionTimestamp = &metav1.Time{Time: now}
		return n
	}
	bound := func(names ...string) map[string]*rbacv1.RoleBinding {
		out := map[string]*rbacv1.RoleBinding{}
		for _, n := range names {
			out[n] = podsBinding(n, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}, rbacv1.Subject{Name: "u"})
		}
		return out
	}
	armed := func(names ...string) map[string]*rbacv1.RoleBinding {
		out := map[string]*rbacv1.RoleBinding{}
		for _, n := range names {
			out[n] = mappedBinding(n, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}, v1alpha1.SystemNamespace)
		}
		return out
	}
	def := v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingDefaultName}
	pick := func(name string) v1alpha1.NamespaceMapping {
		return v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingSelectedName, RemoteName: name}
	}
	one := int32(1)
	for _, c := range []struct {
		reason  string
		entries map[string]v1alpha1.NamespaceMapping
		none    bool // no map, for ten seconds
		there   []*corev1.Namespace
		bound   []string
		leaving map[string]departure
		state   v1alpha1.TenantState
		limit   *int32
		want    map[string]string
		steps   []string
	}{
		{reason: "a new one is made", entries: map[string]v1alpha1.NamespaceMapping{"shop": def},
			want: map[string]string{"shop": "Ready Ready"}, steps: []string{"shop-rome create bind"}},
		{reason: "one that is right is left alone", entries: map[string]v1alpha1.NamespaceMapping{"shop": def},
			there: []*corev1.Namespace{mapped("shop-rome", "shop")}, bound: []string{"shop-rome"}, want: map[string]string{"shop": "Ready Ready"}},
		{reason: "labels and rights are mended", entries: map[string]v1alpha1.NamespaceMapping{"shop": def},
			there: []*corev1.Namespace{func() *corev1.Namespace {
				n := mapped("shop-rome", "shop")
				delete(n.Labels, "pod-security.kubernetes.io/enforce")
				return n
			}()}, want: map[string]string{"shop": "Ready Ready"}, steps: []string{"shop-rome relabel bind"}},
		{reason: "a foreign one is in the way", entries: map[string]v1alpha1.NamespaceMapping{"shop": def},
			there: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop-rome"}}}, want: map[string]string{"shop": "Refused NameTaken"}},
		{reason: "that of another tenant as well", entries: map[string]v1alpha1.NamespaceMapping{"shop": def},
			there: []*corev1.Namespace{mappedNamespace("shop-rome", "shop", v1alpha1.NamespaceMapping{}, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "oslo"}})},
			want:  map[string]string{"shop": "Refused NameTaken"}},
		{reason: "one that ends is waited for", entries: map[string]v1alpha1.NamespaceMapping{"shop": def},
			there: []*corev1.Namespace{deleted(mapped("shop-rome", "shop"))}, want: map[string]string{"shop": "Pending Terminating"}},
		{reason: "the first of two gets a name", entries: map[string]v1alpha1.NamespaceMapping{"a": pick("x"), "b": pick("x")},
			want: map[string]string{"a": "Ready Ready", "b": "Refused NameTaken"}, steps: []string{"x create bind"}},
		{reason: "but not what the second has already", entries: map[string]v1alpha1.NamespaceMapping{"a": pick("x"), "b": pick("x")},
			there: []*corev1.Namespace{mapped("x", "b")}, bound: []string{"x"}, want: map[string]string{"a": "Refused NameTaken", "b": "Ready Ready"}},
		{reason: "cordoned: nothing new", entries: map[string]v1alpha1.NamespaceMapping{"a": def, "b": def}, state: v1alpha1.TenantCordoned,
			there: []*corev1.Namespace{mapped("a-rome", "a")}, bound: []string{"a-rome"}, want: map[string]string{"a": "Ready Ready", "b": "Refused Cordoned"}},
		{reason: "drained: nothing stays", entries: map[string]v1alpha1.NamespaceMapping{"a": def, "b": def}, state: v1alpha1.TenantDrained,
			there: []*corev1.Namespace{mapped("a-rome", "a")}, bound: []string{"a-rome"},
			want: map[string]string{"a": "Terminating Terminating", "b": "Refused Drained"}, steps: []string{"a-rome unbind remove"}},
		{reason: "the limit", entries: map[string]v1alpha1.NamespaceMapping{"a": def, "b": def}, limit: &one,
			want: map[string]string{"a": "Ready Ready", "b": "Refused LimitExceeded"}, steps: []string{"a-rome create bind"}},
		{reason: "what is kept counts, what is there stays", entries: map[string]v1alpha1.NamespaceMapping{"a": def, "b": def}, limit: &one,
			there: []*corev1.Namespace{mapped("b-rome", "b")}, bound: []string{"b-rome"}, want: map[string]string{"a": "Refused LimitExceeded", "b": "Ready Ready"}},
		{reason: "rights go while pods are waited for", there: []*corev1.Namespace{mapped("a-rome", "a")}, bound: []string{"a-rome"},
			leaving: map[string]departure{"a-rome": {since: now, pods: 2}}, want: map[string]string{"a": "Terminating Terminating"}, steps: []string{"a-rome unbind"}},
		{reason: "pods are not waited for for ever", there: []*corev1.Namespace{mapped("a-rome", "a")},
			leaving: map[string]departure{"a-rome": {since: now.Add(-patience), pods: 2}}, want: map[string]string{"a": "Terminating Terminating"}, steps: []string{"a-rome remove"}},
		{reason: "volumes are kept", there: []*corev1.Namespace{mapped("a-rome", "a")}, bound: []string{"a-rome"},
			leaving: map[string]departure{"a-rome": {since: now, claims: true}}, want: map[string]string{"a": "Kept VolumesKept"}, steps: []string{"a-rome unbind"}},
		{reason: "a map that is missing for a moment costs nothing", none: true, there: []*corev1.Namespace{mapped("a-rome", "a")}, bound: []string{"a-rome"},
			leaving: map[string]departure{"a-rome": {since: now}}, want: map[string]string{}},
		{reason: "another name of the same: the old one goes", entries: map[string]v1alpha1.NamespaceMapping{"a": pick("x")},
			there: []*corev1.Namespace{mapped("a-rome", "a")}, leaving: map[string]departure{"a-rome": {since: now}},
			want: map[string]string{"a": "Ready Ready"}, steps: []string{"a-rome remove", "x create bind"}},
	} {
		f := &estate{now: now, tenant: &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}, system: v1alpha1.SystemNamespace,
			own: armed(c.bound...), subject: &rbacv1.Subject{Name: "u"}, existing: map[string]*corev1.Namespace{}, bindings: bound(c.bound...), leaving: c.leaving,
			desired: &v1alpha1.NamespaceMap{Spec: v1alpha1.NamespaceMapSpec{Namespaces: c.entries}}}
		f.tenant.Spec.State, f.tenant.Spec.NamespaceNames = c.state, []string{"x"}
		f.tenant.Spec.Limits = &v1alpha1.TenantLimits{Namespaces: c.limit}
		if c.none {
			f.desired, f.missingSince = nil, now.Add(-10*time.Second)
		}
		for _, n := range c.there {
			f.existing[n.Name] = n
			if n.Labels[v1alpha1.LabelTenant] == "rome" {
				f.ours = append(f.ours, n)
			}
		}
		d := arrange(f)
		got := map[string]string{}
		for home, said := range d.said {
			got[home] = fmt.Sprint(said.Phase, " ", said.Reason)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
		var steps []string
		for _, s := range d.steps {
			text := s.name
			for word, set := range map[string]bool{" create": s.create, " relabel": s.relabel} {
				if set {
					text += word
				}
			}
			for _, p := range []struct {
				word string
				set  bool
			}{{" unbind", s.unbind}, {" rebind", s.rebind}, {" bind", s.bind && s.arm}, {" only one binding", s.bind != s.arm}, {" remove", s.remove}} {
				if p.set {
					text += p.word
				}
			}
			steps = append(steps, text)
		}
		if diff := cmp.Diff(c.steps, steps); diff != "" {
			t.Errorf("%s: steps: %s", c.reason, diff)
		}
	}
}

// TestRightsEndWithTheLabels: a namespace whose owner takes it over, wanted or not, is no
// place for the tenant any more.
func TestRightsEndWithTheLabels(t *testing.T) {
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome"}}
	who := rbacv1.Subject{Kind: rbacv1.UserKind, Name: "u"}
	taken := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop-rome"}}
	for reason, entries := range map[string]map[string]v1alpha1.NamespaceMapping{"wanted": {"shop": {Strategy: v1alpha1.MappingDefaultName}}, "not wanted": nil} {
		f := &estate{now: time.Now(), tenant: tenant, subject: &who, system: v1alpha1.SystemNamespace,
			desired:  &v1alpha1.NamespaceMap{Spec: v1alpha1.NamespaceMapSpec{Namespaces: entries}},
			existing: map[string]*corev1.Namespace{taken.Name: taken},
			bindings: map[string]*rbacv1.RoleBinding{taken.Name: podsBinding(taken.Name, tenant, who)}}
		if diff := cmp.Diff([]step{{name: taken.Name, unbind: true}}, arrange(f).steps, cmp.AllowUnexported(step{})); diff != "" {
			t.Errorf("%s: %s", reason, diff)
		}
	}
}

// TestHostileMap: a map full of everything costs bounded work and touches nothing that
// is not the tenant's.
func TestHostileMap(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	w.patch(w.tenant(milan), "spec", map[string]any{"namespaceNames": []string{"*"}, "limits": map[string]any{"namespaces": 3}})
	entries := map[string]v1alpha1.NamespaceMapping{
		"a-steal": {Strategy: v1alpha1.MappingSelectedName, RemoteName: w.home}, "a-system": {Strategy: v1alpha1.MappingSelectedName, RemoteName: "kube-system"},
		"kube-system": {Strategy: v1alpha1.MappingEnforceSameName}, "default": {Strategy: v1alpha1.MappingEnforceSameName},
		"empty": {Strategy: v1alpha1.MappingSelectedName},
	}
	for i := range 500 {
		entries[fmt.Sprintf("n%03d", i)] = v1alpha1.NamespaceMapping{Strategy: v1alpha1.MappingDefaultName}
	}
	before := get(w, "", w.home, &corev1.Namespace{}).ResourceVersion
	w.create(&v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(milan), Name: v1alpha1.NamespaceMapName,
		Finalizers: nil, Labels: map[string]string{v1alpha1.LabelTenant: "somebody"}}, Spec: v1alpha1.NamespaceMapSpec{Namespaces: entries}})
	for range 3 {
		w.clock.Step(writeEvery)
		if err := once(w.provider, mapOfTenant(milan)); err != nil {
			t.Fatal(err)
		}
	}
	m := get(w, v1alpha1.TenantNamespace(milan), v1alpha1.NamespaceMapName, &v1alpha1.NamespaceMap{})
	counts := map[string]int{}
	for _, n := range m.Status.Namespaces {
		counts[n.Reason]++
		if n.Phase == v1alpha1.MappingReady {
			t.Cleanup(func() { w.end(n.Name) })
		}
	}
	want := map[string]int{"Ready": 3, v1alpha1.ReasonLimitExceeded: 497, v1alpha1.ReasonNameTaken: 1, v1alpha1.ReasonNameForbidden: 3, v1alpha1.ReasonInvalid: 1}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Error(diff)
	}
	if get(w, "", w.home, &corev1.Namespace{}).ResourceVersion != before {
		t.Error("a foreign namespace was touched")
	}
	if w.writes > 3*3+2 {
		t.Errorf("%d writes", w.writes)
	}
}

// TestTermsFollow: terms of a tenant reach the namespaces that are there.
func TestTermsFollow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	w.patch(w.tenant(milan), "spec", map[string]any{"podSecurity": "restricted", "state": "Cordoned"})
	w.settle()
	if l := w.remote(milan).Labels["pod-security.kubernetes.io/enforce"]; l != "restricted" || w.says()["phase"] != "Ready" {
		t.Errorf("%s %v", l, w.says())
	}
	w.patch(w.tenant(milan), "spec", map[string]any{"state": "Drained"})
	w.settle()
	if there(w.remote(milan)) {
		t.Error("drained, and it stays")
	}
	w.end(w.remote(milan).Name)
	w.settle()
	if w.says()["phase"] != "AllFailed" || w.says()["milan Ready"] != "False/Drained" {
		t.Errorf("%v", w.says())
	}
	w.patch(w.tenant(milan), "spec", map[string]any{"state": nil})
	w.settle()
	if w.says()["phase"] != "Ready" {
		t.Errorf("%v", w.says())
	}
	t.Run("pods are waited for", func(t *testing.T) {
		w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.remote(milan).Name, Name: "default"}})
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.remote(milan).Name, Name: "web", Labels: map[string]string{v1alpha1.LabelHomeUID: "1"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		w.patch(w.tenant(milan), "spec", map[string]any{"podSecurity": "privileged"})
		w.settle()
		w.create(pod)
		w.patch(w.tenant(milan), "spec", map[string]any{"state": "Drained"})
		w.settle()
		if !there(w.remote(milan)) {
			t.Error("the namespace goes before its pods")
		}
		w.clock.Step(patience)
		w.settle()
		if there(w.remote(milan)) {
			t.Error("a pod holds the namespace for ever")
		}
	})
}
