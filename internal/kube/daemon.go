package kube

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Tolerates says whether a pod names the taint of virtual nodes, as admission lets pods of offloaded
// namespaces do. The manager's cache keeps only such pods whole.
func Tolerates(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == v1alpha1.TaintVirtualNode })
}

// Idle says whether a pod is of a DaemonSet that has nothing to do on virtual nodes: it is not carried to a
// provider, and is answered where it is. Admission leaves pods of DaemonSets as they are, so that only one whose
// template names the taint may go, where its namespace is offloaded.
func Idle(pod *corev1.Pod, offloaded bool) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet" && owner.APIVersion == "apps/v1" && !(offloaded && Tolerates(pod))
}

// Endless says whether a pod cannot end by itself: each of its containers is started again for ever, and none of those
// that run before them may fail for good.
func Endless(pod *corev1.Pod) bool {
	if pod.Spec.RestartPolicy != corev1.RestartPolicyAlways || pod.Spec.ActiveDeadlineSeconds != nil {
		return false
	}
	own := func(c corev1.Container) bool { return c.RestartPolicy != nil || len(c.RestartPolicyRules) > 0 }
	return !slices.ContainsFunc(pod.Spec.Containers, own) && !slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool {
		return own(c) && (c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways) // which sidecars have
	})
}
