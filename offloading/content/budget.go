package content

import (
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// budgetContent is what travels of a PodDisruptionBudget. It has no place for
// maxUnavailable and for shares: they are counted from the controllers of pods, which are
// at home, so that over there they would forbid every eviction.
type budgetContent struct {
	MinAvailable               int32                                    `json:"minAvailable"`
	Selector                   *metav1.LabelSelector                    `json:"selector,omitempty"`
	UnhealthyPodEvictionPolicy *policyv1.UnhealthyPodEvictionPolicyType `json:"unhealthyPodEvictionPolicy,omitempty"`
}

var budgets = form[*policyv1.PodDisruptionBudget, budgetContent]{
	name:  "PodDisruptionBudget",
	empty: func() *policyv1.PodDisruptionBudget { return &policyv1.PodDisruptionBudget{} },
	list:  func() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} },
	pack: func(b *policyv1.PodDisruptionBudget) (budgetContent, string) {
		least := b.Spec.MinAvailable
		if least == nil || least.Type != intstr.Int {
			return budgetContent{}, "only a minAvailable that is a whole number travels: shares and maxUnavailable are counted from the controllers of pods, which are not there"
		}
		return budgetContent{least.IntVal, b.Spec.Selector, b.Spec.UnhealthyPodEvictionPolicy}, ""
	},
	check: func(c *budgetContent) string {
		if c.MinAvailable < 0 {
			return "minAvailable is a whole number from 0"
		}
		if n := terms(c.Selector); n > maxSelector {
			return fmt.Sprintf("a selector of %d terms, at most %d", n, maxSelector)
		}
		return ""
	},
	unpack: func(c *budgetContent, rules Rules, b *policyv1.PodDisruptionBudget) string {
		if !rules.Budgets {
			return "the provider takes no PodDisruptionBudgets of this tenant, for they hold up drains of its nodes; its owner allows them with spec.disruptionBudgets of the Tenant"
		}
		least := intstr.FromInt32(c.MinAvailable)
		b.Spec = policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: c.Selector, UnhealthyPodEvictionPolicy: c.UnhealthyPodEvictionPolicy}
		return ""
	},
	put: func(next, want *policyv1.PodDisruptionBudget) bool {
		next.Spec = want.Spec
		return false
	},
}

// terms counts what a selector has in it.
func terms(s *metav1.LabelSelector) int {
	if s == nil {
		return 0
	}
	n := len(s.MatchLabels)
	for _, e := range s.MatchExpressions {
		n += 1 + len(e.Values)
	}
	return n
}
