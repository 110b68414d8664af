package chain

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestStateOf(t *testing.T) {
	said := func(kind corev1.PodConditionType, status corev1.ConditionStatus, reason string, since time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: kind, Status: status, Reason: reason, LastTransitionTime: at(since)})
		}
	}
	made := func(since time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.CreationTimestamp = at(since) }
	}
	gone := func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: now} }
	unbound := func(p *corev1.Pod) { p.Spec.NodeName = "" }
	ready := said(corev1.PodReady, corev1.ConditionTrue, "", -time.Hour)
	cases := []struct {
		reason  string
		phase   corev1.PodPhase
		changes []func(*corev1.Pod)
		want    PodState
		why     string
		lasting bool
	}{
		{"it is well", corev1.PodRunning, []func(*corev1.Pod){ready}, PodRunning, "", true},
		{"it has ended", corev1.PodSucceeded, nil, "", "", true},
		{"it is ending", corev1.PodRunning, []func(*corev1.Pod){ready, gone}, PodEnding, "", true},
		{"a DaemonSet's has nothing to do", corev1.PodRunning, []func(*corev1.Pod){said(corev1.PodReady, corev1.ConditionTrue, v1alpha1.ReasonVirtualNode, 0)}, "", "", true},
		{"nobody has said anything", "", []func(*corev1.Pod){made(-time.Second)}, PodPending, "", false},
		{"it starts", corev1.PodPending, []func(*corev1.Pod){made(-time.Second)}, PodPending, "", false},
		{"it does not start", corev1.PodPending, []func(*corev1.Pod){made(-time.Hour)}, PodPending, "", true},
		{"it was not ready a moment ago", corev1.PodRunning, []func(*corev1.Pod){made(-time.Hour), said(corev1.PodReady, corev1.ConditionFalse, "", -time.Second)}, PodNotReady, "", false},
		{"it is not ready for long", corev1.PodRunning, []func(*corev1.Pod){said(corev1.PodReady, corev1.ConditionFalse, "", -time.Hour)}, PodNotReady, "", true},
		{"nobody knows how it is", corev1.PodUnknown, nil, PodNotReady, "", true},
		{"it is refused just now", corev1.PodPending, []func(*corev1.Pod){made(-time.Second), said(corev1.PodReady, corev1.ConditionFalse, v1alpha1.ReasonNotAdmitted, 0)}, PodRefused, v1alpha1.ReasonNotAdmitted, true},
		{"it is refused, by its status", corev1.PodPending, []func(*corev1.Pod){func(p *corev1.Pod) { p.Status.Reason = v1alpha1.ReasonDrained }}, PodRefused, v1alpha1.ReasonDrained, true},
		{"a refusal that goes away", corev1.PodPending, []func(*corev1.Pod){made(-time.Second), said(corev1.PodReady, corev1.ConditionFalse, v1alpha1.ReasonNamespaceMissing, 0)}, PodRefused, v1alpha1.ReasonNamespaceMissing, false},
		{"a refusal that should have gone away", corev1.PodPending, []func(*corev1.Pod){said(corev1.PodReady, corev1.ConditionFalse, v1alpha1.ReasonNamespaceMissing, 0)}, PodRefused, v1alpha1.ReasonNamespaceMissing, true},
		{"it waits for a node since a moment", corev1.PodPending, []func(*corev1.Pod){unbound, said(corev1.PodScheduled, corev1.ConditionFalse, "", -time.Second)}, PodPending, "", false},
		{"it waits for a node", corev1.PodPending, []func(*corev1.Pod){unbound, said(corev1.PodScheduled, corev1.ConditionFalse, "SchedulerError", -time.Hour)}, PodPending, "", true},
		{"it is gated", corev1.PodPending, []func(*corev1.Pod){unbound, func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}} }}, PodPending, "", false},
	}
	for _, c := range cases {
		p := plain()
		p.Spec.NodeName, p.CreationTimestamp, p.Status.Phase = "milan", at(-2*time.Hour), c.phase
		for _, change := range c.changes {
			change(p)
		}
		if state, why := StateOf(p); state != c.want || why != c.why {
			t.Errorf("%s: %s %s, want %s %s", c.reason, state, why, c.want, c.why)
		}
		if got := Lasting(p, now); got != c.lasting {
			t.Errorf("%s: lasting %t", c.reason, got)
		}
	}
}
