package policy

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/ipam"
)

// Amount is how much gateways make of NetworkRules.
type Amount struct {
	// Rules are those of one namespace, or of several.
	Rules int
	// Elements are about how many addresses and ports these and their pods are in gateways.
	Elements int
}

// AmountOf is that of one shard, as gateways count it.
func AmountOf(s *v1alpha1.NetworkRulesSpec) Amount {
	a := Amount{Rules: len(s.Rules)}
	for i := range s.Rules {
		r := &s.Rules[i]
		a.Elements += 2 * (1 + len(r.Ports))
		for _, b := range r.Blocks {
			first, err := netip.ParseAddr(b.First)
			last, err2 := netip.ParseAddr(b.Last)
			if err == nil && err2 == nil && first.BitLen() == last.BitLen() && !last.Less(first) {
				a.Elements += 2 * len(ipam.Between(first, last))
			}
		}
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		a.Elements += 2 * (1 + len(p.Selected) + len(p.PeerOf))
		for _, ports := range p.Ports {
			a.Elements += 2 * len(ports.Ports)
		}
	}
	return a
}

// Plus is both together.
func (a Amount) Plus(b Amount) Amount { return Amount{a.Rules + b.Rules, a.Elements + b.Elements} }

// Fits says whether gateways take as much of one peering.
func (a Amount) Fits() bool {
	return a.Rules <= v1alpha1.MaxNetworkPeeringRules && a.Elements <= v1alpha1.MaxNetworkPeeringElements
}

// Beyond are the namespaces of a peering whose rules gateways do not take, in order: they go by the names, and
// leave out what does not fit.
func Beyond(of map[string]Amount) (left []string) {
	var taken Amount
	for _, namespace := range slices.Sorted(maps.Keys(of)) {
		if more := taken.Plus(of[namespace]); more.Fits() {
			taken = more
		} else {
			left = append(left, namespace)
		}
	}
	return left
}
