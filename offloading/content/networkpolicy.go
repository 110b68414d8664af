package content

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// maxPolicyRules is how many rules a NetworkPolicy has for each direction, maxPolicyPeers how many
	// peers a rule has, and maxPolicyPorts how many ports.
	maxPolicyRules, maxPolicyPeers, maxPolicyPorts = 100, 100, 100
	// maxPolicyPairs is how many combinations of a peer and a port a NetworkPolicy has: network
	// plugins make rules of these on every node.
	maxPolicyPairs = 1000
	// maxPolicySpaces is how many namespaces a peer names: as many as a NamespaceMap has.
	maxPolicySpaces = 512
	// maxExcepts is how many blocks a block excepts, but for private ones as a whole.
	maxExcepts = 64
)

// networkPolicyContent is what travels of a NetworkPolicy. It has no place for selectors of
// namespaces: these are named as home calls them, and can be the tenant's only.
type networkPolicyContent struct {
	PodSelector metav1.LabelSelector      `json:"podSelector"`
	Types       []networkingv1.PolicyType `json:"types"`
	Ingress     []networkPolicyRule       `json:"ingress,omitempty"`
	Egress      []networkPolicyRule       `json:"egress,omitempty"`
}

// networkPolicyRule lets everybody pass, or some, at some ports, or at all if it has none.
type networkPolicyRule struct {
	Everybody bool                `json:"everybody,omitempty"`
	Peers     []networkPolicyPeer `json:"peers,omitempty"`
	Ports     []networkPolicyPort `json:"ports,omitempty"`
}

// networkPolicyPeer is a block of addresses, or pods: those of the policy's own namespace, or of
// some namespaces of home's.
type networkPolicyPeer struct {
	Namespaces  []string              `json:"namespaces,omitempty"`
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`
	Block       string                `json:"block,omitempty"`
	Except      []string              `json:"except,omitempty"`
}

type networkPolicyPort struct {
	Protocol corev1.Protocol `json:"protocol"`
	// Port and EndPort are numbers, Name is that of a container's port; all ports if none is given.
	Port    int32  `json:"port,omitempty"`
	EndPort int32  `json:"endPort,omitempty"`
	Name    string `json:"name,omitempty"`
}

var networkPolicies = form[*networkingv1.NetworkPolicy, networkPolicyContent]{
	name: "NetworkPolicy", bare: true, plain: true,
	empty:  func() *networkingv1.NetworkPolicy { return &networkingv1.NetworkPolicy{} },
	list:   func() client.ObjectList { return &networkingv1.NetworkPolicyList{} },
	pack:   packNetworkPolicy,
	check:  checkNetworkPolicy,
	unpack: unpackNetworkPolicy,
	put: func(next, want *networkingv1.NetworkPolicy) bool {
		next.Spec = want.Spec
		return false
	},
}

func checkNetworkPolicy(c *networkPolicyContent) string {
	if wrong := wrongSelector(&c.PodSelector); wrong != "" {
		return "podSelector: " + wrong
	}
	if len(c.Types) == 0 || len(c.Types) > 2 {
		return "types: Ingress, Egress or both"
	}
	for i, t := range c.Types {
		if t != networkingv1.PolicyTypeIngress && t != networkingv1.PolicyTypeEgress || slices.Contains(c.Types[:i], t) {
			return fmt.Sprintf("types[%d]: %s; Ingress, Egress or both, each once", i, quote(string(t)))
		}
	}
	pairs := 0
	for _, d := range []struct {
		name  string
		of    networkingv1.PolicyType
		rules []networkPolicyRule
	}{{"ingress", networkingv1.PolicyTypeIngress, c.Ingress}, {"egress", networkingv1.PolicyTypeEgress, c.Egress}} {
		switch {
		case len(d.rules) > maxPolicyRules:
			return fmt.Sprintf("%s: %d rules, at most %d; use several NetworkPolicies", d.name, len(d.rules), maxPolicyRules)
		case len(d.rules) > 0 && !slices.Contains(c.Types, d.of):
			return fmt.Sprintf("%s: rules for a direction that types does not name; leave them out", d.name)
		}
		for i, r := range d.rules {
			if wrong := r.wrong(); wrong != "" {
				return fmt.Sprintf("%s[%d]%s", d.name, i, wrong)
			}
			pairs += r.pairs()
		}
	}
	if pairs > maxPolicyPairs {
		return fmt.Sprintf("%d combinations of a peer and a port, at most %d; use ranges of ports, or fewer peers", pairs, maxPolicyPairs)
	}
	return ""
}

// pairs counts the combinations of a peer and a port.
func (r networkPolicyRule) pairs() int {
	peers := 0
	for _, p := range r.Peers {
		peers += max(1, len(p.Namespaces), 1+excepts(p.Except))
	}
	return max(1, peers) * max(1, len(r.Ports))
}

// wrong says which field of a rule is wrong, and why.
func (r networkPolicyRule) wrong() string {
	switch {
	case r.Everybody == (len(r.Peers) > 0):
		return ": either everybody or peers; a rule for nobody is left out"
	case len(r.Peers) > maxPolicyPeers || len(r.Ports) > maxPolicyPorts:
		return fmt.Sprintf(": %d peers and %d ports, at most %d and %d; use several rules", len(r.Peers), len(r.Ports), maxPolicyPeers, maxPolicyPorts)
	}
	for i, p := range r.Peers {
		if wrong := p.wrong(); wrong != "" {
			return fmt.Sprintf(".peers[%d]%s", i, wrong)
		}
	}
	for i, p := range r.Ports {
		if wrong := p.wrong(); wrong != "" {
			return fmt.Sprintf(".ports[%d]%s", i, wrong)
		}
	}
	return ""
}

// wrong says which field of a peer is wrong, and why.
func (p networkPolicyPeer) wrong() string {
	pods := p.PodSelector != nil || len(p.Namespaces) > 0
	switch {
	case p.Block != "" && pods:
		return ": either a block, or pods"
	case p.Block == "" && len(p.Except) > 0:
		return ".except: without a block"
	case p.Block != "":
		if _, wrong := readBlock(p.Block, p.Except); wrong != "" {
			return wrong
		}
		return ""
	case !pods:
		return ": neither a block nor pods"
	case len(p.Namespaces) > maxPolicySpaces:
		return fmt.Sprintf(".namespaces: %d, at most %d", len(p.Namespaces), maxPolicySpaces)
	}
	for i, name := range p.Namespaces {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return fmt.Sprintf(".namespaces[%d]: %s is no name of a namespace", i, quote(name))
		}
	}
	if wrong := wrongSelector(p.PodSelector); wrong != "" {
		return ".podSelector: " + wrong
	}
	return ""
}

// wrong says which field of a port is wrong, and why.
func (p networkPolicyPort) wrong() string {
	switch {
	case p.Protocol != corev1.ProtocolTCP && p.Protocol != corev1.ProtocolUDP && p.Protocol != corev1.ProtocolSCTP:
		return ".protocol: TCP, UDP or SCTP"
	case p.Port < 0 || p.Port > 65535:
		return ".port: from 1 to 65535"
	case p.Name != "" && p.Port != 0:
		return ": either port or name"
	case p.Name != "" && len(validation.IsValidPortName(p.Name)) > 0:
		return ".name: " + quote(p.Name) + " is no name of a port"
	case p.EndPort != 0 && (p.Port == 0 || p.EndPort < p.Port || p.EndPort > 65535):
		return ".endPort: from port to 65535"
	}
	return ""
}

// wrongSelector says why pods are not selected so; "" if they may be.
func wrongSelector(s *metav1.LabelSelector) string {
	if n := terms(s); n > maxSelector {
		return fmt.Sprintf("a selector of %d terms, at most %d", n, maxSelector)
	}
	if _, err := metav1.LabelSelectorAsSelector(s); err != nil {
		return "it cannot be read: " + quote(err.Error())
	}
	if s == nil {
		return ""
	}
	keys := slices.Sorted(maps.Keys(s.MatchLabels))
	for _, e := range s.MatchExpressions {
		keys = append(keys, e.Key)
	}
	for _, key := range keys {
		if !PodLabelTravels(key) {
			return "it names the label " + quote(key) + ", which pods do not have at a provider; select them by another one"
		}
	}
	return ""
}
