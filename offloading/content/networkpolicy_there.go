package content

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// namesPort is where name servers are asked.
const namesPort = 53

// Closes are the directions in which a NetworkPolicy lets pass nobody but whom it names, if anybody: one beside
// it would let others pass as well.
func Closes(p *networkingv1.NetworkPolicy) []networkingv1.PolicyType { return directions(&p.Spec) }

func unpackNetworkPolicy(c *networkPolicyContent, rules Rules, p *networkingv1.NetworkPolicy) string {
	p.Spec.PodSelector, p.Spec.PolicyTypes = c.PodSelector, c.Types
	for i, t := range c.Types {
		if slices.Contains(rules.Closed, t) {
			return fmt.Sprintf("types[%d]: a NetworkPolicy of the provider's owner closes %s for this namespace, and one of a tenant would open it, as they add up; ask him to take his away, or keep yours home", i, t)
		}
	}
	if slices.Contains(c.Types, networkingv1.PolicyTypeIngress) {
		for _, r := range c.Ingress {
			if peers, some := r.here(rules); some {
				p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: peers, Ports: r.ports()})
			}
		}
		if through := blocks(rules.Through); len(through) > 0 {
			p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: through})
		}
	}
	if slices.Contains(c.Types, networkingv1.PolicyTypeEgress) {
		for _, r := range c.Egress {
			if peers, some := r.here(rules); some {
				p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: peers, Ports: r.ports()})
			}
		}
		if through := blocks(rules.Through); len(through) > 0 {
			p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: through})
		}
		if names := rules.names(); len(names) > 0 {
			p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: names, Ports: []networkingv1.NetworkPolicyPort{
				networkPolicyPort{Protocol: corev1.ProtocolUDP, Port: namesPort}.port(), networkPolicyPort{Protocol: corev1.ProtocolTCP, Port: namesPort}.port()}})
		}
	}
	return ""
}

// here are the peers of a rule in this cluster; false if it has some at home, and none here.
func (r networkPolicyRule) here(rules Rules) (all []networkingv1.NetworkPolicyPeer, some bool) {
	for _, p := range r.Peers {
		if p.Block != "" {
			b, wrong := readBlock(p.Block, p.Except)
			if wrong != "" {
				continue // which was checked
			}
			if b, ok := b.everywhere(); ok {
				all = append(all, b.peer())
			}
			continue
		}
		peer := networkingv1.NetworkPolicyPeer{PodSelector: p.PodSelector}
		if len(p.Namespaces) > 0 {
			names := map[string]bool{}
			for _, home := range p.Namespaces {
				if here := rules.Spaces[home]; here != "" {
					names[here] = true
				}
			}
			if len(names) == 0 {
				continue
			}
			peer.NamespaceSelector = named(slices.Sorted(maps.Keys(names)))
		}
		all = append(all, peer)
	}
	return all, r.Everybody || len(all) > 0
}

func (r networkPolicyRule) ports() (all []networkingv1.NetworkPolicyPort) {
	for _, p := range r.Ports {
		all = append(all, p.port())
	}
	return all
}

// names are where pods ask for names.
func (r Rules) names() []networkingv1.NetworkPolicyPeer {
	if r.ClusterNames { // by the labels that all distributions of the usual DNS have
		return []networkingv1.NetworkPolicyPeer{{NamespaceSelector: named([]string{metav1.NamespaceSystem}), PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}}}}
	}
	var all []netip.Prefix
	for _, a := range r.NameServers {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return blocks(all)
}

// blocks are prefixes as peers, in order.
func blocks(all []netip.Prefix) (peers []networkingv1.NetworkPolicyPeer) {
	all = slices.Clone(all)
	slices.SortFunc(all, netip.Prefix.Compare)
	for _, p := range slices.Compact(all) {
		peers = append(peers, block{whole: p.Masked()}.peer())
	}
	return peers
}

// port is a port as the API has it.
func (p networkPolicyPort) port() networkingv1.NetworkPolicyPort {
	out := networkingv1.NetworkPolicyPort{Protocol: &p.Protocol}
	switch {
	case p.Name != "":
		out.Port = new(intstr.FromString(p.Name))
	case p.Port != 0:
		out.Port = new(intstr.FromInt32(p.Port))
	}
	if p.EndPort != 0 {
		out.EndPort = &p.EndPort
	}
	return out
}
