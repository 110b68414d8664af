package consumer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/admission"
)

// remadeEvery is how old a pod is at least, and how long ago its owner's last one was
// ended, before it is ended for another one to be made.
const remadeEvery = 30 * time.Second

// outdated ends pods that nothing has bound yet and that admission keeps off a node
// which a pod made now would not be kept off: the terms of a pod cannot be loosened, so
// its owner has to make another one. Its requests are pods.
type outdated struct {
	client  client.Client
	choices chooser
	clock   clock.PassiveClock
	meter   *meter

	mu   sync.Mutex
	last map[types.UID]time.Time // when a pod of an owner was ended, as long as that matters
}

func newOutdated(c client.Client, choices chooser, clock clock.PassiveClock, m *meter) *outdated {
	return &outdated{client: c, choices: choices, clock: clock, meter: m, last: map[types.UID]time.Time{}}
}

// Reconcile looks at one pod.
func (o *outdated) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pod := &corev1.Pod{}
	if err := o.client.Get(ctx, key.NamespacedName, pod); err != nil || !unscheduled(pod) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	namespace := &corev1.Namespace{}
	if err := o.client.Get(ctx, client.ObjectKey{Name: pod.Namespace}, namespace); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if namespace.Labels[v1alpha1.LabelOffloaded] != "true" || !namespace.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	choice, err := o.choices.Of(ctx, pod)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("finding out where the pod could go: %w", err)
	}
	owner, now := metav1.GetControllerOf(pod).UID, o.clock.Now()
	end, again := remake(pod, choice, o.lastOf(owner), now)
	switch {
	case !end:
		return after(again), nil
	case !o.take(owner, now): // another pod of it is being ended
		return after(remadeEvery), nil
	}
	err = o.client.Delete(ctx, pod.DeepCopy(), client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	switch {
	case err == nil:
		o.meter.remade.Inc()
		ctrl.LoggerFrom(ctx).V(1).Info("unscheduled pod ended, to be made again under the terms of now", "excluded", admission.Excluded(pod))
		return ctrl.Result{}, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return after(remadeEvery), nil // it changed a moment ago: it may be bound
	}
	return ctrl.Result{}, fmt.Errorf("ending the unscheduled pod: %w", err)
}

// remake says whether to end an unscheduled pod so that it is made again, and if not,
// when to look again.
func remake(pod *corev1.Pod, now admission.Choice, last, at time.Time) (end bool, again time.Duration) {
	needed := func(node string) bool { return slices.Contains(now.Avoided, node) }
	excluded := admission.Excluded(pod)
	if len(excluded) == 0 {
		return false, 0
	}
	if !slices.ContainsFunc(excluded, func(node string) bool { return !needed(node) }) {
		return false, until(now.Until, at)
	}
	early := pod.CreationTimestamp.Time
	if last.After(early) {
		early = last
	}
	if wait := early.Add(remadeEvery).Sub(at); wait > 0 {
		return false, min(wait, remadeEvery) // the API server's clock may be ahead
	}
	return true, 0
}

// unscheduled says whether a pod found no node, and has an owner that makes another one.
// Jobs would count its end as a failure.
func unscheduled(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || !pod.DeletionTimestamp.IsZero() || terminal(pod.Status.Phase) ||
		pod.Annotations[admission.AnnotationAvoids] == "" {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind == "Job" || owner.Kind == "DaemonSet" {
		return false
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
	})
}

func (o *outdated) lastOf(owner types.UID) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last[owner]
}

// take lets one pod of an owner be ended. A new process knows of none before: its first
// is not older than remadeEvery.
func (o *outdated) take(owner types.UID, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	over := func(_ types.UID, at time.Time) bool { return now.Sub(at) >= remadeEvery }
	maps.DeleteFunc(o.last, over)
	if _, recent := o.last[owner]; recent {
		return false
	}
	o.last[owner] = now
	return true
}

// until is how long it is until then: 0 if there is no such moment.
func until(then, now time.Time) time.Duration {
	if then.IsZero() {
		return 0
	}
	return max(then.Sub(now), time.Second)
}
