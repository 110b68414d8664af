package content

import (
	"fmt"
	"math"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// budgetContent is what travels of a PodDisruptionBudget. It has no place for
// maxUnavailable and for shares: they are counted from the controllers of pods, which are
// at home, so that over there they would forbid every eviction. Home counts them; see LeastThere.
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
			return budgetContent{}, "only a minAvailable that is a whole number travels as it is; give it one, or maxUnavailable"
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

// Counted says whether a budget can be told to a provider only as a number that is counted at home.
func Counted(b *policyv1.PodDisruptionBudget) bool {
	return b.Spec.MaxUnavailable != nil || b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type != intstr.Int
}

// LeastThere is how many pods of a counted budget have to stay ready at a provider, while so many are ready
// elsewhere: what home's budget wants and has not there. So as many may go as home's own would let go now, and
// what happens at the provider does not change the number. Where home's lets none go, for it is of no
// controller that it can count, none may, however many there are. It is not known until home's
// controller has counted for the budget as it is.
func LeastThere(b *policyv1.PodDisruptionBudget, elsewhere int32) (least int32, known bool) {
	allowed := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition)
	switch {
	case allowed != nil && allowed.Reason == policyv1.SyncFailedReason: // it has counted nothing, of any generation
		return math.MaxInt32, true
	case b.Status.ObservedGeneration != b.Generation:
		return 0, false
	case b.Status.ExpectedPods <= 0:
		return math.MaxInt32, true
	}
	return max(b.Status.DesiredHealthy-elsewhere, 0), true
}

// WithLeast is a budget of which so many pods have to stay ready. Where none have to, those that are not
// ready may go, too, as they may at home while enough others are: Kubernetes would keep them.
func WithLeast(b *policyv1.PodDisruptionBudget, least int32) *policyv1.PodDisruptionBudget {
	b = b.DeepCopy()
	b.Spec.MinAvailable, b.Spec.MaxUnavailable = new(intstr.FromInt32(least)), nil
	if least == 0 {
		b.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	}
	return b
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
