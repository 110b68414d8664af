package content

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestRulesOf: an owner who says nothing lets nothing out, and every word counts.
func TestRulesOf(t *testing.T) {
	if diff := cmp.Diff(Rules{}, RulesOf(v1alpha1.TenantTerms{})); diff != "" {
		t.Error(diff)
	}
	got := RulesOf(v1alpha1.TenantTerms{
		Reflection: &v1alpha1.TenantReflection{Deny: []string{"Secret"}}, Services: &v1alpha1.TenantServices{LoadBalancers: true},
		Ingress: &v1alpha1.TenantIngress{Class: "c", Hosts: []string{"h"}}, DisruptionBudgets: new(true),
	})
	want := Rules{Deny: []string{"Secret"}, LoadBalancers: true, IngressClass: "c", IngressHosts: []string{"h"}, Budgets: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for reason, terms := range map[string]v1alpha1.TenantTerms{"callers": {Callers: &metav1.LabelSelector{}}, "full": {Reachability: v1alpha1.ReachFull}} {
		if !RulesOf(terms).Called {
			t.Errorf("%s: the provider's own pods may call, and no rule says so", reason)
		}
	}
	if r := RulesOf(v1alpha1.TenantTerms{DisruptionBudgets: new(false)}); r.Budgets {
		t.Error("budgets are refused, and taken")
	}
}
