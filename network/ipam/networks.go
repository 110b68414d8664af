package ipam

import (
	"net/netip"
	"slices"
	"strings"
)

// shortestNetwork is the length of the largest network that a node is thought to be in. What is
// larger is a default route in pieces, as VPNs make them, and says nothing.
const shortestNetwork = 4

// Networks are those of some prefixes that say where a node is: plain, in order, none inside
// another, and at most so many, of which the widest are left. Default routes, however they are
// written, and addresses that mean something else than one host say nothing.
func Networks(all []netip.Prefix, most int) []netip.Prefix {
	all = slices.DeleteFunc(normal(all), func(p netip.Prefix) bool {
		return p.Bits() < shortestNetwork || slices.ContainsFunc(special, func(s meant) bool { return s.prefix.Bits() <= p.Bits() && s.prefix.Overlaps(p) })
	})
	slices.SortFunc(all, netip.Prefix.Compare)
	var apart []netip.Prefix
	for _, p := range all { // one that holds others comes right before them
		if len(apart) == 0 || !apart[len(apart)-1].Overlaps(p) {
			apart = append(apart, p)
		}
	}
	if len(apart) > most {
		slices.SortStableFunc(apart, bySize)
		apart = apart[:most]
		slices.SortFunc(apart, netip.Prefix.Compare)
	}
	return apart
}

// ParseNetworks reads networks separated by spaces, as many as count. What is none is left out.
func ParseNetworks(text string, most int) []netip.Prefix {
	var all []netip.Prefix
	for word := range strings.FieldsSeq(text[:min(len(text), most*maxText)]) {
		if p, err := plain(word); err == nil {
			all = append(all, p)
		}
	}
	return Networks(all, most)
}
