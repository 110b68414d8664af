package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tenant is a consumer as its provider sees it: what it may use here and what it
// does use. Its namespace is pelago-tenant-NAME. Deleting it ends the peering.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=pelago
// +kubebuilder:printcolumn:name=State,type=string,JSONPath=`.spec.state`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=CPU,type=string,JSONPath=`.status.used.cpu`
// +kubebuilder:printcolumn:name=Memory,type=string,JSONPath=`.status.used.memory`
// +kubebuilder:printcolumn:name=Pods,type=string,JSONPath=`.status.used.pods`
// +kubebuilder:printcolumn:name=Last Contact,type=date,JSONPath=`.status.lastContact`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 40",message="metadata.name: at most 40 characters"
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TenantSpec   `json:"spec"`
	Status TenantStatus `json:"status,omitempty"`
}

// Bounds of a tenant namespace: consumers read no more of what is there.
const (
	MaxShadowPods     = 10_000
	MaxShadowObjects  = 2000
	MaxNetworkConfigs = 100
	MaxNetworkRuleSet = 256  // NetworkRules of all namespaces
	MaxTenantObjects  = 2000 // of every other kind
)

// TenantSpec says who the tenant is, and on which terms it is here.
//
// +kubebuilder:validation:XValidation:rule="(has(self.inBand) && self.inBand) == (has(oldSelf.inBand) && oldSelf.inBand)",message="spec.inBand cannot be changed; unpeer and peer again"
type TenantSpec struct {
	// ClusterID is the consumer's id. It cannot be changed.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.clusterID cannot be changed"
	ClusterID string `json:"clusterID"`

	// PeeringUID is the consumer's for this peering: the tenant's user is UserPrefix
	// with it. It cannot be changed.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.peeringUID cannot be changed"
	PeeringUID string `json:"peeringUID"`

	// CredentialType is how the consumer proves its identity here. It cannot be changed.
	//
	// +optional
	// +kubebuilder:default=Certificate
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec.credentialType cannot be changed; unpeer and peer again"
	CredentialType CredentialType `json:"credentialType,omitempty"`

	// InBand says that the consumer reaches this cluster's API server through the tunnel, as
	// its invitation had it. It cannot be changed.
	//
	// +optional
	InBand bool `json:"inBand,omitempty"`

	// Terms of the tenancy.
	TenantTerms `json:",inline"`
}

// TenantTerms are what an owner may set for a tenant, before or after it is there.
type TenantTerms struct {
	// State: Active, also if absent; Cordoned, nothing new is accepted; Drained, what is
	// there is removed as well.
	//
	// +optional
	State TenantState `json:"state,omitempty"`

	// Limits of what the tenant may use; none if absent.
	// +optional
	Limits *TenantLimits `json:"limits,omitempty"`

	// PodSecurity is the Pod Security Standard of the tenant's namespaces; baseline if
	// absent.
	//
	// +optional
	PodSecurity PodSecurity `json:"podSecurity,omitempty"`

	// NamespaceNames are the names, other than the default ones, that the tenant may give
	// its namespaces here: names, or beginnings of names that end in *. None if empty.
	// Names that clusters or Pelago use themselves are never given away.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:Pattern=`^([a-z0-9]([-a-z0-9]{0,62})?\*?|\*)$`
	NamespaceNames []string `json:"namespaceNames,omitempty"`

	// Objects bounds how many objects the tenant may have in its tenant namespace, by
	// resource, as in ResourceQuota without the prefix count/, e.g. "secrets" or
	// "resourcerequests.pelago.dev". What is not named keeps its default. Of Pelago's own
	// kinds there are never more than consumers read: 10000 ShadowPods, 2000 ShadowObjects.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Objects map[string]int32 `json:"objects,omitempty"`

	// Reflection is what goes with the tenant's pods; see docs/reflection.md.
	// +optional
	Reflection *TenantReflection `json:"reflection,omitempty"`

	// Services says which Services of the tenant are reached from outside; none if absent.
	// +optional
	Services *TenantServices `json:"services,omitempty"`

	// Ingress lets the tenant have Ingresses; none if absent.
	// +optional
	Ingress *TenantIngress `json:"ingress,omitempty"`

	// DisruptionBudgets lets the tenant have PodDisruptionBudgets, any of which can hold up
	// drains of the provider's nodes for as long as it likes. None are taken if absent.
	// +optional
	DisruptionBudgets *bool `json:"disruptionBudgets,omitempty"`

	// Reachability says which pods of this cluster may reach the consumer's and be reached
	// from there: none; offloaded-only, those that run here for it, also if absent; full, all.
	// The consumer says the same of its own, and the narrower holds.
	//
	// +optional
	Reachability Reachability `json:"reachability,omitempty"`

	// Callers are pods of this cluster's own that may call the consumer's Services here, by their labels, in any
	// namespace but those of tenants; none if absent. The consumer says which of its Services let them in, by callers
	// of its NamespaceOffloadings. It calls none of them. At most 1000 pods, the oldest ones. With a reachability of
	// none or full it means nothing.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="size(self.?matchLabels.orValue({})) + size(self.?matchExpressions.orValue([])) > 0",message="callers: name at least one label, as in matchLabels: {uses: rome}; leave it out if nobody is to call"
	Callers *metav1.LabelSelector `json:"callers,omitempty"`

	// DirectPaths lets the consumer have its pods here reach those at another one of its providers
	// by a tunnel between that one and this cluster; by way of the consumer if absent or false. The
	// consumer and the other provider have to allow it too. The other provider learns where
	// the nodes of this cluster are.
	//
	// +optional
	DirectPaths bool `json:"directPaths,omitempty"`

	// Translate sees the consumer's ranges by other prefixes even if nothing else has them here. Without it
	// they may be seen as they are, and then no third cluster is told of them: it would learn which
	// addresses the consumer has. A change moves what was seen as it is, and ends its connections.
	//
	// +optional
	Translate bool `json:"translate,omitempty"`

	// AbandonAfter is how long the consumer may be silent before the tenant and all
	// that belongs to it is removed, e.g. 720h. Never if absent. At least 10m.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10m')",message="abandonAfter: at least 10m"
	AbandonAfter *metav1.Duration `json:"abandonAfter,omitempty"`
}

// TenantReflection is what goes with a tenant's pods.
type TenantReflection struct {
	// Deny are kinds of which nothing is taken: Secret, ConfigMap, Service, EndpointSlice,
	// Ingress, PodDisruptionBudget, NetworkPolicy.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:Enum=Secret;ConfigMap;Service;EndpointSlice;Ingress;PodDisruptionBudget;NetworkPolicy
	Deny []string `json:"deny,omitempty"`
}

// TenantServices lets Services of a tenant be what they are at home. Those that are not
// allowed have the type ClusterIP.
type TenantServices struct {
	// NodePorts lets the tenant have Services of the type NodePort.
	// +optional
	NodePorts bool `json:"nodePorts,omitempty"`
	// LoadBalancers lets the tenant have Services of the type LoadBalancer.
	// +optional
	LoadBalancers bool `json:"loadBalancers,omitempty"`
}

// TenantIngress is on which terms a tenant has Ingresses.
type TenantIngress struct {
	// Class is the class of all of them.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Class string `json:"class"`
	// Hosts are the domains for which they are taken: each stands for itself and for all
	// names below it.
	//
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Hosts []string `json:"hosts"`
}

// TenantState says what a tenant may do now.
// +kubebuilder:validation:Enum=Active;Cordoned;Drained
type TenantState string

// The states of a tenant.
const (
	TenantActive   TenantState = "Active"
	TenantCordoned TenantState = "Cordoned"
	TenantDrained  TenantState = "Drained"
)

// PodSecurity is a level of the Pod Security Standards.
// +kubebuilder:validation:Enum=privileged;baseline;restricted
type PodSecurity string

// The levels of the Pod Security Standards.
const (
	PodSecurityPrivileged PodSecurity = "privileged"
	PodSecurityBaseline   PodSecurity = "baseline"
	PodSecurityRestricted PodSecurity = "restricted"
)

// TenantLimits bound what a tenant may use in the scheduler's arithmetic: what its
// pods request, side cars, init containers, overhead and pod-level resources included.
type TenantLimits struct {
	// Enforcement: None, requests are summed but need not be declared; Soft, every
	// container declares requests of the limited resources; Hard, its limits equal
	// them too, so that the sum is what the pods can use.
	//
	// +optional
	// +kubebuilder:default=None
	Enforcement Enforcement `json:"enforcement,omitempty"`

	// Resources is the most that all pods of the tenant may request together. The
	// resource "pods" counts them.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(n, type(self[n]) == int ? self[n] >= 0 : size(self[n]) <= 24 && !self[n].startsWith('-') && (['n','u','m','k','M','G','T','P','E','i'].exists(s, self[n].endsWith(s)) || self[n] == '0' || double(self[n]) >= 0.000000001 && double(self[n]) < 1e19))",message="resources: amounts are short quantities of 0 or more, like 4, 250m or 8Gi"
	Resources ResourceList `json:"resources,omitempty"`

	// Namespaces is the most namespaces the tenant may offload here.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	Namespaces *int32 `json:"namespaces,omitempty"`
}

// Enforcement is how strictly limits bind.
// +kubebuilder:validation:Enum=None;Soft;Hard
type Enforcement string

// The strictnesses of limits.
const (
	EnforcementNone Enforcement = "None"
	EnforcementSoft Enforcement = "Soft"
	EnforcementHard Enforcement = "Hard"
)

// TenantStatus is what a tenant uses, and how it is.
type TenantStatus struct {
	// ObservedGeneration is the generation the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Cluster is what the consumer says of itself.
	// +optional
	Cluster *ClusterInfo `json:"cluster,omitempty"`

	// Namespace is the tenant namespace.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Namespaces counts those offloaded here.
	// +optional
	Namespaces int32 `json:"namespaces,omitempty"`

	// Used is what the tenant's pods request together.
	// +optional
	Used ResourceList `json:"used,omitempty"`

	// LastContact is when the consumer was last heard of.
	// +optional
	LastContact *metav1.Time `json:"lastContact,omitempty"`

	// Conditions: Ready, NamespaceReady, RightsReady, ConsumerAlive, ReaderAnswering.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// TenantList is a list of Tenant.
//
// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tenant `json:"items"`
}
