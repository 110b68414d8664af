package vnode

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// evictLimit bounds one eviction, and passLimit those of one look.
	evictLimit = time.Second
	passLimit  = 10 * time.Second
)

// end drains the node and removes it, step by step; whatever has been done already is
// found done.
func (r *reconciler) end(ctx context.Context, f facts, o outcome) (ctrl.Result, error) {
	if f.ours() {
		// One that somebody has deleted, and another one's finalizer keeps, too: since when it is drained counts.
		if err := r.cordon(ctx, f); err != nil {
			return ctrl.Result{}, err
		}
		step, err := r.drain(ctx, f)
		if err != nil {
			return ctrl.Result{}, err
		}
		if step.left > 0 {
			again := soon
			if step.more || f.forced() || len(step.kill) > 0 {
				again = 50 * time.Millisecond
			}
			message := fmt.Sprintf("%s; %d pods are still on the node", o.message, step.left)
			return ctrl.Result{RequeueAfter: again}, r.say(ctx, f, f.name(), metav1.ConditionFalse, o.reason, message)
		}
		if err := r.removeNode(ctx, f); err != nil {
			return ctrl.Result{}, err
		}
	}
	r.gauge.forget(f.peeringName(), f.request.Name)
	if held(f.request) {
		if err := errors.Join(r.removeLease(ctx, f), r.sweep(ctx, f)); err != nil {
			return ctrl.Result{}, err
		}
		if err := r.hold(ctx, f.request, controllerutil.RemoveFinalizer); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
	}
	if !f.request.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, r.say(ctx, f, "", metav1.ConditionFalse, o.reason, o.message)
}

// cordon keeps new pods off, and remembers since when.
func (r *reconciler) cordon(ctx context.Context, f facts) error {
	if draining(f.node) && f.node.Spec.Unschedulable {
		return nil
	}
	before := f.node.DeepCopy()
	if f.node.Annotations == nil {
		f.node.Annotations = map[string]string{}
	}
	f.node.Annotations[annotationDraining] = drainingSince(f.node, f.now).UTC().Format(time.RFC3339)
	f.node.Spec.Unschedulable = true
	if err := r.client.Patch(ctx, f.node, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("cordoning the node: %w", err)
	}
	return nil
}

// drain takes the next step with the pods there are. What is on the node is read live.
func (r *reconciler) drain(ctx context.Context, f facts) (drainStep, error) {
	pods, err := r.podsOn(ctx, f.node.Name)
	if err != nil {
		return drainStep{}, err
	}
	step := drain(drainFacts{now: f.now, since: drainingSince(f.node, f.now), forced: f.forced(), state: f.state, pods: pods})
	var errs []error
	for _, pod := range step.evict {
		if ctx.Err() == nil && r.clock.Since(f.now) > passLimit {
			step.more = true
			break
		}
		errs = append(errs, r.evict(ctx, &pod))
	}
	for _, pod := range step.remove {
		errs = append(errs, r.deletePod(ctx, &pod))
	}
	for _, pod := range step.kill {
		errs = append(errs, r.deletePod(ctx, &pod, client.GracePeriodSeconds(0)))
	}
	return step, errors.Join(errs...)
}

// podsOn lists the pods bound to a node.
func (r *reconciler) podsOn(ctx context.Context, node string) ([]metav1.PartialObjectMetadata, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := r.live.List(ctx, list, client.MatchingFields{"spec.nodeName": node}); err != nil {
		return nil, fmt.Errorf("listing the node's pods: %w", err)
	}
	return list.Items, nil
}

// evict asks for the end of a pod. A disruption budget may say no; it is asked again.
func (r *reconciler) evict(ctx context.Context, found *metav1.PartialObjectMetadata) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: found.Namespace, Name: found.Name}}
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: found.Namespace, Name: found.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &found.UID}},
	}
	// A client waits ten seconds and asks again where a budget has not been looked at yet.
	short, cancel := context.WithTimeout(ctx, evictLimit)
	defer cancel()
	err := r.client.SubResource("eviction").Create(short, pod, eviction)
	switch {
	case err == nil, apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return nil
	case apierrors.IsTooManyRequests(err), apierrors.IsInternalError(err), // budgets, or more than one for a pod
		apierrors.IsForbidden(err): // its namespace is not offloaded; it is deleted in time
		ctrl.LoggerFrom(ctx).V(1).Info("eviction refused for now", "pod", found.Name, "podNamespace", found.Namespace)
		return nil
	}
	return fmt.Errorf("evicting a pod: %w", err)
}

func (r *reconciler) deletePod(ctx context.Context, found *metav1.PartialObjectMetadata, options ...client.DeleteOption) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: found.Namespace, Name: found.Name}}
	err := r.client.Delete(ctx, pod, append(options, client.Preconditions{UID: &found.UID})...)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("deleting a pod: %w", err)
}

func (r *reconciler) removeNode(ctx context.Context, f facts) error {
	err := r.client.Delete(ctx, f.node, client.Preconditions{UID: &f.node.UID})
	if err == nil {
		ctrl.LoggerFrom(ctx).Info("virtual node removed", "node", f.node.Name, "peering", f.peeringName(), "request", f.request.Name)
	} else if !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("deleting the node: %w", err)
	}
	return nil
}

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;create;patch;delete,namespace=kube-node-lease

// removeLease removes the node's Lease, if it is ours.
func (r *reconciler) removeLease(ctx context.Context, f facts) error {
	lease := &coordinationv1.Lease{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: f.name()}, lease)
	if apierrors.IsNotFound(err) || err == nil && lease.Labels[v1alpha1.LabelManagedBy] != component {
		return nil
	}
	if err == nil {
		err = r.client.Delete(ctx, lease, client.Preconditions{UID: &lease.UID})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("removing the node's lease: %w", err)
	}
	return nil
}

// sweep removes the pods of DaemonSets that were on the node, which is gone: nothing of
// them ever ran.
func (r *reconciler) sweep(ctx context.Context, f facts) error {
	if f.node != nil && !f.ours() {
		return nil // somebody else's by now
	}
	pods, err := r.podsOn(ctx, f.name())
	if err != nil {
		return err
	}
	var errs []error
	for i := range pods[:min(len(pods), maxPerPass)] {
		if ofDaemonSet(&pods[i]) {
			errs = append(errs, r.deletePod(ctx, &pods[i], client.GracePeriodSeconds(0)))
		}
	}
	return errors.Join(errs...)
}
