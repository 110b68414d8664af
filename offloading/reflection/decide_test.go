package reflection

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
)

func shadowOf(home v1alpha1.HomeObject, object string) *v1alpha1.ShadowObject {
	return &v1alpha1.ShadowObject{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ShadowObjectName(home), Annotations: map[string]string{v1alpha1.AnnotationApplied: hash(object)}},
		Spec:       v1alpha1.ShadowObjectSpec{Home: home, Object: object},
	}
}

func TestDecide(t *testing.T) {
	now := time.Now()
	home := v1alpha1.HomeObject{Kind: "Secret", Namespace: "shop", Name: "registry"}
	there := shadowOf(home, "new")
	older := shadowOf(home, "old")
	said := func(reason string, generation int64) *v1alpha1.ShadowObject {
		s := shadowOf(home, "new")
		s.Generation = 2
		s.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionFalse, Reason: reason, Message: "s3cret", ObservedGeneration: generation}}
		return s
	}
	for _, c := range []struct {
		reason string
		facts  facts
		want   plan
		told   string
	}{
		{reason: "nobody names it", facts: facts{}},
		{reason: "a moment ago somebody did", facts: facts{offloaded: true, there: there, unwanted: now.Add(-10 * time.Second)}, want: plan{again: 50 * time.Second}},
		{reason: "a moment ago somebody did, and the namespace is not offloaded any more", facts: facts{there: there, unwanted: now}, want: plan{remove: true}},
		{reason: "nobody has named it for a minute", facts: facts{offloaded: true, there: there, unwanted: now.Add(-grace)}, want: plan{remove: true}},
		{reason: "nobody has named it, and it is gone from home", facts: facts{offloaded: true, found: absent, there: there, unwanted: now}, want: plan{remove: true}},
		{reason: "nobody has named it, and a rule keeps it home", facts: facts{offloaded: true, found: present, there: there, unwanted: now}, want: plan{remove: true}},
		{reason: "nobody has named it, and it was deleted", facts: facts{offloaded: true, there: there, going: true, unwanted: now.Add(-grace)}, want: plan{again: rereadEvery}},
		{reason: "it travels no more, and was deleted", facts: facts{wanted: true, offloaded: true, found: present, wrong: "no", there: there, going: true}, want: plan{again: rereadEvery}, told: "no"},
		{reason: "a new one", facts: facts{wanted: true, offloaded: true, found: present, text: "new"}, want: plan{create: true, again: rereadEvery}},
		{reason: "all is well", facts: facts{wanted: true, offloaded: true, found: present, text: "new", there: there}, want: plan{again: rereadEvery}},
		{reason: "the content has changed", facts: facts{wanted: true, offloaded: true, found: present, text: "new", there: older}, want: plan{change: true, again: rereadEvery}},
		{reason: "the earlier one is going", facts: facts{wanted: true, offloaded: true, found: present, text: "new", there: older, going: true}, want: plan{behind: true}},
		{reason: "not offloaded: nothing travels", facts: facts{wanted: true, found: present, text: "new"}, want: plan{again: rightsRetry}},
		{reason: "not offloaded any more: what is there stays for the pods", facts: facts{wanted: true, there: there}, want: plan{again: rightsRetry}},
		{reason: "not to be read", facts: facts{wanted: true, offloaded: true, there: there}, want: plan{again: rightsRetry}},
		{reason: "there is none", facts: facts{wanted: true, offloaded: true, found: absent}, want: plan{again: rereadEvery}, told: "no such Secret"},
		{reason: "there is none yet", facts: facts{wanted: true, offloaded: true, found: absent, missing: now}, want: plan{again: soon}, told: "no such Secret"},
		{reason: "there was none a moment ago either", facts: facts{wanted: true, offloaded: true, found: absent, missing: now.Add(-7 * time.Second)}, want: plan{again: 7 * time.Second}, told: "no such Secret"},
		{reason: "there has been none for long", facts: facts{wanted: true, offloaded: true, found: absent, missing: now.Add(-time.Hour)}, want: plan{again: rereadEvery}, told: "no such Secret"},
		{reason: "it was deleted", facts: facts{wanted: true, offloaded: true, found: absent, there: there}, want: plan{remove: true, again: rereadEvery}, told: "no such Secret"},
		{reason: "it does not travel", facts: facts{wanted: true, offloaded: true, found: present, wrong: "no"}, want: plan{again: rereadEvery}, told: "no"},
		{reason: "it travels no more", facts: facts{wanted: true, offloaded: true, found: present, wrong: "no", there: there}, want: plan{remove: true, again: rereadEvery}, told: "no"},
		{reason: "nothing of it means anything there", facts: facts{wanted: true, offloaded: true, found: present, empty: true}, want: plan{again: rereadEvery}},
		{reason: "nothing of it means anything there any more", facts: facts{wanted: true, offloaded: true, found: present, empty: true, there: there}, want: plan{remove: true, again: rereadEvery}},
		{reason: "it waits for another object", facts: facts{wanted: true, offloaded: true, found: present, text: "new", there: said("Waiting", 2)}, want: plan{again: rereadEvery}},
		{reason: "it waits until the one before has ended", facts: facts{wanted: true, offloaded: true, found: present, text: "new", there: said("Pending", 2)}, want: plan{again: rereadEvery}},
		{reason: "refused", facts: facts{wanted: true, offloaded: true, found: present, text: "new", there: said("Refused", 2)}, want: plan{again: rereadEvery}, told: "refuses it"},
		{reason: "the name is taken", facts: facts{wanted: true, offloaded: true, found: present, text: "new", there: said("NameTaken", 2)}, want: plan{again: rereadEvery}, told: "another name"},
		{reason: "it waits for its namespace", facts: facts{wanted: true, offloaded: true, found: present, text: "new", there: said("NamespaceMissing", 2)}, want: plan{again: rereadEvery}},
		{reason: "an answer to something older", facts: facts{wanted: true, offloaded: true, found: present, text: "new", there: said("Refused", 1)}, want: plan{again: rereadEvery}},
	} {
		c.facts.now, c.facts.kind = now, kindSecret
		got := decide(c.facts)
		told := got.told
		got.verdict = verdict{}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(plan{}, verdict{})); diff != "" {
			t.Errorf("%s: %s", c.reason, diff)
		}
		if (told == "") != (c.told == "") || !strings.Contains(told, c.told) || strings.Contains(told, "s3cret") {
			t.Errorf("%s: told %q, want %q", c.reason, told, c.told)
		}
	}
}

func TestJudge(t *testing.T) {
	home := v1alpha1.HomeObject{Kind: "Secret", Namespace: "shop", Name: "registry"}
	good := text(jsonType, jsonKey, login("a"))
	here := place{name: "shop-rome"}
	secret := func(edit ...func(*corev1.Secret)) client.Object {
		s := pullSecret("shop-rome", "registry", "a")
		mark(s, "rome", "shop")
		for _, e := range edit {
			e(s)
		}
		return s
	}
	label := func(key, value string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Labels[key] = value }
	}
	old, same := &v1alpha1.ObjectRef{Namespace: "old", Name: "registry"}, &v1alpha1.ObjectRef{Namespace: "shop-rome", Name: "registry"}
	named := func(name string, h v1alpha1.HomeObject) *v1alpha1.ShadowObject {
		s := shadowOf(h, good)
		s.Name = name
		return s
	}
	slice, endpoints := v1alpha1.HomeObject{Kind: kindSlice, Namespace: "shop", Name: "registry"}, sliceText("10.201.0.7")
	network := content.Rules{Allows: func(netip.Addr) bool { return true }}
	ours := service("shop-rome", "web")
	mark(ours, "rome", "shop")
	for _, c := range []struct {
		reason string
		claim  claim
		does   string
		says   string
		remove *v1alpha1.ObjectRef
	}{
		{"a new one is made", claim{shadow: shadowOf(home, good), place: here}, "create", "Ready", nil},
		{"one that is right stays", claim{shadow: shadowOf(home, good), place: here, have: secret()}, "", "Ready", nil},
		{"new content", claim{shadow: shadowOf(home, text(jsonType, jsonKey, login("b"))), place: here, have: secret()}, "patch", "Ready", nil},
		{"another key by hand", claim{shadow: shadowOf(home, good), place: here, have: secret(func(s *corev1.Secret) { s.Data["x"] = nil })}, "patch", "Ready", nil},
		{"another type takes a new one", claim{shadow: shadowOf(home, text(cfgType, cfgKey, login("a"))), place: here, have: secret()}, "replace", "Ready", nil},
		{"so does one made immutable", claim{shadow: shadowOf(home, good), place: here, have: secret(func(s *corev1.Secret) { s.Immutable = new(true) })}, "replace", "Ready", nil},
		{"what an earlier build made", claim{shadow: shadowOf(home, good), place: here, have: secret(func(s *corev1.Secret) { s.Annotations = nil })}, "patch", "Ready", nil},
		{"somebody's copy of another one of ours", claim{shadow: shadowOf(home, good), place: here, have: secret(func(s *corev1.Secret) { s.Annotations[v1alpha1.AnnotationPlace] = "shop-rome/other" })}, "", "NameTaken", nil},
		{"which is not taken away either", claim{shadow: shadowOf(home, text(tokenType, "a", nil)), place: here, have: secret(func(s *corev1.Secret) { s.Annotations[v1alpha1.AnnotationPlace] = "elsewhere/registry" })}, "", "Refused", nil},
		{"a foreign one", claim{shadow: shadowOf(home, good), place: here, have: pullSecret("shop-rome", "registry", "a")}, "", "NameTaken", nil},
		{"another tenant's", claim{shadow: shadowOf(home, good), place: here, have: secret(label(v1alpha1.LabelTenant, "oslo"))}, "", "NameTaken", nil},
		{"of another namespace at home", claim{shadow: shadowOf(home, good), place: here, have: secret(label(v1alpha1.LabelHomeNamespace, "x"))}, "", "NameTaken", nil},
		{"the manager's own", claim{shadow: shadowOf(home, good), place: here, have: secret(label(v1alpha1.LabelManagedBy, component))}, "", "NameTaken", nil},
		{"not mapped yet", claim{shadow: shadowOf(home, good), past: old}, "", "NamespaceMissing", nil},
		{"not mapped any more", claim{shadow: shadowOf(home, good), place: place{over: true}, past: old}, "", "NamespaceMissing", old},
		{"mapped to another", claim{shadow: shadowOf(home, good), place: here, past: old}, "create", "Ready", old},
		{"refused content is taken away", claim{shadow: shadowOf(home, text(tokenType, "a", nil)), place: here, have: secret()}, "", "Refused", same},
		{"but nothing foreign", claim{shadow: shadowOf(home, text(tokenType, "a", nil)), place: here, have: pullSecret("shop-rome", "registry", "a")}, "", "Refused", nil},
		{"another kind", claim{shadow: shadowOf(v1alpha1.HomeObject{Kind: "ClusterRoleBinding", Namespace: "shop", Name: "x"}, good), place: here}, "", "Refused", nil},
		{"a name of its own choice", claim{shadow: named("secret-"+strings.Repeat("0", 40), home), place: here}, "", "Refused", nil},
		{"a slice without a network", claim{shadow: shadowOf(slice, endpoints), place: here, service: ours}, "", "Refused", nil},
		{"a slice", claim{shadow: shadowOf(slice, endpoints), place: here, service: ours, rules: network}, "create", "Ready", nil},
		{"its Service has not come", claim{shadow: shadowOf(slice, endpoints), place: here, rules: network}, "", "Waiting", nil},
		{"its Service is somebody else's", claim{shadow: shadowOf(slice, endpoints), place: here, service: service("shop-rome", "web"), rules: network}, "", "Refused", nil},
		{"the cluster's own", claim{shadow: shadowOf(v1alpha1.HomeObject{Kind: "ConfigMap", Namespace: "shop", Name: "kube-root-ca.crt"}, "{}"), place: here}, "", "Refused", nil},
		{"a path", claim{shadow: shadowOf(v1alpha1.HomeObject{Kind: "Secret", Namespace: "shop", Name: "../../kube-system/secrets/x"}, good), place: here}, "", "Refused", nil},
		{"a path as namespace", claim{shadow: shadowOf(v1alpha1.HomeObject{Kind: "Secret", Namespace: "../x", Name: "x"}, good), place: here}, "", "Refused", nil},
		{"no name", claim{shadow: shadowOf(v1alpha1.HomeObject{Kind: "Secret", Namespace: "shop"}, good), place: here}, "", "Refused", nil},
	} {
		c.claim.tenant = "rome"
		c.claim.kind, _ = kindOf(c.claim.shadow.Spec.Home.Kind)
		got := judge(c.claim)
		does := map[[3]bool]string{{}: "", {true, false, false}: "create", {true, true, false}: "replace", {false, false, true}: "patch"}[[3]bool{got.create, got.replace, got.patch}]
		if does != c.does || got.reason != c.says || (got.want != nil) != (c.says == "Ready") || (got.message == "") != (c.says == "Ready") {
			t.Errorf("%s: %q %q %q, want %q %q", c.reason, does, got.reason, got.message, c.does, c.says)
		}
		if diff := cmp.Diff(c.remove, got.remove); diff != "" {
			t.Errorf("%s: removes %s", c.reason, diff)
		}
		if got.want != nil && (len(got.want.GetAnnotations()) != 1 || got.want.GetAnnotations()[v1alpha1.AnnotationPlace] != "shop-rome/registry" || got.want.GetNamespace() != "shop-rome" || got.want.GetName() != "registry") {
			t.Errorf("%s: makes %s/%s", c.reason, got.want.GetNamespace(), got.want.GetName())
		}
	}
}

func TestErrorsAreWordless(t *testing.T) {
	for _, err := range []error{invalid("s3cret"), errors.New("json: cannot read s3cret"), plain("x", invalid("s3cret"))} {
		if got := plain("doing", err); strings.Contains(got.Error(), "s3cret") || !strings.HasPrefix(got.Error(), "doing: ") {
			t.Error(got)
		}
	}
	if got := plain("doing", plain("inner", invalid("x"))).Error(); !strings.Contains(got, "422") {
		t.Errorf("the code is lost: %s", got)
	}
	if plain("doing", nil) != nil {
		t.Error("an error of nothing")
	}
}
