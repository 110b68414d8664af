package chain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// PodState is how a pod that is bound to a virtual node is.
type PodState string

// The states of pods at other clusters.
const (
	// PodRunning: it runs and is ready.
	PodRunning PodState = "Running"
	// PodNotReady: it runs and is not ready.
	PodNotReady PodState = "NotReady"
	// PodPending: it has not begun to run.
	PodPending PodState = "Pending"
	// PodRefused: the provider does not run it.
	PodRefused PodState = "Refused"
	// PodEnding: it is being deleted.
	PodEnding PodState = "Ending"
)

// StateOf tells how a pod at another cluster is, and of one that is refused the reason. It is
// empty for pods that have ended, and for those of DaemonSets that have nothing to do there.
func StateOf(pod *corev1.Pod) (state PodState, reason string) {
	switch reason, _ := refusal(pod); {
	case ended(pod) || daemonAnswered(pod):
		return "", ""
	case !pod.DeletionTimestamp.IsZero():
		return PodEnding, ""
	case reason != "":
		return PodRefused, reason
	case pod.Status.Phase == "" || pod.Status.Phase == corev1.PodPending:
		return PodPending, ""
	}
	if c := condition(pod, corev1.PodReady); c != nil && c.Status == corev1.ConditionTrue {
		return PodRunning, ""
	}
	return PodNotReady, ""
}

// Lasting reports whether a pod that is not well has been so for longer than a start takes.
// A refusal lasts unless it is one that goes away by itself.
func Lasting(pod *corev1.Pod, now time.Time) bool {
	since := pod.CreationTimestamp.Time
	kind := corev1.PodReady
	switch state, reason := StateOf(pod); {
	case pod.Spec.NodeName == "":
		if len(pod.Spec.SchedulingGates) > 0 {
			return false // somebody means it so
		}
		kind = corev1.PodScheduled
	case state == PodRefused && !yields(reason):
		return true
	case state != PodNotReady:
		kind = ""
	}
	if c := condition(pod, kind); c != nil && c.LastTransitionTime.After(since) {
		since = c.LastTransitionTime.Time
	}
	return now.Sub(since) > startsWithin
}

// refusal is why a provider does not run a pod, empty if nothing says so.
func refusal(pod *corev1.Pod) (reason, message string) {
	if slices.Contains(refusals, pod.Status.Reason) || pod.Status.Reason == v1alpha1.ReasonWaiting {
		reason, message = pod.Status.Reason, pod.Status.Message
	}
	for _, c := range pod.Status.Conditions {
		if c.Status == corev1.ConditionFalse && slices.Contains(refusals, c.Reason) {
			reason, message = c.Reason, c.Message
		}
	}
	return reason, message
}

// yields reports whether a refusal goes away by itself: the earlier pod of that name goes,
// the namespace comes, what the message names is there or works again.
func yields(reason string) bool {
	return reason == v1alpha1.ReasonNamespaceMissing || reason == v1alpha1.ReasonNameTaken || reason == v1alpha1.ReasonWaiting
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// Waits reports whether a pod waits for a node.
func Waits(pod *corev1.Pod) bool {
	return pod.Spec.NodeName == "" && !ended(pod) && pod.DeletionTimestamp.IsZero()
}
