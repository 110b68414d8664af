package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NetworkPath is a direct way between two providers of one consumer, for pods of that consumer
// that talk to each other: a tunnel between the providers, in place of the way through the
// consumer's own gateways. There is one object of a name at each of the two, in the tenant namespace
// of the consumer, whose manager writes both specs and carries each side's status into the other's
// spec. So neither provider reads anything of the other, nor learns its name.
//
// Where the consumer lies between a tenant of its own and a provider, there may be one between these
// two. The tenant's end is in spec.consumerPaths of the NetworkConfig that is the consumer's word
// to it, as a tenant lets nobody write in its cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=pelago
// +kubebuilder:printcolumn:name=Prefixes,type=string,JSONPath=`.spec.prefixes`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=Used,type=date,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name=Until,type=string,JSONPath=`.spec.until`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[0-9a-f]{16}$')",message="metadata.name: must be 16 digits of 0 to 9 and a to f"
type NetworkPath struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec drops what it does not know: unknown fields would have no bound.
	// +structType=atomic
	Spec NetworkPathSpec `json:"spec"`
	// +optional
	Status NetworkPathStatus `json:"status,omitempty"`
}

// Bounds of NetworkPaths.
const (
	// MaxNetworkPaths is the most paths of one tenant at one provider.
	MaxNetworkPaths = 16
	// MaxNetworkPathPrefixes is the most prefixes that one path leads to.
	MaxNetworkPathPrefixes = 16
)

// NetworkPathSpec is what the consumer says of the other end.
type NetworkPathSpec struct {
	// Prefixes are by which the consumer sees the other provider's pods. The path leads to them:
	// they are among spec.pods of the consumer's NetworkConfig here.
	//
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=43
	Prefixes []string `json:"prefixes"`
	// PublicKey is that of the other end's tunnel, status.publicKey there: a key of WireGuard in
	// base64. There is no tunnel without it.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw480]=$`
	PublicKey string `json:"publicKey,omitempty"`
	// Endpoints are HOST:PORT, over UDP, where the other end may be, status.endpoints there. With
	// none it is the one that calls.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=261
	Endpoints []string `json:"endpoints,omitempty"`
	// Until is when the path ends if the consumer says nothing more.
	Until metav1.Time `json:"until"`
	// OriginOwner is whose pods the path is for: those in mapped namespaces of this word, and no
	// others. Without it the path is for those in namespaces that have none.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{16}$`
	OriginOwner string `json:"originOwner,omitempty"`
}

// NetworkPathStatus is what the provider says of its own end.
type NetworkPathStatus struct {
	// ObservedGeneration is the generation that the conditions speak of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// PublicKey is that of this end's tunnel.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=44
	PublicKey string `json:"publicKey,omitempty"`
	// Endpoints are HOST:PORT, over UDP, where this end may be.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=261
	Endpoints []string `json:"endpoints,omitempty"`
	// Port is the UDP port that the tunnel has on the node that is its gateway.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Used is when the path carried something of pods last, to the minute, by the clock of this
	// end; nothing yet if absent.
	// +optional
	Used *metav1.Time `json:"used,omitempty"`
	// Conditions: Ready, True while the tunnel is alive and packets go by it. It is False with the
	// reason NotAllowed if the owner here does not want direct paths, PrefixesRefused if this end
	// has no view of one of the prefixes, PathEnded once until has come, Waiting while one of the ends
	// has said no key yet, and TunnelDown while nothing comes back.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ConsumerPath is a direct path that a provider makes between its consumer and a provider of its
// own: what it says to the consumer.
type ConsumerPath struct {
	// Name is that of the NetworkPath at the other end.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{16}$`
	Name string `json:"name"`
	// NetworkPathSpec is as in a NetworkPath; originOwner means nothing at this end.
	NetworkPathSpec `json:",inline"`
}

// ConsumerPathStatus is what a consumer says of its end of a ConsumerPath.
type ConsumerPathStatus struct {
	// Name is that of the path.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{16}$`
	Name string `json:"name"`
	// NetworkPathStatus is as in a NetworkPath.
	NetworkPathStatus `json:",inline"`
}

// NetworkPathList is a list of NetworkPath.
//
// +kubebuilder:object:root=true
type NetworkPathList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkPath `json:"items"`
}
