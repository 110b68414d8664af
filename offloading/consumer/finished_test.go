package consumer

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestFinished holds that an end is told once and stays, that a disruption comes home
// as one, and that nothing is made again.
func TestFinished(t *testing.T) {
	for _, c := range []struct {
		reason string
		status *corev1.PodStatus
	}{
		{"succeeded", ended(corev1.PodSucceeded, 0)},
		{"failed", ended(corev1.PodFailed, 3)},
		{"disrupted", func() *corev1.PodStatus {
			s := ended(corev1.PodFailed, 137)
			s.Conditions = append(s.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "NodeLost"})
			return s
		}()},
	} {
		t.Run(c.reason, func(t *testing.T) {
			w := newWorld(t)
			p := w.runs("job", never1)
			w.tell(p, c.status, accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
			w.reconcile(p)
			got := w.now(p)
			if got.Status.Phase != c.status.Phase || (condition(got, corev1.DisruptionTarget).Status == corev1.ConditionTrue) != (c.reason == "disrupted") {
				t.Errorf("home says %+v", got.Status)
			}
			writes := w.total
			w.tell(p, running(), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
			w.reconcile(p)
			w.drop(w.shadow(p))
			w.release(string(p.UID))
			w.reconcile(p)
			if got := w.now(p); w.total != writes || got.Status.Phase != c.status.Phase {
				t.Errorf("after the end: %d writes more, %s", w.total-writes, got.Status.Phase)
			}
			w.delete(p) // finished pods go at once
			if w.reconcile(p); w.now(p) != nil || w.made != 1 {
				t.Errorf("it stays, or %d were made", w.made)
			}
		})
	}
}

// TestFinishedWhileDeleted holds that a deleted pod of a Job, which the Job's finalizer
// keeps, gets a terminal phase.
func TestFinishedWhileDeleted(t *testing.T) {
	keep := func(p *corev1.Pod) { never1(p); p.Finalizers = []string{"batch.kubernetes.io/job-tracking"} }
	for _, c := range []struct {
		reason string
		status *corev1.PodStatus
		want   corev1.PodPhase
	}{
		{"it finished in time", ended(corev1.PodSucceeded, 0), corev1.PodSucceeded},
		{"it was ended", ended(corev1.PodFailed, 143), corev1.PodFailed},
		{"nobody said", nil, corev1.PodFailed},
	} {
		for _, forgetful := range []bool{false, true} {
			w := newWorld(t)
			p := w.runs("job", keep)
			w.delete(p)
			w.reconcile(p)
			if c.status != nil {
				w.tell(p, c.status, accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
				w.reconcile(p)
			}
			w.release(string(p.UID))
			if forgetful {
				w.restart()
			}
			w.reconcile(p)
			got := w.now(p)
			if got == nil || got.Status.Phase != c.want || *got.DeletionGracePeriodSeconds != 0 {
				t.Errorf("%s (restarted: %v): %+v", c.reason, forgetful, got.Status.Phase)
			}
			writes := w.total
			if w.reconcile(p); w.total != writes {
				t.Errorf("%s: %d writes while a finalizer keeps it", c.reason, w.total-writes)
			}
			got.Finalizers = nil
			_ = w.admin.Update(ctx, got)
		}
	}
}
