package plan

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/pelago-dev/pelago/network/dataplane"
)

// guard is a peering's Guard without what cannot be. What is left out lets nothing pass: an entry
// that is not understood is none, and of pods only such are not isolated as nobody can be.
func (b *build) guard(p *peer) *dataplane.Guard {
	if p.Guard == nil {
		return nil
	}
	object := peeringObject(p.Key)
	g := &dataplane.Guard{
		HereIn: usableOf(p.Guard.HereIn), HereOut: usableOf(p.Guard.HereOut),
		ThereIn: usableOf(p.Guard.ThereIn), ThereOut: usableOf(p.Guard.ThereOut), Free: pairsOf(p.Guard.Free),
	}
	names := map[string]int{}
	for _, e := range p.Guard.Entries {
		names[e.Name]++
	}
	for _, e := range p.Guard.Entries {
		ports, ok := portsOf(e.Ports)
		switch {
		case e.Name == "" || names[e.Name] > 1:
			b.wrong(object, "an entry of its guard has no name, or that of another one")
			continue
		case !ok || e.Named && e.Protocol == 0 || e.Protocol == 0 && len(ports) > 0:
			b.wrong(object, "an entry of its guard has ports that are none")
			continue
		}
		e.Ports, e.Pods, e.Pairs, e.Peers = ports, usableOf(e.Pods), pairsOf(e.Pairs), Union(e.Peers)
		g.Entries = append(g.Entries, e)
	}
	slices.SortFunc(g.Entries, func(a, b dataplane.Entry) int { return cmp.Compare(a.Name, b.Name) })
	return g
}

// usableOf are those addresses that somebody can have, each once.
func usableOf(addrs []netip.Addr) []netip.Addr {
	sorted := slices.Clone(addrs)
	slices.SortFunc(sorted, netip.Addr.Compare)
	return slices.DeleteFunc(slices.Compact(sorted), func(a netip.Addr) bool { return unusable(a) != "" })
}

func pairsOf(pairs []netip.AddrPort) []netip.AddrPort {
	sorted := slices.Clone(pairs)
	slices.SortFunc(sorted, netip.AddrPort.Compare)
	return slices.DeleteFunc(slices.Compact(sorted), func(p netip.AddrPort) bool { return unusable(p.Addr()) != "" || p.Port() == 0 })
}

// portsOf are ports in order, those together that overlap.
func portsOf(ports []dataplane.Ports) (merged []dataplane.Ports, ok bool) {
	sorted := slices.Clone(ports)
	slices.SortFunc(sorted, func(a, b dataplane.Ports) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	for _, p := range sorted {
		if p.First == 0 || p.Last < p.First {
			return nil, false
		}
		if n := len(merged); n > 0 && p.First <= merged[n-1].Last {
			merged[n-1].Last = max(merged[n-1].Last, p.Last)
			continue
		}
		merged = append(merged, p)
	}
	return merged, true
}

// Union are prefixes that hold the same addresses, in order, of which none is within another; what is
// no prefix is left out.
func Union(prefixes []netip.Prefix) (union []netip.Prefix) {
	sorted := slices.DeleteFunc(slices.Clone(prefixes), func(p netip.Prefix) bool { return !sound(p) })
	slices.SortFunc(sorted, func(a, b netip.Prefix) int { return claim{a, 0}.compare(claim{b, 0}) })
	for _, p := range sorted {
		if n := len(union); n == 0 || !union[n-1].Overlaps(p) {
			union = append(union, p)
		}
	}
	return union
}
