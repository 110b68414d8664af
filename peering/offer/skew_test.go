package offer

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestLaterFields: what a later build has written into requests and offers stays when this
// one changes them, on either side.
func TestLaterFields(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{Resources: list(cpu, "2", memory, "20"), Acceptance: v1alpha1.AcceptanceManual})
	w.settle("default")
	copied := w.offer(w.here("default"))
	copied.Status.Conditions = append(copied.Status.Conditions, metav1.Condition{Type: "FromLater", Status: metav1.ConditionTrue, Reason: "Later", LastTransitionTime: metav1.Now()})
	if err := w.client.Status().Update(ctx, copied); err != nil {
		t.Fatal(err)
	}
	kept := []func(){
		kubetest.Later(t, w.client, w.request(w.here("default"))), kubetest.Later(t, w.client, w.request(w.there("default"))),
		kubetest.Later(t, w.client, w.offer(w.there("default"))),
		kubetest.Later(t, w.client, copied, "status"), // its spec is the provider's word for word
	}
	w.patch(&v1alpha1.ResourceRequest{}, w.here("default"), `{"spec":{"resources":{"cpu":"3","memory":null},"decision":"Accepted"}}`)
	w.settle("default")
	w.expect("accepted", w.here("default"), isTaken, yesTaken)
	for _, check := range kept {
		check()
	}
	if meta.FindStatusCondition(w.offer(w.here("default")).Status.Conditions, "FromLater") == nil {
		t.Error("the copy of the offer has lost a condition that a later build has written")
	}
}

// TestCopiesAreRead: the API server is asked for the copy of an offer only if somebody
// else has written it, or this process has not yet.
func TestCopiesAreRead(t *testing.T) {
	w := newWorld(t)
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{Resources: list(cpu, "2", memory, "20"), Acceptance: v1alpha1.AcceptanceManual})
	w.settle("default")
	if w.reads == 0 {
		t.Error("the first copy is written without a look")
	}
	w.reads = 0
	w.patch(&v1alpha1.ResourceRequest{}, w.here("default"), `{"spec":{"resources":{"cpu":"3"}}}`)
	w.settle("default")
	if got := w.offer(w.here("default")).Spec.Resources[cpu]; w.reads != 0 || got.String() != "3" {
		t.Errorf("%d reads until the copy offers %s", w.reads, got.String())
	}
	w.patch(&v1alpha1.ResourceOffer{}, w.here("default"), `{"metadata":{"labels":{"by":"somebody"}}}`)
	w.settle("default")
	if w.reads == 0 {
		t.Error("what somebody else wrote is not looked at")
	}
}
