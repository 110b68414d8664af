package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Peering is a remote cluster as this cluster knows it: what this cluster uses of
// it (consume), what it gives to it (provide), or both. Its name is the remote
// cluster's name here.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=pelago
// +kubebuilder:printcolumn:name=Roles,type=string,JSONPath=`.status.roles`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=Version,type=string,JSONPath=`.status.remote.version`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40",message="metadata.name: at most 40 characters; choose a shorter name"
type Peering struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   PeeringSpec   `json:"spec,omitempty"`
	Status PeeringStatus `json:"status,omitempty"`
}

// PeeringSpec says what is wanted with a remote cluster.
//
// +kubebuilder:validation:XValidation:rule="has(self.consume) || has(self.provide)",message="spec: set consume, provide or both"
// +kubebuilder:validation:XValidation:rule="!has(self.reachability) || has(self.consume)",message="spec.reachability: is for a provider, and needs spec.consume; for a consumer set spec.reachability of its Tenant"
// +kubebuilder:validation:XValidation:rule="!has(self.directPaths) || !self.directPaths || has(self.consume)",message="spec.directPaths: is for a provider, and needs spec.consume; for a consumer set spec.directPaths of its Tenant"
type PeeringSpec struct {
	// ClusterID is the remote cluster's id. It cannot be changed.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.clusterID cannot be changed; unpeer and peer again"
	ClusterID string `json:"clusterID"`

	// Consume: this cluster uses resources of the remote one, its provider.
	// +optional
	Consume *Consume `json:"consume,omitempty"`

	// Provide: this cluster gives resources to the remote one, its consumer. Written
	// by Pelago when the consumer has used an invitation.
	// +optional
	Provide *Provide `json:"provide,omitempty"`

	// Reachability says which pods of this cluster, as a consumer, may reach the provider's
	// and be reached from there: none; offloaded-only, those that run there and those behind
	// Services of their namespaces, also if absent; full, all. The provider's owner says the
	// same of his pods, and the narrower holds.
	//
	// +optional
	Reachability Reachability `json:"reachability,omitempty"`

	// DirectPaths lets pods of this cluster that run at this provider and at another one talk to
	// each other by a tunnel between the two, while they talk much; by way of this cluster if absent
	// or false. Both Peerings have to say it here, and both providers in their Tenants: each learns
	// where the other one's nodes are.
	//
	// +optional
	DirectPaths bool `json:"directPaths,omitempty"`

	// Translate sees the provider's ranges by other prefixes even if nothing else has them here. Without it
	// they may be seen as they are, and then no third cluster is told of them: it would learn which
	// addresses the provider has. A change moves what was seen as it is, and ends its connections.
	//
	// +optional
	Translate bool `json:"translate,omitempty"`
}

// Consume says how to reach the provider and what to ask of it.
//
// +kubebuilder:validation:XValidation:rule="has(self.authURL) != has(self.inBand)",message="spec.consume: set authURL, where the provider accepts invitations, or inBand, the tunnel by which it does"
// +kubebuilder:validation:XValidation:rule="!has(self.inBand) || !has(self.serverURL) && !has(self.proxyURL)",message="spec.consume.inBand: the provider is reached through the tunnel; leave out serverURL and proxyURL"
// +kubebuilder:validation:XValidation:rule="has(self.inBand) == has(oldSelf.inBand)",message="spec.consume.inBand cannot be set or taken away; unpeer and peer again"
type Consume struct {
	// AuthURL is where the provider accepts invitations, https://HOST:PORT.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^https://[^/?#@ ]+$`
	// +kubebuilder:validation:MaxLength=300
	AuthURL string `json:"authURL,omitempty"`

	// CASHA256 pins the certificate authority of AuthURL: the SHA-256 of its
	// certificate in DER, in hexadecimal.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{64}$`
	CASHA256 string `json:"caSHA256"`

	// TokenSecret names the Secret in Pelago's namespace whose key "token" holds the
	// invitation's token. Pelago deletes the Secret once the invitation was accepted.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	TokenSecret string `json:"tokenSecret,omitempty"`

	// ServerURL overrides the address of the provider's API server, https://HOST:PORT.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^https://[^?#@ ]+$`
	// +kubebuilder:validation:MaxLength=300
	ServerURL string `json:"serverURL,omitempty"`

	// ProxyURL is an HTTP proxy through which the provider is reached, http(s)://HOST:PORT.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^https?://[^/?#@ ]+$`
	// +kubebuilder:validation:MaxLength=300
	ProxyURL string `json:"proxyURL,omitempty"`

	// InBand has the provider reached through a tunnel from the first word on, in place of
	// authURL: nothing else of it need be in reach. Needs the network on both sides.
	//
	// +optional
	InBand *InBand `json:"inBand,omitempty"`

	// DefaultRequest makes a ResourceRequest named "default" for this peering. True if absent.
	//
	// +optional
	// +kubebuilder:default=true
	DefaultRequest *bool `json:"defaultRequest,omitempty"`

	// Resources is what the default request asks for; everything the provider has
	// free if absent.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(n, type(self[n]) == int ? self[n] >= 0 : size(self[n]) <= 24 && !self[n].startsWith('-') && (['n','u','m','k','M','G','T','P','E','i'].exists(s, self[n].endsWith(s)) || self[n] == '0' || double(self[n]) >= 0.000000001 && double(self[n]) < 1e19))",message="resources: amounts are short quantities of 0 or more, like 4, 250m or 8Gi"
	Resources ResourceList `json:"resources,omitempty"`
}

// InBand is the tunnel of an invitation, by which a consumer introduces itself. Once there is
// one of the peering itself, that takes its place.
type InBand struct {
	// PublicKey is the provider's key of that tunnel: a key of WireGuard in base64.
	//
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw480]=$`
	PublicKey string `json:"publicKey"`

	// Endpoints are HOST:PORT, over UDP, where the provider's gateway may be.
	//
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=261
	// +kubebuilder:validation:items:Pattern=`^[^\s/?#@]+:[0-9]{1,5}$`
	Endpoints []string `json:"endpoints"`
}

// Provide names the tenant that stands for the consumer.
type Provide struct {
	// Tenant is the name of the Tenant.
	// +kubebuilder:validation:MaxLength=40
	Tenant string `json:"tenant"`
}

// PeeringStatus is what became of a peering.
type PeeringStatus struct {
	// ObservedGeneration is the generation the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Roles of this cluster: Consumer, Provider or both.
	// +optional
	// +listType=set
	Roles []Role `json:"roles,omitempty"`

	// Remote is what the remote cluster says of itself.
	// +optional
	Remote *ClusterInfo `json:"remote,omitempty"`

	// Features both sides know, sorted.
	// +optional
	// +listType=set
	Features []string `json:"features,omitempty"`

	// ServerURL is the address of the provider's API server in use.
	// +optional
	ServerURL string `json:"serverURL,omitempty"`

	// TenantNamespace is the namespace at the provider that is this consumer's.
	// +optional
	TenantNamespace string `json:"tenantNamespace,omitempty"`

	// Credential is with what this consumer proves who it is.
	// +optional
	Credential *CredentialStatus `json:"credential,omitempty"`

	// LastContact is when the remote cluster was last heard of, to the minute.
	// +optional
	LastContact *metav1.Time `json:"lastContact,omitempty"`

	// Conditions: Ready, IdentityReady, Reachable, Compatible, ResourcesAccepted on a
	// consumer; Ready, TenantReady, ConsumerAlive on a provider; NetworkReady, which is no
	// part of Ready, where both sides have their network on.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Role is what a cluster is in a peering.
// +kubebuilder:validation:Enum=Consumer;Provider
type Role string

// The roles.
const (
	RoleConsumer Role = "Consumer"
	RoleProvider Role = "Provider"
)

// CredentialType is a way of proving an identity to the provider's API server.
// +kubebuilder:validation:Enum=Certificate;ServiceAccountToken
type CredentialType string

// The types of credentials.
const (
	// CredentialCertificate is a client certificate of the provider's API server.
	CredentialCertificate CredentialType = "Certificate"
	// CredentialToken is a bound token of a service account, for providers whose API
	// server signs no client certificates.
	CredentialToken CredentialType = "ServiceAccountToken"
)

// CredentialStatus says how long a credential lives. The credential itself is in a Secret.
type CredentialStatus struct {
	// Type of the credential.
	Type CredentialType `json:"type"`
	// NotBefore and NotAfter bound its life.
	NotBefore metav1.Time `json:"notBefore"`
	// NotAfter is when it stops to be accepted.
	NotAfter metav1.Time `json:"notAfter"`
	// RenewAfter is when it is replaced: at two thirds of its life.
	RenewAfter metav1.Time `json:"renewAfter"`
}

// PeeringList is a list of Peering.
//
// +kubebuilder:object:root=true
type PeeringList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Peering `json:"items"`
}
