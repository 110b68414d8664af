package content

import (
	"fmt"
	"regexp"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// budgetContent is what travels of a PodDisruptionBudget.
type budgetContent struct {
	MinAvailable               *intstr.IntOrString                      `json:"minAvailable,omitempty"`
	MaxUnavailable             *intstr.IntOrString                      `json:"maxUnavailable,omitempty"`
	Selector                   *metav1.LabelSelector                    `json:"selector,omitempty"`
	UnhealthyPodEvictionPolicy *policyv1.UnhealthyPodEvictionPolicyType `json:"unhealthyPodEvictionPolicy,omitempty"`
}

var percentage = regexp.MustCompile(`^(100|[0-9]{1,2})%$`)

var budgets = form[*policyv1.PodDisruptionBudget, budgetContent]{
	name:  "PodDisruptionBudget",
	empty: func() *policyv1.PodDisruptionBudget { return &policyv1.PodDisruptionBudget{} },
	list:  func() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} },
	pack: func(b *policyv1.PodDisruptionBudget) (budgetContent, string) {
		return budgetContent{b.Spec.MinAvailable, b.Spec.MaxUnavailable, b.Spec.Selector, b.Spec.UnhealthyPodEvictionPolicy}, ""
	},
	check: func(c *budgetContent) string {
		for _, amount := range []*intstr.IntOrString{c.MinAvailable, c.MaxUnavailable} {
			if amount != nil && (amount.Type == intstr.Int && amount.IntVal < 0 || amount.Type == intstr.String && !percentage.MatchString(amount.StrVal)) {
				return "minAvailable and maxUnavailable are whole numbers from 0, or shares from 0% to 100%"
			}
		}
		if n := terms(c.Selector); n > maxSelector {
			return fmt.Sprintf("a selector of %d terms, at most %d", n, maxSelector)
		}
		return ""
	},
	unpack: func(c *budgetContent, rules Rules, b *policyv1.PodDisruptionBudget) string {
		if rules.NoBudgets {
			return "the provider takes no PodDisruptionBudgets of this tenant, for they hold up its drains"
		}
		b.Spec = policyv1.PodDisruptionBudgetSpec{MinAvailable: c.MinAvailable, MaxUnavailable: c.MaxUnavailable, Selector: c.Selector,
			UnhealthyPodEvictionPolicy: c.UnhealthyPodEvictionPolicy}
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
