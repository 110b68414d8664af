package vnode

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=pods/status,verbs=patch

// answer is said in the conditions of a pod of a DaemonSet on a virtual node.
const answer = "a virtual node runs no pods of DaemonSets; to have none made, give the DaemonSet an affinity to nodes without the label " +
	v1alpha1.LabelType + "=" + v1alpha1.TypeVirtualNode

// daemons answers pods of DaemonSets that are bound to virtual nodes: they are Running
// and Ready, without containers or an address, so that a rollout completes though nothing
// runs. Those that may go to the provider are another room's; see kube.Idle.
type daemons struct {
	client client.Client
	clock  clock.PassiveClock
}

// Reconcile answers one pod.
func (d *daemons) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	pod := &corev1.Pod{}
	if err := d.client.Get(ctx, key.NamespacedName, pod); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !needsAnswer(pod) {
		return ctrl.Result{}, nil
	}
	node := &corev1.Node{}
	err := d.client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node)
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{RequeueAfter: nameRetry}, nil // gone, or not seen yet
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading the pod's node: %w", err)
	case !isVirtual(node):
		return ctrl.Result{}, nil
	}
	if offloaded, err := isOffloaded(ctx, d.client, pod.Namespace); err != nil || !kube.Idle(pod, offloaded) {
		return ctrl.Result{}, err
	}
	if !pod.DeletionTimestamp.IsZero() {
		err := d.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return ctrl.Result{}, fmt.Errorf("ending a pod of a DaemonSet: %w", err)
		}
		return ctrl.Result{}, nil
	}
	before := pod.DeepCopy()
	run(pod, metav1.NewTime(d.clock.Now()))
	if err := d.client.Status().Patch(ctx, pod, client.StrategicMergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("answering a pod of a DaemonSet: %w", err)
	}
	return ctrl.Result{}, nil
}

// needsAnswer says whether a pod, if it is on a virtual node, lacks its answer.
func needsAnswer(obj client.Object) bool {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.NodeName == "" || !ofDaemonSet(pod) {
		return false
	}
	if !pod.DeletionTimestamp.IsZero() {
		return pod.DeletionGracePeriodSeconds == nil || *pod.DeletionGracePeriodSeconds > 0
	}
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return !ended && !answered(pod)
}

func answered(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && c.Reason == v1alpha1.ReasonVirtualNode
	})
}

// run writes the answer into a pod in memory.
func run(pod *corev1.Pod, now metav1.Time) {
	s := &pod.Status
	s.Phase, s.Reason, s.Message = corev1.PodRunning, v1alpha1.ReasonVirtualNode, answer
	if s.StartTime == nil {
		s.StartTime = &now
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, Reason: v1alpha1.ReasonVirtualNode, Message: answer, LastTransitionTime: now}
		i := slices.IndexFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == kind })
		if i < 0 {
			s.Conditions = append(s.Conditions, c)
			continue
		}
		if s.Conditions[i].Status == c.Status {
			c.LastTransitionTime = s.Conditions[i].LastTransitionTime
		}
		s.Conditions[i] = c
	}
}

// isOffloaded says whether the pods of a namespace may run elsewhere.
func isOffloaded(ctx context.Context, c client.Reader, namespace string) (bool, error) {
	n := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: namespace}, n); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading a namespace: %w", err)
	}
	return n.Labels[v1alpha1.LabelOffloaded] == "true", nil
}
