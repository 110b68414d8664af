package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceMap says which namespaces of a consumer are offloaded to one provider, and
// what they are called there. Pelago writes it: the consumer in its namespace
// pelago-peering-NAME what it wants, and a copy of that in its tenant namespace at the
// provider, which answers in the status. Its name is namespaces.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=pelago
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'namespaces'",message="metadata.name: must be namespaces"
type NamespaceMap struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:pruning:PreserveUnknownFields
	Spec NamespaceMapSpec `json:"spec,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Status NamespaceMapStatus `json:"status,omitempty"`
}

// NamespaceMapSpec is what the consumer wants.
type NamespaceMapSpec struct {
	// Namespaces to offload, by their name at home.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=512
	// +kubebuilder:validation:XValidation:rule="self.all(n, size(n) <= 63 && n.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'))",message="spec.namespaces: names are those of namespaces"
	Namespaces map[string]NamespaceMapping `json:"namespaces,omitempty"`
}

// NamespaceMapping is how one namespace is to be offloaded.
//
// +kubebuilder:validation:XValidation:rule="has(self.originNamespace) == has(self.originOwner)",message="originNamespace and originOwner: both or none"
type NamespaceMapping struct {
	// Strategy names the remote namespace: DefaultName, after home's and the tenant;
	// EnforceSameName; SelectedName, RemoteName.
	Strategy NamespaceMappingStrategy `json:"strategy"`
	// RemoteName for the strategy SelectedName.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	RemoteName string `json:"remoteName,omitempty"`
	// Onward is Allow if the provider may run the namespace's pods at providers of its own.
	//
	// +optional
	Onward OnwardPolicy `json:"onward,omitempty"`
	// OriginNamespace is what the namespace is called where its pods were made, if that is not
	// this consumer's cluster: by that name they know it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	OriginNamespace string `json:"originNamespace,omitempty"`
	// OriginOwner is a word for whose pods these are, the same for all namespaces of one
	// tenant of the consumer's. It says nothing else of him.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{16}$`
	OriginOwner string `json:"originOwner,omitempty"`
	// Domain is what the cluster where the namespace's pods were made is called in its own DNS:
	// names that end in it are names of that cluster, also at the provider. cluster.local if empty.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Domain string `json:"domain,omitempty"`
}

// MappingPhase is how a namespace is at the provider.
type MappingPhase string

// The phases of a namespace at a provider.
const (
	// MappingReady: it is there and the consumer's pods may run in it.
	MappingReady MappingPhase = "Ready"
	// MappingPending: it is being made, or waits for an earlier one to end.
	MappingPending MappingPhase = "Pending"
	// MappingRefused: the provider does not make it; the reason says why.
	MappingRefused MappingPhase = "Refused"
	// MappingTerminating: it is not wanted any more and is being removed.
	MappingTerminating MappingPhase = "Terminating"
	// MappingKept: it is not wanted any more, and is kept because it holds volumes.
	MappingKept MappingPhase = "Kept"
)

// MappedNamespace is what became of a namespace at the provider.
type MappedNamespace struct {
	// Name at the provider; empty if refused.
	// +optional
	Name string `json:"name,omitempty"`
	// Phase is Ready, Pending, Refused, Terminating or Kept.
	Phase MappingPhase `json:"phase"`
	// Reason of the phase, a word of conditions.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says more, and what to do.
	// +optional
	Message string `json:"message,omitempty"`
	// Onward is true while pods of it may run at a provider of this provider's.
	// +optional
	Onward bool `json:"onward,omitempty"`
}

// NamespaceMapStatus is what the provider has made of it.
type NamespaceMapStatus struct {
	// ObservedGeneration is the generation the status speaks of; at the consumer that of
	// the provider's copy.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Namespaces by their name at home.
	// +optional
	Namespaces map[string]MappedNamespace `json:"namespaces,omitempty"`

	// Refusals remembers, at the consumer only, whose pods the provider sent home, so
	// that their next pods go elsewhere for a while. At most 256, the latest first.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Refusals []Refusal `json:"refusals,omitempty"`

	// Objects are, at the consumer only, those of its namespaces that the provider refuses, has
	// otherwise than home, or gives addresses. At most 64, in this order.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Objects []ReflectedObject `json:"objects,omitempty"`
	// MoreObjects counts those that there was no room for in Objects.
	//
	// +optional
	MoreObjects int32 `json:"moreObjects,omitempty"`

	// Conditions: Ready.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ReflectedObject is what is to be said at home of an object at a provider.
type ReflectedObject struct {
	// Kind of the object.
	Kind string `json:"kind"`
	// Namespace of the object at home.
	Namespace string `json:"namespace"`
	// Name of the object.
	Name string `json:"name"`
	// Refused says that it is not there.
	//
	// +optional
	Refused bool `json:"refused,omitempty"`
	// Reason is a word of the condition Accepted of ShadowObjects; empty if it is there as it
	// is wanted.
	//
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message says more, and what to do.
	//
	// +optional
	Message string `json:"message,omitempty"`
	// Addresses are those by which the provider says that others reach it there, of a load
	// balancer or an Ingress: IP addresses and names of hosts.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[0-9a-z:][0-9a-z.:-]*$`
	Addresses []string `json:"addresses,omitempty"`
}

// Refusal is that pods of one owner were sent home.
type Refusal struct {
	// Owner is the UID of the pods' controller, such as a ReplicaSet; of a tenant's pod
	// TENANT/UID, with its UID at home.
	Owner string `json:"owner"`
	// Node is the virtual node its pods avoid.
	Node string `json:"node"`
	// Count is how often in a row it happened.
	Count int32 `json:"count"`
	// Until when its pods avoid the node.
	Until metav1.Time `json:"until"`
	// Reason is the word of the last refusal.
	// +optional
	Reason string `json:"reason,omitempty"`
}

// NamespaceMapList is a list of NamespaceMap.
//
// +kubebuilder:object:root=true
type NamespaceMapList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceMap `json:"items"`
}
