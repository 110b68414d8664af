package v1alpha1

import (
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NetworkRules are the NetworkPolicies of one namespace, made for the gateways of one side
// of a peering: who may reach the pods of that side, and whom they may reach, through the
// tunnel. Home's manager writes all of them: those for its own gateways in
// pelago-peering-NAME, and those for the provider's in the tenant namespace there. Addresses
// are everywhere as home numbers them: its own, and those of its views. Rules change
// with policies; with a pod changes one entry of pods. Many pods are spread over shards,
// which are objects of one revision each: the gateways go by what they had until they have
// all shards of a new one.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,path=networkrules,singular=networkrules,categories=pelago
// +kubebuilder:printcolumn:name=Namespace,type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name=Shard,type=integer,JSONPath=`.spec.shard`
// +kubebuilder:printcolumn:name=Of,type=integer,JSONPath=`.spec.shards`
// +kubebuilder:printcolumn:name=Revision,type=string,JSONPath=`.spec.revision`
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?[.](1[0-5]|[0-9])$')",message="metadata.name: must be spec.namespace, a dot and spec.shard"
type NetworkRules struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec drops what it does not know: unknown fields would have no bound.
	// +structType=atomic
	Spec NetworkRulesSpec `json:"spec"`
}

// NetworkDirection is that of a connection, seen from the pod that a policy selects.
//
// +kubebuilder:validation:Enum=Ingress;Egress
type NetworkDirection string

// Directions of NetworkRules.
const (
	// NetworkIngress is of connections that the pod accepts.
	NetworkIngress NetworkDirection = "Ingress"
	// NetworkEgress is of connections that the pod begins.
	NetworkEgress NetworkDirection = "Egress"
)

// Bounds of NetworkRules.
const (
	// MaxNetworkRules is the most rules of one namespace.
	MaxNetworkRules = 256
	// MaxNetworkPrefixes is the most prefixes that the blocks of all rules of one namespace may be.
	MaxNetworkPrefixes = 1 << 14
	// MaxNetworkPorts is the most ports of one rule, and of one pod for one rule.
	MaxNetworkPorts = 64
	// MaxNetworkBlocks is the most blocks of one rule.
	MaxNetworkBlocks = 64
	// MaxNetworkPods is the most pods of one shard.
	MaxNetworkPods = 500
	// MaxNetworkShards is the most shards of one namespace.
	MaxNetworkShards = 16
	// MaxNetworkMentions is how often the pods of all shards may name rules, ports and addresses.
	MaxNetworkMentions = 1 << 16
	// MaxNetworkRulesSize is the largest Size of the rules of a namespace, and that of the pods of a
	// shard: half of what gateways keep of one object.
	MaxNetworkRulesSize = 128 << 10
	// MaxNetworkPeeringRules is the most rules of one peering, in all namespaces together, and
	// MaxNetworkPeeringElements about the most addresses and ports that these and their pods are.
	MaxNetworkPeeringRules    = 1 << 10
	MaxNetworkPeeringElements = 1 << 17
)

// Size is about how many bytes a rule takes.
func (r *NetworkRule) Size() int { return 300 + len(r.Policy) + 24*len(r.Ports) + 100*len(r.Blocks) }

// Size is about how many bytes a pod takes.
func (p *NetworkRulesPod) Size() int {
	size := 160 + 4*(len(p.Selected)+len(p.PeerOf))
	for i := range p.Ports {
		size += 32 + 6*len(p.Ports[i].Ports)
	}
	return size
}

// Mentions is how often a pod names rules, ports and addresses.
func (p *NetworkRulesPod) Mentions() int {
	n := len(p.Addresses) + len(p.Selected) + len(p.PeerOf)
	for i := range p.Ports {
		n += len(p.Ports[i].Ports)
	}
	return n
}

// Size is about how many bytes the rules and pods of a shard take.
func (s *NetworkRulesSpec) Size() (size int) {
	for i := range s.Rules {
		size += s.Rules[i].Size()
	}
	for i := range s.Pods {
		size += s.Pods[i].Size()
	}
	return size
}

// NetworkRulesSpec is one shard of the policies of a namespace.
//
// +kubebuilder:validation:XValidation:rule="self.shard < self.shards",message="spec.shard: must be less than spec.shards"
// +kubebuilder:validation:XValidation:rule="self.shard == 0 || (!has(self.rules) && !has(self.guarded) && !has(self.guardedThere))",message="spec.rules, spec.guarded and spec.guardedThere: must be in shard 0"
type NetworkRulesSpec struct {
	// Namespace at home that the policies are of.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
	// Shard is which one this is, from 0 on.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=15
	Shard int32 `json:"shard"`
	// Shards is how many there are.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=16
	Shards int32 `json:"shards"`
	// Revision is the same in all shards that belong together, and another one when rules,
	// guarded or shards are. Pods come, change and go within one.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{16}$`
	Revision string `json:"revision"`
	// Guarded are the directions in which a pod of the namespace that is in no shard is
	// isolated, as a policy might select it. In shard 0 only.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	Guarded []NetworkDirection `json:"guarded,omitempty"`
	// GuardedThere is the same for such pods at the other end of the tunnel: home's gateways
	// guard those at the provider as well. In shard 0 only, and only at home.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	GuardedThere []NetworkDirection `json:"guardedThere,omitempty"`
	// Rules say what is allowed to and from isolated pods. In shard 0 only; pods of all shards
	// name them by their index.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Rules []NetworkRule `json:"rules,omitempty"`
	// Pods are the pods of the namespace on the guarded side, and the peers of rules on the
	// other one; at home those of both sides, of which one that is a peer as well is there twice.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=500
	Pods []NetworkRulesPod `json:"pods,omitempty"`
}

// NetworkRule allows connections between the pods that it selects and its peers: those pods
// that name it in peerOf, the addresses of blocks, or all with anyPeer.
type NetworkRule struct {
	// Policy is the name of the NetworkPolicy, for people.
	//
	// +kubebuilder:validation:MaxLength=253
	Policy string `json:"policy"`
	// Direction of the connections, seen from the selected pods.
	Direction NetworkDirection `json:"direction"`
	// Protocol that is allowed; all if empty.
	//
	// +optional
	// +kubebuilder:validation:Enum=TCP;UDP
	Protocol string `json:"protocol,omitempty"`
	// Ports at the server that are allowed; all if there are none and perPod is not set.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Ports []NetworkPortRange `json:"ports,omitempty"`
	// PerPod says that the ports have names, which mean other numbers in each pod: allowed are
	// the ports that the pod at the server's end has for this rule, and no others.
	//
	// +optional
	PerPod bool `json:"perPod,omitempty"`
	// AnyPeer says that everybody is a peer.
	//
	// +optional
	AnyPeer bool `json:"anyPeer,omitempty"`
	// Blocks of addresses that are peers, as home sees them.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Blocks []NetworkAddressRange `json:"blocks,omitempty"`
}

// NetworkPortRange is ports from first to last.
//
// +kubebuilder:validation:XValidation:rule="self.first <= self.last",message="first: must not be more than last"
type NetworkPortRange struct {
	// First port.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	First int32 `json:"first"`
	// Last port, which may be the first.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Last int32 `json:"last"`
}

// NetworkAddressRange is addresses of one family, from first to last.
type NetworkAddressRange struct {
	// First address.
	//
	// +kubebuilder:validation:MaxLength=39
	First string `json:"first"`
	// Last address, which may be the first.
	//
	// +kubebuilder:validation:MaxLength=39
	Last string `json:"last"`
}

// NetworkRulesPod is a pod: one that is guarded or a peer. One that runs at the provider is,
// in what is written for the provider's gateways, known by its UID alone; every other one has
// addresses.
//
// +kubebuilder:validation:XValidation:rule="has(self.uid) != has(self.addresses)",message="uid, addresses: exactly one must be given"
type NetworkRulesPod struct {
	// UID of the home pod, which runs at the provider.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=36
	UID string `json:"uid,omitempty"`
	// Addresses of the pod, one of each family, as home numbers them.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MaxLength=39
	Addresses []string `json:"addresses,omitempty"`
	// Isolated are the directions in which nothing is allowed but what rules allow. A pod of
	// the namespace that has none is open, also where guarded says something.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	Isolated []NetworkDirection `json:"isolated,omitempty"`
	// Selected are the rules, by index, that are about this pod.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Selected []int32 `json:"selected,omitempty"`
	// PeerOf are the rules, by index, that it is a peer of.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	PeerOf []int32 `json:"peerOf,omitempty"`
	// Ports of this pod that rules with perPod mean.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	Ports []NetworkRulesPorts `json:"ports,omitempty"`
}

// NetworkRulesPorts are the ports of a pod that a rule with perPod means.
type NetworkRulesPorts struct {
	// Rule is the index of the rule.
	Rule int32 `json:"rule"`
	// Ports of the pod, of the protocol of the rule.
	//
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	Ports []int32 `json:"ports"`
}

// NetworkRulesName is the only name that a shard of the NetworkRules of a home namespace can
// have; gateways take no other.
func NetworkRulesName(namespace string, shard int32) string {
	return namespace + "." + strconv.Itoa(int(shard))
}

// NetworkRulesList is a list of NetworkRules.
//
// +kubebuilder:object:root=true
type NetworkRulesList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkRules `json:"items"`
}
