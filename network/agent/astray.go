package agent

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// Some CNIs give a pod an address of another node's range. Whose word says where it is: pods are told by
// kubelets, slices by whoever may write one. So where slices of an offloaded namespace speak of such an
// address, the pods of these namespaces are followed, and are believed.

// podCIDRs are the ranges that a node says its pods keep to.
func podCIDRs(n *corev1.Node) []string {
	if len(n.Spec.PodCIDRs) == 0 && n.Spec.PodCIDR != "" {
		return []string{n.Spec.PodCIDR}
	}
	return n.Spec.PodCIDRs
}

// astray says whether an address is said to be at one node and is in another one's range.
func (f facts) astray() bool {
	var all []netip.Prefix
	ranges := map[string][]netip.Prefix{}
	for i := range f.nodes {
		n := &f.nodes[i]
		if _, is := virtual(n); is {
			continue
		}
		ranges[n.Name] = []netip.Prefix{}
		for _, text := range podCIDRs(n) {
			if p, err := netip.ParsePrefix(text); err == nil {
				ranges[n.Name], all = append(ranges[n.Name], p), append(all, p)
			}
		}
	}
	is := func(node, text string) bool {
		own, here := ranges[node]
		a, err := netip.ParseAddr(text)
		return here && err == nil && !prefixIn(own, a.Unmap()) && prefixIn(all, a.Unmap())
	}
	for i := range f.hosted {
		for _, a := range podAddresses(&f.hosted[i]) {
			if is(f.hosted[i].Spec.NodeName, a) {
				return true
			}
		}
	}
	for _, slices := range f.home {
		for i := range slices {
			for _, e := range placed(&slices[i]) {
				if is(*e.NodeName, e.Addresses[0]) {
					return true
				}
			}
		}
	}
	return false
}

// placed are the endpoints of a slice that say where they are.
func placed(s *discoveryv1.EndpointSlice) (all []discoveryv1.Endpoint) {
	if s.AddressType == discoveryv1.AddressTypeFQDN {
		return nil
	}
	for _, e := range s.Endpoints {
		if e.NodeName != nil && len(e.Addresses) > 0 {
			all = append(all, e)
		}
	}
	return all
}
