package hollow

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// deed is what is to be done to a pod.
type deed int

const (
	nothing deed = iota
	run          // it runs from now on
	succeed      // its time has come to end
	fail         // it is being deleted and somebody waits for how it ended
	remove       // it is being deleted and nothing is left of it
)

// String names a deed, for logs and tests.
func (d deed) String() string {
	return [...]string{"nothing", "run", "succeed", "fail", "remove"}[d]
}

// decide tells what is to be done to a pod on a hollow node that was first seen
// at a time, or, if there is nothing now, how long to wait before it is asked
// again; 0 is until the pod changes.
func decide(pod *corev1.Pod, seen, now time.Time, start time.Duration) (deed, time.Duration) {
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	switch {
	case pod.DeletionTimestamp != nil:
		return decideDeletion(pod, ended), 0
	case ended:
		return nothing, 0
	case pod.Status.Phase != corev1.PodRunning:
		return when(run, seen.Add(start), now)
	}
	life, err := time.ParseDuration(pod.Annotations[EndsAfter])
	if err != nil || pod.Status.StartTime == nil {
		return nothing, 0
	}
	return when(succeed, pod.Status.StartTime.Add(life), now)
}

// decideDeletion ends a pod. A finalizer means that somebody, such as the Job
// controller, wants to see how it ended; what is left then is the finalizer's.
func decideDeletion(pod *corev1.Pod, ended bool) deed {
	switch {
	case len(pod.Finalizers) > 0 && !ended:
		return fail
	case pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0:
		return nothing
	}
	return remove
}

// when is a deed whose time has come, or the wait for it.
func when(d deed, due, now time.Time) (deed, time.Duration) {
	if wait := due.Sub(now); wait > 0 {
		return nothing, wait
	}
	return d, 0
}
