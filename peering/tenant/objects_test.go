package tenant

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestObjectBoundsAreChecked(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(t *v1alpha1.Tenant) { t.Spec.Objects = map[string]int32{"Secrets!": 1} })
	b.settle()
	b.want(v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonInvalid)
	b.patch(`{"spec":{"objects":{"Secrets!":null,"secrets":2}}}`)
	b.settle()
	b.want(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	hard := get(b, b.space(), quotaName, &corev1.ResourceQuota{}).Spec.Hard
	if got := hard["count/secrets"]; got.Value() != 2 {
		t.Errorf("secrets are bounded to %s, want 2", got.String())
	}
}

// TestObjectBoundsAreCapped holds that a bound beyond what consumers read ends nothing: the most
// that they read holds, and the condition says so until it is corrected.
func TestObjectBoundsAreCapped(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(t *v1alpha1.Tenant) {
		t.Spec.Objects = map[string]int32{"shadowobjects.pelago.dev": v1alpha1.MaxShadowObjects + 1}
	})
	b.settle()
	b.want(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	b.want(v1alpha1.ConditionNamespaceReady, metav1.ConditionTrue, v1alpha1.ReasonCapped)
	hard := get(b, b.space(), quotaName, &corev1.ResourceQuota{}).Spec.Hard
	if got := hard["count/shadowobjects.pelago.dev"]; got.Value() != v1alpha1.MaxShadowObjects {
		t.Errorf("%s ShadowObjects are allowed", got.String())
	}
	b.patch(`{"spec":{"objects":{"shadowobjects.pelago.dev":2000}}}`)
	b.settle()
	b.want(v1alpha1.ConditionNamespaceReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}
