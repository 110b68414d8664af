package namespace

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestTwoBudgets holds that a pod with two disruption budgets, which API servers do not evict, is one that has not left
// yet, and no failure.
func TestTwoBudgets(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	for _, name := range []string{"one", "other"} {
		w.create(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: name},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}})
	}
	w.pod("web", w.peer("milan"), map[string]string{"app": "web"})
	if err := w.raw.Delete(ctx, w.offloading()); err != nil {
		t.Fatal(err)
	}
	for look := range 3 { // the first one has what lets pods through end
		if res, err := w.offloader.Reconcile(ctx, offloadingOf(w.home)); err != nil || look > 0 && res.RequeueAfter != pollEvery {
			t.Errorf("looked at again after %v: %v", res.RequeueAfter, err)
		}
		w.clock.Step(pollEvery)
	}
	if get(w, w.home, "web", &corev1.Pod{}).DeletionTimestamp != nil {
		t.Error("the disruption budgets are not honoured")
	}
	w.clock.Step(patience)
	w.settle()
	if get(w, w.home, "web", &corev1.Pod{}).DeletionTimestamp == nil {
		t.Error("disruption budgets hold the end up for ever")
	}
}
