package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ShadowPod is a pod of a consumer that a provider runs: what is wanted, and what
// became of it. The consumer writes it in its tenant namespace, named by the UID of
// the home pod; the provider makes the real pod in the namespace mapped for it and
// keeps it alive on its own. Deleting it ends the pod; it is gone when the pod is.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=pelago
// +kubebuilder:printcolumn:name=Home Namespace,type=string,JSONPath=`.spec.home.namespace`
// +kubebuilder:printcolumn:name=Home Name,type=string,JSONPath=`.spec.home.name`
// +kubebuilder:printcolumn:name=Namespace,type=string,JSONPath=`.status.ref.namespace`
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$')",message="metadata.name: must be the UID of the home pod"
type ShadowPod struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec drops what it does not know: unknown fields would have no bound.
	// +structType=atomic
	Spec ShadowPodSpec `json:"spec"`
	// +kubebuilder:pruning:PreserveUnknownFields
	// +structType=atomic
	Status ShadowPodStatus `json:"status,omitempty"`
}

// ShadowPodSpec is the pod that is wanted.
type ShadowPodSpec struct {
	// Home is the pod's place at the consumer. It cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.home cannot be changed"
	Home HomePod `json:"home"`

	// Request is the name of the ResourceRequest whose virtual node the pod is bound to.
	//
	// +kubebuilder:validation:MaxLength=50
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Request string `json:"request"`

	// Labels of the pod.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 63)",message="spec.labels: keys of at most 317 and values of at most 63 characters"
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the pod, 32 KiB of them at most.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=128
	// +kubebuilder:validation:XValidation:rule="self.all(k, size(k) <= 317 && size(self[k]) <= 16384)",message="spec.annotations: keys of at most 317 and values of at most 16384 characters"
	// +kubebuilder:validation:XValidation:rule="self.map(k, size(k) + size(self[k])).sum() <= 32768",message="spec.annotations: at most 32768 characters of keys and values together"
	Annotations map[string]string `json:"annotations,omitempty"`

	// Pod is the PodSpec of core/v1 in JSON, a text so that its length has a bound
	// without any process having to look at it: 64 KiB.
	//
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=65536
	// +kubebuilder:validation:XValidation:rule="size(bytes(self)) <= 65536",message="spec.pod: at most 65536 bytes"
	Pod string `json:"pod"`

	// GracePeriodSeconds, if set, is how long the pod gets to end when the ShadowPod is
	// deleted, instead of its own terminationGracePeriodSeconds.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`
}

// HomePod names a pod of a consumer. Its UID is the ShadowPod's name.
type HomePod struct {
	// Namespace of the pod at home.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
	// Name of the pod at home, and at the provider.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

// ShadowPodStatus is what became of the pod.
type ShadowPodStatus struct {
	// ObservedGeneration is the generation of the spec that the pod has.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Ref is the pod that runs, or ran last.
	// +optional
	Ref *PodRef `json:"ref,omitempty"`

	// Phase of the pod. Once it is Succeeded or Failed, no pod is ever made again.
	// +optional
	Phase string `json:"phase,omitempty"`

	// Pod is the PodStatus of core/v1 in JSON, without addresses and what else is the
	// provider's own.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=131072
	Pod string `json:"pod,omitempty"`

	// AddressVersion is a resourceVersion of the pod in ref in which it had the addresses that Pod
	// tells, 0 if it tells none: the consumer waits for gateways to know it.
	// +optional
	AddressVersion int64 `json:"addressVersion,omitempty"`

	// Replaced counts how often the provider lost the pod and made it again.
	// +optional
	Replaced int32 `json:"replaced,omitempty"`

	// Warnings are the last ones about the pod in ref while it was not ready, one per
	// reason, oldest first.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=5
	Warnings []PodWarning `json:"warnings,omitempty"`

	// Conditions: Accepted, the provider runs the pod, or its reason why not.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// PodRef names one pod for good.
type PodRef struct {
	// Namespace of the pod.
	Namespace string `json:"namespace"`
	// Name of the pod.
	Name string `json:"name"`
	// UID of the pod.
	UID string `json:"uid"`
}

// PodWarning is what a provider's cluster warns of about a pod.
type PodWarning struct {
	// Reason, a word, as of the event.
	//
	// +kubebuilder:validation:MaxLength=128
	Reason string `json:"reason"`
	// Message of the event.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Message string `json:"message,omitempty"`
	// Count is how often it happened.
	//
	// +optional
	Count int32 `json:"count,omitempty"`
	// LastTime is when it last happened.
	LastTime metav1.Time `json:"lastTime"`
}

// ShadowPodList is a list of ShadowPod.
//
// +kubebuilder:object:root=true
type ShadowPodList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ShadowPod `json:"items"`
}
