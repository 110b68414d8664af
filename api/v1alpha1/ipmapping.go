package v1alpha1

import (
	"cmp"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IPMapping gives something outside of the pod network, as a database or a virtual machine, to
// the pods of its namespace, also to those that run at providers. It comes with a Service of
// its name. Pods at providers reach it by an address of this cluster's external range, at the
// ports listed alone.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=pelago
// +kubebuilder:printcolumn:name=Address,type=string,JSONPath=`.spec.address`
// +kubebuilder:printcolumn:name=External,type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name: is that of a Service, too: at most 63 lower-case letters, digits and hyphens, beginning with a letter"
type IPMapping struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   IPMappingSpec   `json:"spec"`
	Status IPMappingStatus `json:"status,omitempty"`
}

// IPMappingSpec says what is mapped.
type IPMappingSpec struct {
	// Address of what is mapped, IPv4 or IPv6. The setting network.mappable has to hold it.
	//
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=45
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="spec.address: is no address of IPv4 or IPv6; write it like 192.0.2.50"
	// +kubebuilder:validation:XValidation:rule="!isIP(self) || ip(self).isGlobalUnicast()",message="spec.address: loopback, link-local, multicast and unspecified addresses cannot be mapped; give that of one host"
	Address string `json:"address"`
	// Ports at which it is reached, by pods at providers no others.
	//
	// +listType=map
	// +listMapKey=port
	// +listMapKey=protocol
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, self.exists_one(b, a.name == b.name))",message="spec.ports: each needs a name of its own"
	Ports []IPMappingPort `json:"ports"`
}

// IPMappingPort is a port of what is mapped.
type IPMappingPort struct {
	// Name of the port, in the Service too.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// Protocol: TCP or UDP.
	//
	// +optional
	// +kubebuilder:default=TCP
	Protocol IPMappingProtocol `json:"protocol,omitempty"`
	// Port number, the same everywhere.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// IPMappingProtocol is what a port speaks.
// +kubebuilder:validation:Enum=TCP;UDP
type IPMappingProtocol string

// The protocols of ports.
const (
	IPMappingTCP IPMappingProtocol = "TCP"
	IPMappingUDP IPMappingProtocol = "UDP"
)

// IPMappingStatus is how a mapping is.
type IPMappingStatus struct {
	// ObservedGeneration is the generation the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Address of this cluster's external range that stands for it, for as long as the
	// mapping is there and the range stays.
	//
	// +optional
	Address string `json:"address,omitempty"`
	// Conditions: Ready.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MaxIPMappings is how many mappings of the namespaces that are offloaded to one provider its pods
// reach, the oldest ones.
const MaxIPMappings = 256

// Right says whether the mapping, as it is now, was found to lead where it may. One that is too many for
// gateways to one provider is right for those to others, and for pods at home.
func (m *IPMapping) Right() bool {
	c := meta.FindStatusCondition(m.Status.Conditions, ConditionReady)
	return c != nil && c.ObservedGeneration == m.Generation && (c.Status == metav1.ConditionTrue || c.Reason == ReasonTooMany)
}

// CompareIPMappings orders mappings, the older ones first.
func CompareIPMappings(a, b *IPMapping) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// IPMappingList is a list of IPMapping.
//
// +kubebuilder:object:root=true
type IPMappingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPMapping `json:"items"`
}
