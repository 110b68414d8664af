package plan

import (
	"net/netip"
	"slices"

	"github.com/pelago-dev/pelago/network/dataplane"
)

// readParties leaves out of parties what cannot be: nobody is in two, the first one has him, and
// only what leads through this cluster is anybody's alone.
func (b *build) readParties(p *peer) {
	if p.Closed {
		p.Parties = nil
	}
	there := map[netip.Addr]bool{}
	var ranges []netip.Prefix
	var parties []dataplane.Party
	for _, party := range p.Parties {
		next := dataplane.Party{With: usableOf(party.With)}
		for _, a := range usableOf(party.There) {
			if there[a] {
				b.wrong(peeringObject(p.Key), "the address %s is in two parties", a)
				continue
			}
			there[a] = true
			next.There = append(next.There, a)
		}
		for _, r := range Union(party.Ranges) {
			if !slices.Contains(p.Transit, r) || slices.Contains(ranges, r) {
				b.wrong(peeringObject(p.Key), "the range %s of a party is none of its transit, or that of another party", r)
				continue
			}
			ranges, next.Ranges = append(ranges, r), append(next.Ranges, r)
		}
		parties = append(parties, next)
	}
	p.Parties = parties
}
