package reflection

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func ruleOf(kind string, policy v1alpha1.ReflectionPolicy, labels ...string) v1alpha1.ReflectionRule {
	r := v1alpha1.ReflectionRule{Kind: kind, Policy: policy}
	if len(labels) == 2 {
		r.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{labels[0]: labels[1]}}
	}
	return r
}

func TestRuled(t *testing.T) {
	deny, may, all := v1alpha1.ReflectDeny, v1alpha1.ReflectReferred, v1alpha1.ReflectAll
	for _, c := range []struct {
		reason     string
		rules      []v1alpha1.ReflectionRule
		annotation string
		policy     v1alpha1.ReflectionPolicy
		want       string
	}{
		{"no rules", nil, "", "", ""},
		{"kept by hand", nil, "false", deny, "annotation"},
		{"kept by hand in spite of a rule", []v1alpha1.ReflectionRule{ruleOf("Secret", may)}, "false", deny, "annotation"},
		{"denied", []v1alpha1.ReflectionRule{ruleOf("Secret", deny)}, "", deny, "spec.reflection[0]"},
		{"another kind is", []v1alpha1.ReflectionRule{ruleOf("ConfigMap", deny)}, "", "", ""},
		{"denied by its label", []v1alpha1.ReflectionRule{ruleOf("ConfigMap", deny), ruleOf("Secret", deny, "app", "web")}, "", deny, "spec.reflection[1]"},
		{"others are, by their label", []v1alpha1.ReflectionRule{ruleOf("Secret", deny, "app", "db")}, "", "", ""},
		{"the first one decides", []v1alpha1.ReflectionRule{ruleOf("Secret", may, "app", "web"), ruleOf("Secret", deny)}, "", may, ""},
		{"in doubt it stays", []v1alpha1.ReflectionRule{ruleOf("Secret", may, "app", "?")}, "", deny, "cannot be read"},
		{"sent without a pod", []v1alpha1.ReflectionRule{ruleOf("Secret", all)}, "", all, ""},
		{"sent by its label", []v1alpha1.ReflectionRule{ruleOf("Secret", all, "app", "web")}, "", all, ""},
		{"another one is", []v1alpha1.ReflectionRule{ruleOf("Secret", all, "app", "db")}, "", "", ""},
		{"another kind is sent", []v1alpha1.ReflectionRule{ruleOf("ConfigMap", all)}, "", "", ""},
		{"Deny before All", []v1alpha1.ReflectionRule{ruleOf("Secret", deny, "app", "web"), ruleOf("Secret", all)}, "", deny, "spec.reflection[0]"},
		{"All before Deny", []v1alpha1.ReflectionRule{ruleOf("Secret", all, "app", "web"), ruleOf("Secret", deny)}, "", all, ""},
		{"Referred before All", []v1alpha1.ReflectionRule{ruleOf("Secret", may), ruleOf("Secret", all)}, "", may, ""},
		{"kept by hand in spite of All", []v1alpha1.ReflectionRule{ruleOf("Secret", all)}, "false", deny, "annotation"},
		{"sent by hand", nil, "true", all, ""},
		{"sent by hand, and not only with a pod", []v1alpha1.ReflectionRule{ruleOf("Secret", may)}, "true", all, ""},
		{"denied in spite of the hand", []v1alpha1.ReflectionRule{ruleOf("Secret", deny)}, "true", deny, "spec.reflection[0]"},
		{"in doubt in spite of the hand", []v1alpha1.ReflectionRule{ruleOf("Secret", may, "app", "?")}, "true", deny, "cannot be read"},
		{"nothing that is known", nil, "yes", "", ""},
		{"in doubt before All", []v1alpha1.ReflectionRule{ruleOf("Secret", may, "app", "?"), ruleOf("Secret", all)}, "", deny, "cannot be read"},
	} {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{v1alpha1.AnnotationReflect: c.annotation}}}
		policy, got := ruled(c.rules, "Secret", s)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) || policy != c.policy {
			t.Errorf("%s: %s %q, want %s %q", c.reason, policy, got, c.policy, c.want)
		}
	}
}

// TestKeptHome: what its owner keeps home leaves the provider, and comes back.
func TestKeptHome(t *testing.T) {
	t.Parallel()
	w := newMaps(t)
	m := configMap(w.home, "app", map[string]string{"a": "1"})
	w.create(m)
	w.readsMaps("web", false, "app")
	w.both("app")
	if w.madeMap("app") == nil {
		t.Fatal("not made")
	}
	m.Annotations = map[string]string{v1alpha1.AnnotationReflect: "false"}
	w.update(m)
	w.both("app")
	if w.shadow("app") != nil || w.madeMap("app") != nil || w.told("keeps it home") != 2 {
		t.Error("it stays in spite of its annotation, or that is not said")
	}
	m.Annotations = nil
	w.update(m)
	o := &v1alpha1.NamespaceOffloading{ObjectMeta: objectMeta(w.home, v1alpha1.OffloadingName), Spec: v1alpha1.NamespaceOffloadingSpec{
		Reflection: []v1alpha1.ReflectionRule{ruleOf(kindConfigMap, v1alpha1.ReflectDeny)}}}
	w.create(o)
	w.both("app")
	if w.shadow("app") != nil || w.told("spec.reflection[0]") != 2 {
		t.Error("it travels in spite of a rule, or that is not said")
	}
	o.Spec.Reflection[0].Policy = v1alpha1.ReflectReferred
	w.update(o)
	w.both("app")
	if w.madeMap("app") == nil {
		t.Error("it does not come back")
	}
}
