package content

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// ResolvePolicy is a NetworkPolicy as one provider is told it: selectors of namespaces name those of
// spaces, the namespaces that are there with their labels. Who is in other namespaces is beyond a
// gateway, which guards both, so peers that select none of these are left out, and so are rules that
// have no other: one without peers would let everybody pass.
func ResolvePolicy(p *networkingv1.NetworkPolicy, spaces map[string]map[string]string) *networkingv1.NetworkPolicy {
	out := &networkingv1.NetworkPolicy{ObjectMeta: p.ObjectMeta}
	out.Spec.PodSelector = p.Spec.PodSelector
	out.Spec.PolicyTypes = directions(&p.Spec) // before a rule is left out, which would say another thing
	for _, r := range p.Spec.Ingress {
		if from, some := resolved(r.From, spaces); some {
			out.Spec.Ingress = append(out.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: from, Ports: r.Ports})
		}
	}
	for _, r := range p.Spec.Egress {
		if to, some := resolved(r.To, spaces); some {
			out.Spec.Egress = append(out.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: to, Ports: r.Ports})
		}
	}
	return out
}

// directions are those that a policy is about: as it says or, if it says none, ingress always and
// egress if there are rules for it.
func directions(s *networkingv1.NetworkPolicySpec) []networkingv1.PolicyType {
	switch {
	case len(s.PolicyTypes) > 0:
		var each []networkingv1.PolicyType
		for _, t := range s.PolicyTypes {
			if !slices.Contains(each, t) {
				each = append(each, t)
			}
		}
		return each
	case len(s.Egress) > 0:
		return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}
	}
	return []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
}

// resolved are the peers of a rule that are there; false if it has some, and none of them is.
func resolved(peers []networkingv1.NetworkPolicyPeer, spaces map[string]map[string]string) ([]networkingv1.NetworkPolicyPeer, bool) {
	var left []networkingv1.NetworkPolicyPeer
	for _, p := range peers {
		if p.NamespaceSelector != nil {
			names := selectedSpaces(p.NamespaceSelector, spaces)
			if len(names) == 0 {
				continue
			}
			p.NamespaceSelector = named(names)
		}
		left = append(left, p)
	}
	return left, len(peers) == 0 || len(left) > 0
}

// selectedSpaces are the names of those that a selector means, in order; none if it cannot be read.
func selectedSpaces(s *metav1.LabelSelector, spaces map[string]map[string]string) (names []string) {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(spaces)) {
		if selector.Matches(labels.Set(spaces[name])) {
			names = append(names, name)
		}
	}
	return names
}

// named selects namespaces by their names alone, which nobody can give to another one.
func named(names []string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1.LabelMetadataName, Operator: metav1.LabelSelectorOpIn, Values: names}}}
}

// namesIn is the opposite of named.
func namesIn(s *metav1.LabelSelector) ([]string, bool) {
	if s == nil {
		return nil, true
	}
	if len(s.MatchLabels) > 0 || len(s.MatchExpressions) != 1 {
		return nil, false
	}
	e := s.MatchExpressions[0]
	return e.Values, e.Key == corev1.LabelMetadataName && e.Operator == metav1.LabelSelectorOpIn && len(e.Values) > 0
}

// packNetworkPolicy takes a policy that ResolvePolicy has made.
func packNetworkPolicy(p *networkingv1.NetworkPolicy) (networkPolicyContent, string) {
	c := networkPolicyContent{PodSelector: p.Spec.PodSelector, Types: directions(&p.Spec)}
	for i, r := range p.Spec.Ingress {
		if !slices.Contains(c.Types, networkingv1.PolicyTypeIngress) {
			break // it says nothing
		}
		rule, some, wrong := packRule(r.From, r.Ports)
		if wrong != "" {
			return c, fmt.Sprintf("spec.ingress[%d]%s", i, wrong)
		}
		if some {
			c.Ingress = append(c.Ingress, rule)
		}
	}
	for i, r := range p.Spec.Egress {
		if !slices.Contains(c.Types, networkingv1.PolicyTypeEgress) {
			break
		}
		rule, some, wrong := packRule(r.To, r.Ports)
		if wrong != "" {
			return c, fmt.Sprintf("spec.egress[%d]%s", i, wrong)
		}
		if some {
			c.Egress = append(c.Egress, rule)
		}
	}
	return c, ""
}

// packRule is what travels of a rule; some says that it lets anybody pass where it goes.
func packRule(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort) (rule networkPolicyRule, some bool, wrong string) {
	rule.Everybody = len(peers) == 0
	for i, p := range peers {
		names, ok := namesIn(p.NamespaceSelector)
		switch {
		case !ok:
			return rule, false, fmt.Sprintf(".peers[%d]: its namespaceSelector was not resolved", i)
		case p.IPBlock == nil:
			rule.Peers = append(rule.Peers, networkPolicyPeer{Namespaces: names, PodSelector: p.PodSelector})
			continue
		}
		b, unreadable := readBlock(p.IPBlock.CIDR, p.IPBlock.Except)
		if unreadable != "" {
			return rule, false, fmt.Sprintf(".peers[%d]%s", i, unreadable)
		}
		if b, ok = b.everywhere(); !ok {
			continue // home's own, beyond the gateway
		}
		ip := b.peer().IPBlock
		rule.Peers = append(rule.Peers, networkPolicyPeer{Block: ip.CIDR, Except: ip.Except})
	}
	for _, p := range ports {
		port := networkPolicyPort{Protocol: ptr.Deref(p.Protocol, corev1.ProtocolTCP), EndPort: ptr.Deref(p.EndPort, 0)}
		switch {
		case p.Port == nil:
		case p.Port.Type == intstr.String:
			port.Name = p.Port.StrVal
		default:
			port.Port = p.Port.IntVal
		}
		rule.Ports = append(rule.Ports, port)
	}
	return rule, rule.Everybody || len(rule.Peers) > 0, ""
}
