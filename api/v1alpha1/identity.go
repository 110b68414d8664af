package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Identity is the consumer in its tenant namespace at the provider: the consumer
// says who it is and asks for credentials in spec, the provider answers in status.
// The first exchange goes through the provider's authentication endpoint with the
// same spec and status; deleting the object is the consumer's goodbye.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=pelago
// +kubebuilder:printcolumn:name=Consumer,type=string,JSONPath=`.spec.cluster.name`
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=`.spec.cluster.version`
// +kubebuilder:printcolumn:name=Expires,type=string,JSONPath=`.status.notAfter`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'consumer'",message="metadata.name: there is one Identity, named consumer"
type Identity struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:pruning:PreserveUnknownFields
	Spec IdentitySpec `json:"spec"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Status IdentityStatus `json:"status,omitempty"`
}

// IdentitySpec is what a consumer says.
type IdentitySpec struct {
	// Cluster is who the consumer is.
	Cluster ClusterInfo `json:"cluster"`

	// PeeringUID is made by the consumer, anew for each peering. The credential is for
	// this peering only: its user is UserPrefix with this UID.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.peeringUID cannot be changed"
	PeeringUID string `json:"peeringUID"`

	// Request is a certificate signing request in PEM whose subject has this peering's
	// user as its only attribute. A new one asks for a new credential.
	//
	// +kubebuilder:validation:MaxLength=4096
	Request string `json:"request"`
}

// IdentityStatus is what a provider answers.
type IdentityStatus struct {
	// Cluster is who the provider is.
	// +optional
	Cluster *ClusterInfo `json:"cluster,omitempty"`

	// ServerURL is the address of the provider's API server, https://HOST:PORT.
	// +optional
	ServerURL string `json:"serverURL,omitempty"`

	// ServerCA is the certificate authority of ServerURL in PEM; the system's if empty.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	ServerCA string `json:"serverCA,omitempty"`

	// ProxyURL is an HTTP proxy through which consumers reach ServerURL.
	// +optional
	ProxyURL string `json:"proxyURL,omitempty"`

	// TenantNamespace is the consumer's namespace at the provider.
	// +optional
	TenantNamespace string `json:"tenantNamespace,omitempty"`

	// CredentialType says what the credential is.
	// +optional
	CredentialType CredentialType `json:"credentialType,omitempty"`

	// RequestSHA256 is the SHA-256 of the spec.request that was answered, in hexadecimal.
	// +optional
	RequestSHA256 string `json:"requestSHA256,omitempty"`

	// Certificate is the client certificate chain in PEM, when CredentialType is Certificate.
	// A certificate is not secret: without the consumer's key it is good for nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	Certificate string `json:"certificate,omitempty"`

	// NotBefore and NotAfter bound the life of the credential.
	// +optional
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
	// NotAfter is when the credential stops to be accepted.
	// +optional
	NotAfter *metav1.Time `json:"notAfter,omitempty"`

	// Conditions: Issued, and Revoked when the provider has ended the peering.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterInfo is what a cluster says of itself to another one. All of it is a claim.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClusterInfo struct {
	// ID of the cluster, made once at installation.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	ID string `json:"id"`

	// Name its owner gave it.
	//
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Version of Pelago, like v0.3.0.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[!-~]*$`
	Version string `json:"version,omitempty"`

	// KubernetesVersion of its API server, like v1.36.3.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[!-~]*$`
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`

	// Features it knows, sorted. Both sides use only what both know.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	// +kubebuilder:validation:items:Pattern=`^[!-~]*$`
	Features []string `json:"features,omitempty"`
}

// TokenReply is what the authentication endpoint answers beside the status of an
// Identity when CredentialType is ServiceAccountToken: the token is secret, so it is
// never part of an object that is not a Secret.
type TokenReply struct {
	// Token authenticates at the provider's API server.
	Token string `json:"token"`
}

// UserPrefix begins the user name of every consumer's credential; the UID of its
// peering follows.
const UserPrefix = "pelago:peering:"

// IdentityList is a list of Identity.
//
// +kubebuilder:object:root=true
type IdentityList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Identity `json:"items"`
}
