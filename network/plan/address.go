package plan

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Caller is who calls a node by its addresses.
type Caller int

const (
	// Neighbour is another node of the same cluster. It goes the short way, by internal
	// addresses: an external one may be translated on its way, or lead out and in again.
	Neighbour Caller = iota
	// Stranger is the gateway of a peer, which gets to internal addresses only where networks are
	// joined. All count, external ones first: of those that peers are told they try each in turn.
	Stranger
)

// AddressesOf are the addresses of a node for a caller, the best first and each once: for a
// neighbour internal ones, and of a family without any the external ones; for a stranger all.
func AddressesOf(n *corev1.Node, caller Caller) (all []netip.Addr) {
	kinds := []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP}
	if caller == Stranger {
		slices.Reverse(kinds)
	}
	for _, kind := range kinds {
		better := all
		for _, a := range n.Status.Addresses {
			addr, err := netip.ParseAddr(a.Address)
			if addr = addr.Unmap(); err != nil || a.Type != kind || addr.Zone() != "" || slices.Contains(all, addr) {
				continue
			}
			same := func(has netip.Addr) bool { return has.Is4() == addr.Is4() }
			if caller == Stranger || !slices.ContainsFunc(better, same) {
				all = append(all, addr)
			}
		}
	}
	return all
}

// ByAddress names the nodes by all their addresses. One that several of them have, as behind NAT, is none's.
func ByAddress(nodes []*corev1.Node) map[netip.Addr]string {
	all := map[netip.Addr]string{}
	for _, n := range nodes {
		for _, a := range AddressesOf(n, Stranger) {
			if _, taken := all[a]; taken {
				all[a] = ""
			} else {
				all[a] = n.Name
			}
		}
	}
	maps.DeleteFunc(all, func(_ netip.Addr, name string) bool { return name == "" })
	return all
}
