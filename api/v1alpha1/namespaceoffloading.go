package v1alpha1

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NamespaceOffloading lets the pods of its namespace run at other clusters. There is
// one per namespace, named offloading. The label pelago.dev/offload=true on a
// namespace makes one with the defaults, and taking the label off removes it. Deleting
// it brings the pods home.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=pelago
// +kubebuilder:printcolumn:name=Pods,type=string,JSONPath=`.spec.podOffloadingStrategy`
// +kubebuilder:printcolumn:name=Mapping,type=string,JSONPath=`.spec.namespaceMappingStrategy`
// +kubebuilder:printcolumn:name=Phase,type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name=Clusters,type=string,JSONPath=`.status.clusters[*].name`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'offloading'",message="metadata.name: must be offloading, as there is one per namespace"
type NamespaceOffloading struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:default={namespaceMappingStrategy: "DefaultName", podOffloadingStrategy: "LocalAndRemote"}
	Spec   NamespaceOffloadingSpec   `json:"spec,omitempty"`
	Status NamespaceOffloadingStatus `json:"status,omitempty"`
}

// NamespaceOffloadingSpec says where pods may run, and in which namespace there.
//
// +kubebuilder:validation:XValidation:rule="self.namespaceMappingStrategy == oldSelf.namespaceMappingStrategy && has(self.remoteNamespaceName) == has(oldSelf.remoteNamespaceName) && (!has(self.remoteNamespaceName) || self.remoteNamespaceName == oldSelf.remoteNamespaceName)",message="spec.namespaceMappingStrategy and spec.remoteNamespaceName cannot be changed; unoffload the namespace and offload it again"
// +kubebuilder:validation:XValidation:rule="(self.namespaceMappingStrategy == 'SelectedName') == (has(self.remoteNamespaceName) && size(self.remoteNamespaceName) > 0)",message="spec.remoteNamespaceName: needed for the strategy SelectedName, and for no other"
type NamespaceOffloadingSpec struct {
	// NamespaceMappingStrategy: DefaultName, the remote namespace is called NAME-CLUSTER
	// after this namespace and this cluster; EnforceSameName, it has the same name;
	// SelectedName, it has RemoteNamespaceName. The last two need the provider's leave.
	//
	// +optional
	// +kubebuilder:default=DefaultName
	NamespaceMappingStrategy NamespaceMappingStrategy `json:"namespaceMappingStrategy,omitempty"`

	// RemoteNamespaceName is the remote namespace's name for the strategy SelectedName.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	RemoteNamespaceName string `json:"remoteNamespaceName,omitempty"`

	// PodOffloadingStrategy: LocalAndRemote, pods run here or at matching clusters;
	// Remote, at matching clusters only; Local, here only. Pods with the RuntimeClass
	// pelago run at matching clusters whatever it says.
	//
	// +optional
	// +kubebuilder:default=LocalAndRemote
	PodOffloadingStrategy PodOffloadingStrategy `json:"podOffloadingStrategy,omitempty"`

	// ClusterSelector picks clusters by the labels of their virtual nodes; all if absent.
	// +optional
	ClusterSelector *ClusterSelector `json:"clusterSelector,omitempty"`

	// Reflection says what goes with the pods. The first rule of an object's kind whose
	// selector matches it decides; without one, Secrets and ConfigMaps go that pods refer
	// to, and all objects of the other kinds while a pod of the namespace runs there.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Reflection []ReflectionRule `json:"reflection,omitempty"`

	// ServiceAccountTokens: Deny, pods get no token of their service account where they run
	// at other clusters; Allow, those made from now on get the tokens that they would have
	// here, each good for one pod and renewed while it lives. Whoever owns such a cluster can
	// use them. The API server that they are for is the one here.
	//
	// +optional
	// +kubebuilder:default=Deny
	ServiceAccountTokens TokenPolicy `json:"serviceAccountTokens,omitempty"`

	// Onward: Deny, its pods run at clusters that this one peers with, and nowhere else; Allow,
	// the owner of such a cluster may have them run at providers of his own, who get all that
	// goes with them.
	//
	// +optional
	// +kubebuilder:default=Deny
	Onward OnwardPolicy `json:"onward,omitempty"`

	// Reachability says which pods of this namespace may reach providers and be reached from
	// there: none, neither those here nor those that run there; offloaded-only, those that run
	// there, and those here behind its Services, also if absent; full, all of them. Where the
	// Peering says none, none is. Home's API server is not meant.
	//
	// +optional
	Reachability Reachability `json:"reachability,omitempty"`

	// WhenUnreachable says what becomes of pods at a provider that cannot be reached: Keep, home
	// does not replace them and waits, so that there is one of each; Replace, their controllers
	// make others after five minutes, as on any node that is lost, while the first ones may still
	// run. Pods that may run at other clusters only are kept in any case.
	//
	// +optional
	// +kubebuilder:default=Keep
	WhenUnreachable UnreachablePolicy `json:"whenUnreachable,omitempty"`

	// Callers says whose pods at a provider may call the Services of this namespace that travel without a pod, by a
	// rule All or their annotation: Own, those that run there for this cluster, also if absent; Provider, also
	// those of the provider's own that its owner names, by callers of the Tenant. No other pods of this namespace
	// are called, and none calls them.
	//
	// +optional
	Callers CallersPolicy `json:"callers,omitempty"`
}

// UnreachablePolicy says whether home replaces pods whose provider cannot be reached.
// +kubebuilder:validation:Enum=Keep;Replace
type UnreachablePolicy string

// What becomes of pods whose provider cannot be reached.
const (
	UnreachableKeep    UnreachablePolicy = "Keep"
	UnreachableReplace UnreachablePolicy = "Replace"
)

// OrDefault is the policy, Keep if none is named: an object may be older than the field.
func (p UnreachablePolicy) OrDefault() UnreachablePolicy { return cmp.Or(p, UnreachableKeep) }

// CallersPolicy says whose pods at a provider may call Services that travel without a pod.
// +kubebuilder:validation:Enum=Own;Provider
type CallersPolicy string

// Whose pods may call.
const (
	CallersOwn      CallersPolicy = "Own"
	CallersProvider CallersPolicy = "Provider"
)

// Opens says whether whoever is at a provider may call a Service of the namespace: its owner lets the provider's
// own pods call, and has the Service travel without a pod.
func (s *NamespaceOffloadingSpec) Opens(service metav1.Object) bool {
	if s.Callers != CallersProvider || service.GetName() == kubernetesService {
		return false
	}
	policy, _ := Reflected(s.Reflection, "Service", service)
	return policy == ReflectAll
}

// kubernetesService is the API server's, which does not travel.
const kubernetesService = "kubernetes"

// TokenPolicy says whether tokens of service accounts travel.
// +kubebuilder:validation:Enum=Deny;Allow
type TokenPolicy string

// Whether tokens of service accounts travel.
const (
	TokensDeny  TokenPolicy = "Deny"
	TokensAllow TokenPolicy = "Allow"
)

// OnwardPolicy says whether a provider may have pods run at providers of its own.
// +kubebuilder:validation:Enum=Deny;Allow
type OnwardPolicy string

// Whether pods go onward.
const (
	OnwardDeny  OnwardPolicy = "Deny"
	OnwardAllow OnwardPolicy = "Allow"
)

// ReflectionRule is about the objects of one kind in a namespace.
//
// +kubebuilder:validation:XValidation:rule="self.policy != 'Referred' || self.kind in ['Secret','ConfigMap']",message="policy Referred is for Secret and ConfigMap, which pods refer to; the other kinds have All or Deny"
type ReflectionRule struct {
	// Kind of the objects.
	//
	// +kubebuilder:validation:Enum=Secret;ConfigMap;Service;EndpointSlice;Ingress;PodDisruptionBudget;NetworkPolicy
	Kind string `json:"kind"`
	// Policy: Deny, they stay home; Referred, for Secrets and ConfigMaps, they travel if a
	// pod refers to them; All, they travel while a pod of the namespace runs elsewhere,
	// Secrets and ConfigMaps also if no pod refers to them, and Services, with their
	// EndpointSlices, to each cluster selected also while no pod runs there.
	Policy ReflectionPolicy `json:"policy"`
	// Selector of the objects by their labels; all if absent.
	//
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// ReflectionPolicy says which objects travel.
// +kubebuilder:validation:Enum=Deny;Referred;All
type ReflectionPolicy string

// The policies of reflection.
const (
	ReflectDeny     ReflectionPolicy = "Deny"
	ReflectReferred ReflectionPolicy = "Referred"
	ReflectAll      ReflectionPolicy = "All"
)

// NamespaceMappingStrategy is how a remote namespace gets its name.
// +kubebuilder:validation:Enum=DefaultName;EnforceSameName;SelectedName
type NamespaceMappingStrategy string

// The ways of naming a remote namespace.
const (
	MappingDefaultName     NamespaceMappingStrategy = "DefaultName"
	MappingEnforceSameName NamespaceMappingStrategy = "EnforceSameName"
	MappingSelectedName    NamespaceMappingStrategy = "SelectedName"
)

// PodOffloadingStrategy is where the pods of a namespace may run.
// +kubebuilder:validation:Enum=LocalAndRemote;Local;Remote
type PodOffloadingStrategy string

// Where pods may run.
const (
	PodsLocalAndRemote PodOffloadingStrategy = "LocalAndRemote"
	PodsLocal          PodOffloadingStrategy = "Local"
	PodsRemote         PodOffloadingStrategy = "Remote"
)

// ClusterSelector is the selector of a node affinity, over virtual nodes. A cluster is
// picked if one of the terms matches.
type ClusterSelector struct {
	// NodeSelectorTerms of which one has to match.
	//
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	NodeSelectorTerms []ClusterSelectorTerm `json:"nodeSelectorTerms"`
}

// ClusterSelectorTerm matches if all its expressions do.
type ClusterSelectorTerm struct {
	// MatchExpressions over the labels of virtual nodes.
	//
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	MatchExpressions []ClusterRequirement `json:"matchExpressions"`
}

// ClusterRequirement is one expression over a label, as in a node affinity.
//
// +kubebuilder:validation:XValidation:rule="self.operator in ['Exists','DoesNotExist'] ? size(self.?values.orValue([])) == 0 : (self.operator in ['Gt','Lt'] ? size(self.?values.orValue([])) == 1 && self.values[0].matches('^-?[0-9]+$') : size(self.?values.orValue([])) > 0)",message="values: one or more for In and NotIn, one whole number for Gt and Lt, none for Exists and DoesNotExist"
type ClusterRequirement struct {
	// Key of the label.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`
	// Operator: In, NotIn, Exists, DoesNotExist, Gt or Lt.
	//
	// +kubebuilder:validation:Enum=In;NotIn;Exists;DoesNotExist;Gt;Lt
	Operator string `json:"operator"`
	// Values for In and NotIn; one number for Gt and Lt; none for the others.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Values []string `json:"values,omitempty"`
}

// OffloadingPhase sums up how an offloading is.
// +kubebuilder:validation:Enum=Ready;NoClusterSelected;SomeFailed;AllFailed;InProgress;Terminating
type OffloadingPhase string

// The phases of an offloading.
const (
	// OffloadingPhaseReady: the namespace is there at every cluster selected.
	OffloadingPhaseReady OffloadingPhase = "Ready"
	// OffloadingPhaseNoClusterSelected: no virtual node matches.
	OffloadingPhaseNoClusterSelected OffloadingPhase = "NoClusterSelected"
	// OffloadingPhaseSomeFailed: some clusters refuse the namespace.
	OffloadingPhaseSomeFailed OffloadingPhase = "SomeFailed"
	// OffloadingPhaseAllFailed: all clusters selected refuse it.
	OffloadingPhaseAllFailed OffloadingPhase = "AllFailed"
	// OffloadingPhaseInProgress: some clusters have not answered yet.
	OffloadingPhaseInProgress OffloadingPhase = "InProgress"
	// OffloadingPhaseTerminating: it is being removed.
	OffloadingPhaseTerminating OffloadingPhase = "Terminating"
)

// NamespaceOffloadingStatus is how an offloading is, in sum and at each cluster.
type NamespaceOffloadingStatus struct {
	// ObservedGeneration is the generation the status speaks of.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Phase sums up the clusters.
	// +optional
	Phase OffloadingPhase `json:"phase,omitempty"`

	// Clusters there are virtual nodes of, by the name of their peering, and those that
	// still hold the namespace.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	Clusters []ClusterOffloading `json:"clusters,omitempty"`

	// Conditions: Ready.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClusterOffloading is how an offloading is at one cluster.
type ClusterOffloading struct {
	// Name of the peering.
	Name string `json:"name"`
	// RemoteNamespace is the name of the namespace there, once it is known.
	// +optional
	RemoteNamespace string `json:"remoteNamespace,omitempty"`
	// Onward is true while the cluster says that pods of the namespace may run at a provider
	// of its own.
	//
	// +optional
	Onward bool `json:"onward,omitempty"`
	// Conditions: OffloadingRequired, the cluster is selected; Ready, the namespace is
	// there.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NamespaceOffloadingList is a list of NamespaceOffloading.
//
// +kubebuilder:object:root=true
type NamespaceOffloadingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NamespaceOffloading `json:"items"`
}
