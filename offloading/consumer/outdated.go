package consumer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
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
// its owner has to make another one. Pods of Jobs that would count that are told so. Its
// requests are pods.
type outdated struct {
	client  client.Client
	live    client.Reader
	choices chooser
	clock   clock.PassiveClock
	events  events.EventRecorder
	meter   *meter

	mu   sync.Mutex
	last map[types.UID]time.Time        // when a pod of an owner was ended, as long as that matters
	left map[client.ObjectKey]types.UID // pods of Jobs that stay, which they have been told
}

func newOutdated(c client.Client, live client.Reader, choices chooser, clock clock.PassiveClock, e events.EventRecorder, m *meter) *outdated {
	return &outdated{
		client: c, live: live, choices: choices, clock: clock, events: e, meter: m,
		last: map[types.UID]time.Time{}, left: map[client.ObjectKey]types.UID{},
	}
}

// Reconcile looks at one pod.
func (o *outdated) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pod := &corev1.Pod{}
	if err := o.client.Get(ctx, key.NamespacedName, pod); apierrors.IsNotFound(err) {
		o.forget(key.NamespacedName)
		return ctrl.Result{}, nil
	} else if err != nil || !unscheduled(pod) || o.stays(pod) {
		return ctrl.Result{}, err
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
	if end && ofJob(pod) {
		if end, err = o.free(ctx, pod, choice); err != nil {
			return ctrl.Result{}, err
		}
	}
	switch {
	case !end:
		return after(again), nil
	case !o.take(owner, now): // another pod of it is being ended
		return after(remadeEvery), nil
	}
	err = o.end(ctx, pod)
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

// end ends a pod if it is as it was read. One of a Job is evicted: by its condition
// DisruptionTarget the Job knows why.
func (o *outdated) end(ctx context.Context, pod *corev1.Pod) error {
	as := metav1.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion}
	if !ofJob(pod) {
		return o.client.Delete(ctx, pod.DeepCopy(), client.Preconditions(as))
	}
	eviction := &policyv1.Eviction{ObjectMeta: objectMeta(client.ObjectKeyFromObject(pod)), DeleteOptions: &metav1.DeleteOptions{Preconditions: &as}}
	return o.client.SubResource("eviction").Create(ctx, pod.DeepCopy(), eviction)
}

// free says whether the Job of a pod lets it go without counting that as a failure. If
// not, the pod is told so, and left: a Job's podFailurePolicy cannot be changed.
func (o *outdated) free(ctx context.Context, pod *corev1.Pod, now admission.Choice) (bool, error) {
	job, err := jobOf(ctx, o.live, pod)
	if err != nil || job == nil || !job.DeletionTimestamp.IsZero() {
		return false, err
	}
	if forgives(job, pod) {
		return true, nil
	}
	o.mu.Lock()
	o.left[client.ObjectKeyFromObject(pod)] = pod.UID
	o.mu.Unlock()
	over := slices.DeleteFunc(admission.Excluded(pod), func(node string) bool { return slices.Contains(now.Avoided, node) })
	others := ""
	if len(over) > 1 {
		others = fmt.Sprintf(" and %d others", len(over)-1)
	}
	o.events.Eventf(pod, nil, corev1.EventTypeWarning, "OffloadingOutdated", "Offload",
		"this pod avoids node %s%s, which one made now would not, and its Job would count its end as a failure: delete it if that may be, or make the Job again with a podFailurePolicy that ignores DisruptionTarget",
		over[0], others)
	return false, nil
}

// stays says whether a pod was left.
func (o *outdated) stays(pod *corev1.Pod) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.left[client.ObjectKeyFromObject(pod)] == pod.UID
}

// forget is for a pod that is gone.
func (o *outdated) forget(key client.ObjectKey) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.left, key)
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
func unscheduled(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || !pod.DeletionTimestamp.IsZero() || terminal(pod.Status.Phase) ||
		pod.Annotations[admission.AnnotationAvoids] == "" {
		return false
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind == "DaemonSet" {
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
