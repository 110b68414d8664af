package consumer

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestForcedAndReused holds that what a pod deleted by force leaves behind is ended,
// and that its successor of the same name is another pod.
func TestForcedAndReused(t *testing.T) {
	w := newWorld(t)
	old := w.runs("web-0")
	if w.look(old); w.shadow(old).DeletionTimestamp != nil {
		t.Fatal("a shadow pod with a home pod was ended")
	}
	w.delete(old, client.GracePeriodSeconds(0))
	fresh := w.pod("web-0")
	w.reconcile(fresh)
	if w.shadow(fresh) == nil || w.shadow(old).DeletionTimestamp != nil {
		t.Fatal("the new pod has no shadow pod, or the old one's was taken for it")
	}
	w.look(old)
	w.look(fresh)
	if w.shadow(old).DeletionTimestamp == nil || w.shadow(fresh).DeletionTimestamp != nil {
		t.Error("not the old one was ended")
	}
	w.release(string(old.UID))
	w.tell(fresh, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(fresh)
	if got := w.now(fresh); got.Status.Phase != corev1.PodRunning {
		t.Errorf("the new pod is %s", got.Status.Phase)
	}
	// A status of the old pod's, decided before it was replaced, is not the new one's.
	stale := *old
	stale.Status = corev1.PodStatus{Phase: corev1.PodPending}
	if err := w.pods.status(ctx, &facts{pod: &stale, now: w.clock.Now()}, plan{status: ended(corev1.PodFailed, 1)}); err != nil {
		t.Fatal(err)
	}
	if got := w.now(fresh); got.Status.Phase != corev1.PodRunning {
		t.Errorf("the old pod's status was written into the new one: %s", got.Status.Phase)
	}
}

// look lets the controller of orphans look at a pod's ShadowPod.
func (w *world) look(p *corev1.Pod) ctrl.Result {
	w.t.Helper()
	res, err := w.orphans.Reconcile(ctx, shadowAt(w.peering, string(p.UID)))
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}
