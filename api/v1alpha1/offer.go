package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ResourceOffer is a provider's answer to the ResourceRequest of the same name. The
// provider writes it in the tenant namespace and keeps it true; Pelago keeps a copy
// beside the request at the consumer. Deleting it withdraws it: the provider makes a
// new one if the request still stands and the tenant is not cordoned.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=pelago
// +kubebuilder:printcolumn:name=CPU,type=string,JSONPath=`.spec.resources.cpu`
// +kubebuilder:printcolumn:name=Memory,type=string,JSONPath=`.spec.resources.memory`
// +kubebuilder:printcolumn:name=Pods,type=string,JSONPath=`.spec.resources.pods`
// +kubebuilder:printcolumn:name=Accepted,type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name=Expires,type=string,JSONPath=`.spec.expires`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
type ResourceOffer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:pruning:PreserveUnknownFields
	Spec ResourceOfferSpec `json:"spec"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Status ResourceOfferStatus `json:"status,omitempty"`
}

// ResourceOfferSpec is what a provider has for a consumer now.
type ResourceOfferSpec struct {
	// Resources that are free for the consumer, within what it asked for.
	Resources ResourceList `json:"resources"`

	// Used is what the pods request that run for this request now. It is counted at the
	// same moment as Resources and not part of them: the two together are the size of
	// the virtual node.
	// +optional
	Used ResourceList `json:"used,omitempty"`

	// Shapes are the kinds of nodes behind the offer, with the largest pods that fit.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Shapes []NodeShape `json:"shapes,omitempty"`

	// StorageClasses, IngressClasses and LoadBalancerClasses that the consumer may name.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	StorageClasses []ClassOffer `json:"storageClasses,omitempty"`
	// IngressClasses that the consumer may name.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	IngressClasses []ClassOffer `json:"ingressClasses,omitempty"`
	// LoadBalancerClasses that the consumer may name.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	LoadBalancerClasses []ClassOffer `json:"loadBalancerClasses,omitempty"`

	// Labels of the provider's cluster, as its owner set them.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// Price, if the provider asks one.
	// +optional
	Price *Price `json:"price,omitempty"`

	// SchedulingTimeout is how long a pod may stay unschedulable at the provider before
	// it is sent home. A provider that adds nodes by itself offers more than the 10 s
	// that are usual.
	// +optional
	SchedulingTimeout *metav1.Duration `json:"schedulingTimeout,omitempty"`

	// Expires is when the offer ends unless the provider renews it, which it does in time.
	Expires metav1.Time `json:"expires"`
}

// NodeShape is nodes that are alike in architecture, operating system and extended
// resources, with the largest pods they have room for.
//
// +kubebuilder:pruning:PreserveUnknownFields
type NodeShape struct {
	// Architecture and OperatingSystem as in kubernetes.io/arch and kubernetes.io/os.
	Architecture string `json:"architecture"`
	// OperatingSystem as in kubernetes.io/os.
	OperatingSystem string `json:"operatingSystem"`
	// Nodes counts those of this shape that accept pods.
	Nodes int32 `json:"nodes"`
	// Largest pods that fit on one of these nodes now: each has more of something than
	// all others. A pod fits if one of them is at least as large in every resource.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	Largest []ResourceList `json:"largest,omitempty"`
}

// ClassOffer is a class of storage, ingress or load balancers.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClassOffer struct {
	// Name of the class.
	Name string `json:"name"`
	// Default says that it is the provider's default.
	// +optional
	Default bool `json:"default,omitempty"`
}

// Price is what the offered resources cost. It is stated, never collected, here.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Price struct {
	// Amount in Currency per Period, as a decimal number.
	//
	// +kubebuilder:validation:Pattern=`^[0-9]{1,12}(\.[0-9]{1,6})?$`
	Amount string `json:"amount"`
	// Currency by its ISO 4217 code.
	//
	// +kubebuilder:validation:Pattern=`^[A-Z]{3}$`
	Currency string `json:"currency"`
	// Period: Hour or Month.
	//
	// +kubebuilder:validation:Enum=Hour;Month
	Period string `json:"period"`
}

// ResourceOfferStatus is what became of an offer.
type ResourceOfferStatus struct {
	// ObservedGeneration is the generation the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions: Accepted.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ResourceOfferList is a list of ResourceOffer.
//
// +kubebuilder:object:root=true
type ResourceOfferList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ResourceOffer `json:"items"`
}
