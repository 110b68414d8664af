package v1alpha1

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func ruleOf(kind string, policy ReflectionPolicy, labels ...string) ReflectionRule {
	r := ReflectionRule{Kind: kind, Policy: policy}
	if len(labels) == 2 {
		r.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{labels[0]: labels[1]}}
	}
	return r
}

func TestReflected(t *testing.T) {
	deny, may, all := ReflectDeny, ReflectReferred, ReflectAll
	for _, c := range []struct {
		reason     string
		rules      []ReflectionRule
		annotation string
		policy     ReflectionPolicy
		want       string
	}{
		{"no rules", nil, "", "", ""},
		{"kept by hand", nil, "false", deny, "annotation"},
		{"kept by hand in spite of a rule", []ReflectionRule{ruleOf("Secret", may)}, "false", deny, "annotation"},
		{"denied", []ReflectionRule{ruleOf("Secret", deny)}, "", deny, "spec.reflection[0]"},
		{"another kind is", []ReflectionRule{ruleOf("ConfigMap", deny)}, "", "", ""},
		{"denied by its label", []ReflectionRule{ruleOf("ConfigMap", deny), ruleOf("Secret", deny, "app", "web")}, "", deny, "spec.reflection[1]"},
		{"others are, by their label", []ReflectionRule{ruleOf("Secret", deny, "app", "db")}, "", "", ""},
		{"the first one decides", []ReflectionRule{ruleOf("Secret", may, "app", "web"), ruleOf("Secret", deny)}, "", may, ""},
		{"in doubt it stays", []ReflectionRule{ruleOf("Secret", may, "app", "?")}, "", deny, "cannot be read"},
		{"sent without a pod", []ReflectionRule{ruleOf("Secret", all)}, "", all, ""},
		{"sent by its label", []ReflectionRule{ruleOf("Secret", all, "app", "web")}, "", all, ""},
		{"another one is", []ReflectionRule{ruleOf("Secret", all, "app", "db")}, "", "", ""},
		{"another kind is sent", []ReflectionRule{ruleOf("ConfigMap", all)}, "", "", ""},
		{"Deny before All", []ReflectionRule{ruleOf("Secret", deny, "app", "web"), ruleOf("Secret", all)}, "", deny, "spec.reflection[0]"},
		{"All before Deny", []ReflectionRule{ruleOf("Secret", all, "app", "web"), ruleOf("Secret", deny)}, "", all, ""},
		{"Referred before All", []ReflectionRule{ruleOf("Secret", may), ruleOf("Secret", all)}, "", may, ""},
		{"kept by hand in spite of All", []ReflectionRule{ruleOf("Secret", all)}, "false", deny, "annotation"},
		{"sent by hand", nil, "true", all, ""},
		{"sent by hand, and not only with a pod", []ReflectionRule{ruleOf("Secret", may)}, "true", all, ""},
		{"denied in spite of the hand", []ReflectionRule{ruleOf("Secret", deny)}, "true", deny, "spec.reflection[0]"},
		{"in doubt in spite of the hand", []ReflectionRule{ruleOf("Secret", may, "app", "?")}, "true", deny, "cannot be read"},
		{"nothing that is known", nil, "yes", "", ""},
		{"in doubt before All", []ReflectionRule{ruleOf("Secret", may, "app", "?"), ruleOf("Secret", all)}, "", deny, "cannot be read"},
	} {
		s := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}, Annotations: map[string]string{AnnotationReflect: c.annotation}}}
		policy, got := Reflected(c.rules, "Secret", s)
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) || policy != c.policy {
			t.Errorf("%s: %s %q, want %s %q", c.reason, policy, got, c.policy, c.want)
		}
	}
}
