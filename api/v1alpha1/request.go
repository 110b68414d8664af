package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceList is amounts by resource name: cpu, memory, pods, ephemeral-storage or
// any extended resource.
//
// +kubebuilder:validation:MaxProperties=64
type ResourceList map[string]resource.Quantity

// ResourceRequest asks a provider for resources. People write it in the namespace
// pelago-peering-NAME of the consumer; Pelago keeps a copy in the tenant namespace of
// the provider. Deleting it withdraws it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=pelago
// +kubebuilder:printcolumn:name=CPU,type=string,JSONPath=`.spec.resources.cpu`
// +kubebuilder:printcolumn:name=Memory,type=string,JSONPath=`.spec.resources.memory`
// +kubebuilder:printcolumn:name=Accepted,type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 50",message="metadata.name: at most 50 characters"
type ResourceRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:pruning:PreserveUnknownFields
	Spec ResourceRequestSpec `json:"spec,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Status ResourceRequestStatus `json:"status,omitempty"`
}

// ResourceRequestSpec is what is asked for.
type ResourceRequestSpec struct {
	// Resources asked for; all that is free if empty. A resource that is not named is
	// not limited: {cpu: 4} asks for 4 CPUs and any memory.
	//
	// Quantities are short: parsers of quantities take for ever on an exponent of many
	// digits, and what reads this may be another cluster's controller.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(n, type(self[n]) == int ? self[n] >= 0 : size(self[n]) <= 24 && !self[n].startsWith('-') && (['n','u','m','k','M','G','T','P','E','i'].exists(s, self[n].endsWith(s)) || self[n] == '0' || double(self[n]) >= 0.000000001 && double(self[n]) < 1e19))",message="spec.resources: amounts are short quantities of 0 or more, like 4, 250m or 8Gi"
	Resources ResourceList `json:"resources,omitempty"`

	// Acceptance: Automatic, an offer with resources in it is accepted; Manual, it waits
	// for Decision.
	//
	// +optional
	// +kubebuilder:default=Automatic
	Acceptance Acceptance `json:"acceptance,omitempty"`

	// Decision on the offer: Accepted or Declined. At the consumer it is the owner's,
	// for Acceptance Manual or to decline; in the provider's copy it is what holds.
	//
	// +optional
	Decision Decision `json:"decision,omitempty"`
}

// Acceptance is who accepts an offer.
// +kubebuilder:validation:Enum=Automatic;Manual
type Acceptance string

// The ways of accepting an offer.
const (
	AcceptanceAutomatic Acceptance = "Automatic"
	AcceptanceManual    Acceptance = "Manual"
)

// Decision is what a consumer says to an offer.
// +kubebuilder:validation:Enum=Accepted;Declined
type Decision string

// The decisions on an offer; none is the empty string.
const (
	DecisionAccepted Decision = "Accepted"
	DecisionDeclined Decision = "Declined"
)

// ResourceRequestStatus is what became of a request.
type ResourceRequestStatus struct {
	// ObservedGeneration is the generation the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Node is the virtual node, at the consumer.
	// +optional
	Node string `json:"node,omitempty"`

	// Conditions: Offered, Accepted; at the consumer also Sent, NodeReady, and Ready.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ResourceRequestList is a list of ResourceRequest.
//
// +kubebuilder:object:root=true
type ResourceRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceRequest `json:"items"`
}
