package v1alpha1

import (
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NetworkConfig is what one side of a peering says of its network, and what the other
// side makes of that. There are two of each peering, named consumer and provider after
// whose spec it is: in the tenant namespace at the provider, and in the consumer's
// namespace pelago-peering-NAME, where the one is the consumer's own and the other a copy.
// In band there is a third one for the time before: invitation-NAME and introduction-NAME, in the
// namespace pelago-network of the provider and of the consumer, after the Invitation and the Peering.
// Pelago writes all of them. A status of the two is always written by the side that the spec is
// not of, so that nobody can say by which addresses another cluster sees him.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,categories=pelago
// +kubebuilder:printcolumn:name=Pods,type=string,JSONPath=`.spec.pods`
// +kubebuilder:printcolumn:name=Views,type=string,JSONPath=`.status.views[*].view`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name in ['consumer', 'provider'] || self.metadata.name.startsWith('invitation-') || self.metadata.name.startsWith('introduction-')",message="metadata.name: must be consumer or provider, or begin with invitation- or introduction-"
type NetworkConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +kubebuilder:pruning:PreserveUnknownFields
	Spec NetworkConfigSpec `json:"spec,omitempty"`
	// +kubebuilder:pruning:PreserveUnknownFields
	Status NetworkConfigStatus `json:"status,omitempty"`
}

// NetworkConfigSpec is what one side says of itself. Without a public key it has not
// spoken yet.
type NetworkConfigSpec struct {
	// Pods are the ranges of its pods, as 10.42.0.0/16, and those by which it sees other clusters,
	// whose pods are reached by way of it.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=43
	Pods []string `json:"pods,omitempty"`
	// Transit are those of Pods that are not its own: views of clusters that the other side reaches
	// through it. They are not passed on, so that nothing goes round in circles.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=43
	Transit []string `json:"transit,omitempty"`
	// External are the ranges of its external addresses, that stand for what is no pod:
	// at most one of IPv4 and one of IPv6.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=43
	External []string `json:"external,omitempty"`
	// PublicKey is that of its tunnel: a key of WireGuard in base64.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw480]=$`
	PublicKey string `json:"publicKey,omitempty"`
	// NextPublicKey is the one that it will use next, as soon as the other side says in
	// the status that it knows it.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw480]=$`
	NextPublicKey string `json:"nextPublicKey,omitempty"`
	// Endpoints are HOST:PORT, over UDP, where its gateway may be, the likeliest first.
	// With none it is the one that calls.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=261
	Endpoints []string `json:"endpoints,omitempty"`
	// Port is the UDP port that the tunnel of this peering has on the node that is its
	// gateway; any if 0.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// APIServer is the HOST:PORT, an address of External, at which pods that run at the
	// provider with tokens of home reach home's API server. Only a consumer says it.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=47
	APIServer string `json:"apiServer,omitempty"`
	// Reachability is that of this side, from its Peering or Tenant, for its own agents. It is
	// not carried to the other side, and a peer's is not looked at.
	//
	// +optional
	Reachability Reachability `json:"reachability,omitempty"`
	// Callers are pods of this side's own that may call what the other side's Services have here, as its Tenant
	// says, for its own agents; none if absent. It is not carried to the other side, and a peer's is not looked at.
	//
	// +optional
	Callers *metav1.LabelSelector `json:"callers,omitempty"`
	// InBand is how the clusters speak with each other through this tunnel, for this side's own
	// agents; they do not if absent. It is not carried to the other side, and a peer's is not
	// looked at.
	//
	// +optional
	InBand *NetworkInBand `json:"inBand,omitempty"`
	// ConsumerPaths are direct paths that the provider makes between this consumer and providers of
	// its own. Only a provider says it, and nobody else can; the consumer answers in the status.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ConsumerPaths []ConsumerPath `json:"consumerPaths,omitempty"`
}

// Paths are the ConsumerPaths with what is said of each, as if they were objects beside this one.
func (c *NetworkConfig) Paths() (all []NetworkPath) {
	for i := range c.Spec.ConsumerPaths {
		s := &c.Spec.ConsumerPaths[i]
		p := NetworkPath{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: s.Name, DeletionTimestamp: c.DeletionTimestamp}, Spec: s.NetworkPathSpec}
		for j := range c.Status.ConsumerPaths {
			if said := &c.Status.ConsumerPaths[j]; said.Name == s.Name {
				p.Status = said.NetworkPathStatus
			}
		}
		all = append(all, p)
	}
	return all
}

// NetworkInBand is how the clusters speak with each other through a tunnel: the consumer calls
// the API server of the provider, and with an invitation its authentication endpoint.
type NetworkInBand struct {
	// Address, at the consumer, is by which it calls the provider: one of External, of IPv4 if it
	// has that.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=45
	Address string `json:"address,omitempty"`
	// OtherAddress is one of the other family, by which it calls the provider as well: which of them
	// leads to the provider's servers it finds out by calling.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=45
	OtherAddress string `json:"otherAddress,omitempty"`
	// PublicKey is the other side's key, and Endpoints where it may be, in the tunnel of an
	// invitation.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw480]=$`
	PublicKey string `json:"publicKey,omitempty"`
	// Endpoints: see PublicKey.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=261
	Endpoints []string `json:"endpoints,omitempty"`
}

// NetworkView says by which prefix one side sees a range of the other.
type NetworkView struct {
	// Real is the range as its owner has it.
	//
	// +kubebuilder:validation:MaxLength=43
	Real string `json:"real"`
	// View is the prefix of the same size by which the other side sees it; often the same.
	//
	// +kubebuilder:validation:MaxLength=43
	View string `json:"view"`
}

// ViewOf is the address by which the other side sees a real one, false if none of the views
// is of it or can be read.
func ViewOf(views []NetworkView, real netip.Addr) (netip.Addr, bool) {
	for _, v := range views {
		from, err := netip.ParsePrefix(v.Real)
		to, err2 := netip.ParsePrefix(v.View)
		if err != nil || err2 != nil || from.Bits() != to.Bits() || from.Addr().BitLen() != to.Addr().BitLen() || !from.Contains(real) {
			continue
		}
		low, view := real.AsSlice(), to.Masked().Addr().AsSlice()
		for i := range low {
			kept := max(0, min(8, to.Bits()-8*i)) // bits of this byte that the view has
			view[i] |= low[i] & byte(0xff>>kept)
		}
		return netip.AddrFromSlice(view)
	}
	return netip.Addr{}, false
}

// NetworkConfigStatus is what the other side makes of it.
type NetworkConfigStatus struct {
	// ObservedGeneration is the generation that the conditions speak of, of the object
	// that the other side has.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Views of its ranges. They stay when a range is published that is refused.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=18
	Views []NetworkView `json:"views,omitempty"`
	// NextPublicKey is the one of the spec that the other side's tunnel knows already.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=44
	NextPublicKey string `json:"nextPublicKey,omitempty"`
	// ConsumerPaths are the consumer's ends of those of the spec.
	//
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ConsumerPaths []ConsumerPathStatus `json:"consumerPaths,omitempty"`
	// Conditions: Ready, which is False with the reason RangesRefused if a range cannot be
	// carried, and PoolExhausted if there is no view for one. Of invitation-NAME and introduction-NAME
	// it says whether the other side can be told where to call; if not, the reason is NameTaken or Waiting.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// NetworkConfigList is a list of NetworkConfig.
//
// +kubebuilder:object:root=true
type NetworkConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkConfig `json:"items"`
}
