package dataplane

import (
	"fmt"
	"net/netip"
)

// Party are pods of the peer that belong to one of those who reach each other through this cluster,
// where others of the peer belong to this cluster itself: they speak with nobody here but their own.
type Party struct {
	// There are the pods, by their real addresses at the peer.
	There []netip.Addr
	// Ranges are prefixes, of this cluster's numbering, that nobody else of the peer speaks with, and
	// With are more addresses that the pods may speak with.
	Ranges []netip.Prefix
	With   []netip.Addr
}

// partySets are one family's part of a Party.
type partySets struct{ there, ranges, with *set }

func (t *table) partySets(parties []Party, v4 bool) (all []partySets) {
	for i, p := range parties {
		s := partySets{
			there:  t.addressSet(fmt.Sprintf("party%d-there", i), v4, p.There),
			ranges: t.prefixSet(fmt.Sprintf("party%d-ranges", i), v4),
			with:   t.prefixSet(fmt.Sprintf("party%d-with", i), v4),
		}
		for _, r := range p.Ranges {
			s.ranges.addPrefix(r)
			s.with.addPrefix(r)
		}
		for _, a := range p.With {
			if !containedIn(p.Ranges, a) {
				s.with.addPrefix(single(a))
			}
		}
		all = append(all, s)
	}
	return all
}

// parties drops what would leave a party, or enter it, whoever begins.
func (c *chain) parties(g Gateway, all []partySets) {
	for _, p := range all {
		c.add(cameBy(g.Tunnel), sourceIn(p.there), destinationNotIn(p.with), countedDrop(DropDenied))
		c.add(cameBy(g.Tunnel), destinationIn(p.ranges), sourceNotIn(p.there), countedDrop(DropDenied))
		c.add(cameBy(insideName), destinationIn(p.there), sourceNotIn(p.with), countedDrop(DropDenied))
		c.add(cameBy(insideName), sourceIn(p.ranges), destinationNotIn(p.there), countedDrop(DropDenied))
	}
}

// checkParties finds what is wrong with Parties: nobody is in two of them.
func checkParties(wrong wrongFunc, field string, parties []Party) {
	there := map[netip.Addr]bool{}
	var ranges []netip.Prefix
	for _, p := range parties {
		for _, a := range p.There {
			if !plain(a) || there[a] {
				wrong("%s: parties: %s is no address or there twice", field, a)
			}
			there[a] = true
		}
		for _, a := range p.With {
			if !plain(a) {
				wrong("%s: parties: %s is no address", field, a)
			}
		}
		ranges = append(ranges, p.Ranges...)
	}
	checkDisjoint(wrong, field+": parties", ranges)
}
