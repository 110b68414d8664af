package admission

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// KeepHomePath is where the API server asks Handler about pods of namespaces that are not
// offloaded and that tolerate the taint of virtual nodes.
const KeepHomePath = "/admission/keep-home"

// keep answers about a pod of a namespace that is not offloaded. It reads nothing and
// refuses nothing: what it cannot judge goes on as it is.
func (h *webhook) keep(_ context.Context, request *admissionv1.AdmissionRequest) (*admissionv1.AdmissionResponse, outcome) {
	unchanged := &admissionv1.AdmissionResponse{Allowed: true}
	if !makesPod(request) {
		return unchanged, outcomeIgnored
	}
	pod, has, err := look(request.Object.Raw)
	if err != nil {
		return unchanged, outcomeIgnored
	}
	t := keepHome(pod)
	response, err := allow(t, has)
	if err != nil {
		return unchanged, outcomeIgnored
	}
	return response, t.outcome
}

// keepHome decides on a pod that may not run elsewhere and that the taint of virtual
// nodes does not keep off them: the scheduler would choose one, the binding would be
// refused, and it could choose the same again for ever. Its terms get one more demand. It
// is idempotent. A pod that can run on virtual nodes only is left as it is: that refusal
// says how to offload its namespace, after which the pod is bound.
func keepHome(pod *corev1.Pod) terms {
	if pod.Spec.NodeName != "" || ofDaemonSet(pod) || !toleratesAll(pod.Spec.Tolerations) || asksForVirtual(pod) {
		return terms{outcome: outcomeIgnored}
	}
	t := terms{outcome: outcomeKept}
	own := required(pod)
	made := combine(own, []side{home()}, nil)
	if own == nil || !sameTerms(own.NodeSelectorTerms, made) {
		t.required = &corev1.NodeSelector{NodeSelectorTerms: made}
	}
	return t
}

// asksForVirtual says whether a pod's own terms rule out all nodes of this cluster.
func asksForVirtual(pod *corev1.Pod) bool {
	if pod.Spec.NodeSelector[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
		return true
	}
	own := required(pod)
	return own != nil && !slices.ContainsFunc(own.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
		return !matchesNothing(t) && !contradicts(t, home())
	})
}
