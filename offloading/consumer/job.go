package consumer

import (
	"context"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ofJob says whether a pod is one of a Job, which counts how its pods end.
func ofJob(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "Job"
}

// jobOf is the Job of a pod, nil if it is gone.
func jobOf(ctx context.Context, live client.Reader, pod *corev1.Pod) (*batchv1.Job, error) {
	owner, job := metav1.GetControllerOf(pod), &batchv1.Job{}
	if err := live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, job); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the job: %w", err)
	}
	if job.UID != owner.UID {
		return nil, nil
	}
	return job, nil
}

// forgives says whether a Job does not count the eviction of a pod whose containers have
// not run as a failure. Only a podFailurePolicy does that, by the first of its rules that
// matches, which may be one for another condition of the pod. Without it every pod that
// is deleted before it succeeded is counted, at once or, where podReplacementPolicy is
// Failed, when it is marked as failed; and so is one that is deleted and not evicted.
func forgives(job *batchv1.Job, pod *corev1.Pod) bool {
	policy := job.Spec.PodFailurePolicy
	if policy == nil {
		return false
	}
	for _, rule := range policy.Rules {
		if slices.ContainsFunc(rule.OnPodConditions, func(c batchv1.PodFailurePolicyOnPodConditionsPattern) bool { return evictedIs(pod, c) }) {
			return rule.Action == batchv1.PodFailurePolicyActionIgnore
		}
	}
	return false
}

// evictedIs says whether a condition of the pod, once it is evicted, is as in a rule.
func evictedIs(pod *corev1.Pod, want batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
	if want.Status == "" {
		want.Status = corev1.ConditionTrue
	}
	if want.Type == corev1.DisruptionTarget {
		return want.Status == corev1.ConditionTrue
	}
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == want.Type && c.Status == want.Status
	})
}
