package consumer

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestLaterFields: what a later build has written into a ShadowPod stays when this one
// changes it, and what one has written into the map stays when a refusal is remembered.
func TestLaterFields(t *testing.T) {
	w := newWorld(t)
	p := w.runs("web")
	kept := kubetest.Later(t, w.admin, w.shadow(p))
	now := w.now(p)
	now.Labels = map[string]string{"color": "red"}
	if err := w.admin.Update(ctx, now); err != nil {
		t.Fatal(err)
	}
	w.clock.Step(time.Minute)
	w.reconcile(p)
	if w.shadow(p).Spec.Labels["color"] != "red" {
		t.Error("the change has not travelled")
	}
	kept()

	m := &v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.PeeringNamespace(w.peering), Name: v1alpha1.NamespaceMapName}}
	kept = kubetest.Later(t, w.admin, m)
	q := w.pod("api", owned("ReplicaSet"))
	w.reconcile(q)
	w.tell(q, nil, accepted(metav1.ConditionFalse, v1alpha1.ReasonUnschedulable, "no node had room"))
	w.reconcile(q)
	if len(w.refused()) != 1 {
		t.Error("the refusal is not remembered")
	}
	kept()
}
