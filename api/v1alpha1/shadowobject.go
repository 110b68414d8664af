package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ShadowObject is an object of a consumer that its pods need at a provider, such as a
// Secret or a ConfigMap. The consumer writes it in its tenant
// namespace; the provider checks it, makes the real object in the namespace mapped for
// it, and removes that with the ShadowObject. Its name follows from spec.home, so that no
// two speak of one object.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=pelago
// +kubebuilder:printcolumn:name=Kind,type=string,JSONPath=`.spec.home.kind`
// +kubebuilder:printcolumn:name=Home Namespace,type=string,JSONPath=`.spec.home.namespace`
// +kubebuilder:printcolumn:name=Home Name,type=string,JSONPath=`.spec.home.name`
// +kubebuilder:printcolumn:name=Namespace,type=string,JSONPath=`.status.ref.namespace`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].reason`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z][a-z0-9]{0,62}-[0-9a-f]{40}(-[1-9][0-9]?)?$')",message="metadata.name: must be the kind in lower case, a dash and a hash of namespace and name at home, and of a part a dash and its number"
type ShadowObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec drops what it does not know: unknown fields would have no bound.
	// +structType=atomic
	Spec ShadowObjectSpec `json:"spec"`
	// +kubebuilder:pruning:PreserveUnknownFields
	// +structType=atomic
	Status ShadowObjectStatus `json:"status,omitempty"`
}

// ShadowObjectSpec is the object that is wanted.
//
// +kubebuilder:validation:XValidation:rule="!has(self.parts) || self.home.kind in ['Secret', 'ConfigMap'] && !self.home.name.startsWith('pelago-token-')",message="spec.parts: only Secrets and ConfigMaps are in parts, and no tokens"
type ShadowObjectSpec struct {
	// Home is the object's place at the consumer. It cannot be changed.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.home cannot be changed"
	Home HomeObject `json:"home"`

	// Object is what travels of the object, in JSON: its labels, its annotations, and as
	// content what its kind says, of a Secret type and data. It is a text so that its
	// length has a bound without any process having to look at it. Of a longer one it is the
	// beginning, see parts.
	//
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=92160
	Object string `json:"object"`

	// Parts is on how many ShadowObjects the text is, if it is longer than one may have: this
	// one, and as many as it takes of the names ShadowObjectPart(name, 1) and so on, of the same home. These
	// were written before.
	//
	// +optional
	// +kubebuilder:validation:Minimum=2
	// +kubebuilder:validation:Maximum=24
	Parts int32 `json:"parts,omitempty"`

	// Hash of the whole text, if it has parts: the first 32 hexadecimal digits of its SHA-256.
	// While the parts that are there give another one, the object stays as it is.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=32
	Hash string `json:"hash,omitempty"`
}

// HomeObject names an object of a consumer.
type HomeObject struct {
	// Kind of the object, one of those that travel.
	//
	// +kubebuilder:validation:Enum=Secret;ConfigMap;Service;EndpointSlice;Ingress;PodDisruptionBudget;NetworkPolicy
	Kind string `json:"kind"`
	// Namespace of the object at home.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
	// Name of the object at home, and at the provider.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

// ShadowObjectName is the only name that a ShadowObject for an object can have.
func ShadowObjectName(home HomeObject) string {
	sum := sha256.Sum256([]byte(home.Namespace + "/" + home.Name))
	return strings.ToLower(home.Kind) + "-" + hex.EncodeToString(sum[:])[:40]
}

// MaxShadowObjectParts is how many ShadowObjects one text is on, at most.
const MaxShadowObjectParts = 24

// ShadowObjectPart is the name of the part of that number of the ShadowObject of a name, which is
// itself the part 0.
func ShadowObjectPart(name string, number int) string {
	if number == 0 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, number)
}

// ShadowObjectOf is the name of the ShadowObject that one of a name is a part of, and its number: 0
// if that is itself.
func ShadowObjectOf(name string) (whole string, number int) {
	end := strings.LastIndexByte(name, '-')
	if end < 0 || !strings.Contains(name[:end], "-") {
		return name, 0
	}
	number, err := strconv.Atoi(name[end+1:])
	if err != nil || number < 1 {
		return name, 0
	}
	return name[:end], number
}

// ShadowObjectStatus is what became of the object.
type ShadowObjectStatus struct {
	// ObservedGeneration is the generation of the spec that the object has.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Ref is the object that was made.
	// +optional
	Ref *ObjectRef `json:"ref,omitempty"`

	// Addresses are those by which others reach the object, of a load balancer or an Ingress:
	// IP addresses and names of hosts.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[0-9a-z:][0-9a-z.:-]*$`
	Addresses []string `json:"addresses,omitempty"`

	// Conditions: Accepted, the object is there as it is wanted, or the reason why not.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ObjectRef names an object at the provider, of the kind it has at home.
type ObjectRef struct {
	// Namespace of the object.
	Namespace string `json:"namespace"`
	// Name of the object.
	Name string `json:"name"`
}

// ShadowObjectList is a list of ShadowObject.
//
// +kubebuilder:object:root=true
type ShadowObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ShadowObject `json:"items"`
}
