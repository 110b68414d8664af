package consumer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestLife is a pod that starts, runs and is deleted: it costs four writes of ours, and
// no events.
func TestLife(t *testing.T) {
	w := newWorld(t)
	p := w.pod("web")
	w.reconcile(p)
	s := w.shadow(p)
	if s == nil || s.Spec.Home != (v1alpha1.HomePod{Namespace: w.home, Name: "web"}) || s.Spec.Request != v1alpha1.DefaultRequestName || len(s.Finalizers) != 1 {
		t.Fatalf("the shadow pod is %+v", s)
	}
	w.reconcile(p)
	w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(p)
	got := w.now(p)
	if got.Status.Phase != corev1.PodRunning || condition(got, corev1.PodReady).Status != corev1.ConditionTrue || got.Status.HostIP != "192.0.2.7" || got.Status.PodIP != "" {
		t.Errorf("the home pod says %+v", got.Status)
	}
	w.reconcile(p)
	w.delete(p)
	w.reconcile(p)
	if s := w.shadow(p); s.DeletionTimestamp == nil || s.Spec.GracePeriodSeconds != nil {
		t.Errorf("the shadow pod is not being deleted with its own grace: %+v", s.ObjectMeta)
	}
	w.tell(p, ended(corev1.PodFailed, 143), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(p)
	if w.now(p) == nil {
		t.Fatal("the home pod is gone before the provider's")
	}
	w.release(string(p.UID))
	w.reconcile(p)
	if w.now(p) != nil {
		t.Error("the home pod stays")
	}
	w.reconcile(p)
	want := map[string]int{"there create": 1, "here status": 1, "there delete": 1, "here delete": 1}
	if diff := cmp.Diff(want, w.writes); diff != "" {
		t.Errorf("writes (-want +got)\n%s", diff)
	}
	if len(w.recorded.Events) > 0 {
		t.Errorf("an event: %s", <-w.recorded.Events)
	}
	if len(w.pods.ledger.entries) != 0 || len(w.pods.ledger.count) != 0 {
		t.Errorf("it is remembered: %v", w.pods.ledger.entries)
	}
}

// TestGrace holds that a deletion's own grace period reaches the provider, also when it
// gets shorter later.
func TestGrace(t *testing.T) {
	w := newWorld(t)
	p := w.runs("web")
	w.delete(p, client.GracePeriodSeconds(5))
	w.reconcile(p)
	if s := w.shadow(p); s.DeletionTimestamp == nil || s.Spec.GracePeriodSeconds == nil || *s.Spec.GracePeriodSeconds != 5 || s.Spec.Pod == "" {
		t.Errorf("first: %+v", s.Spec.GracePeriodSeconds)
	}
	w.reconcile(p)
	w.delete(p, client.GracePeriodSeconds(1))
	w.reconcile(p)
	if s := w.shadow(p); *s.Spec.GracePeriodSeconds != 1 {
		t.Errorf("then: %d", *s.Spec.GracePeriodSeconds)
	}
	if w.writes["there patch"] != 2 || w.writes["there delete"] != 1 {
		t.Errorf("writes %v", w.writes)
	}
}

// TestWaiting holds that a provider that is not ready for a pod only says so.
func TestWaiting(t *testing.T) {
	w := newWorld(t)
	p := w.pod("web", owned("ReplicaSet"))
	w.reconcile(p)
	w.tell(p, nil, accepted(metav1.ConditionFalse, v1alpha1.ReasonNamespaceMissing, "being made"))
	w.reconcile(p)
	got := w.now(p)
	if got.Status.Reason != v1alpha1.ReasonNamespaceMissing || got.DeletionTimestamp != nil || len(w.refused()) > 0 || len(w.recorded.Events) > 0 {
		t.Errorf("waiting: %+v", got.Status)
	}
	w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(p)
	if got = w.now(p); got.Status.Reason != "" || condition(got, corev1.PodReady).Status != corev1.ConditionTrue {
		t.Errorf("running: %+v", got.Status)
	}
}

func tolerant(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

// TestNotForged holds which pods on a virtual node are not carried.
func TestNotForged(t *testing.T) {
	w := newWorld(t)
	bare := w.pod("everything", tolerant)
	w.reconcile(bare)
	if got := w.now(bare); got.Status.Reason != v1alpha1.ReasonRefused || w.shadow(bare) != nil || !strings.Contains(got.Status.Message, v1alpha1.TaintVirtualNode) {
		t.Errorf("not admitted: %+v", got.Status)
	}
	w.label(false)
	outside, daemon := w.pod("outside"), w.pod("daemon", owned("DaemonSet"))
	w.reconcile(outside)
	w.reconcile(daemon)
	if got := w.now(outside); got.Status.Reason != v1alpha1.ReasonRefused || w.shadow(outside) != nil {
		t.Errorf("not offloaded: %+v", got.Status)
	}
	if got := w.now(daemon); got.Status.Reason != "" || w.shadow(daemon) != nil {
		t.Errorf("a pod of a DaemonSet: %+v", got.Status)
	}
	for _, p := range []*corev1.Pod{bare, outside} {
		w.delete(p)
		w.reconcile(p)
		if w.now(p) != nil {
			t.Errorf("%s stays", p.Name)
		}
	}
	w.label(true)
	p := w.runs("inside")
	w.label(false) // what runs goes on until it is evicted
	w.tell(p, ended(corev1.PodRunning, 1), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.reconcile(p)
	if got := w.now(p); condition(got, corev1.PodReady).Status != corev1.ConditionFalse {
		t.Errorf("its status does not come home: %+v", got.Status)
	}
}
