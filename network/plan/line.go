package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/pelago-dev/pelago/network/dataplane"
)

// readLines leaves out what of lines cannot be. Peerings are in order of age: of two lines with one
// view the older one has it, and doors go before lines.
func (b *build) readLines(views []claim) {
	doors, lines := map[netip.Addr]bool{}, map[netip.Addr]string{}
	for _, p := range b.peerings {
		for _, d := range p.Doors {
			doors[d.At.Addr()] = true
		}
	}
	for _, p := range b.peerings {
		if p.Line == nil {
			continue
		}
		said := *p.Line
		p.Line = nil
		switch {
		case p.Role == Provider:
			if said.View.IsValid() || len(said.Callers)+len(said.Ports) > 0 {
				b.wrong(peeringObject(p.Key), "its line is of a provider, which calls nobody by it")
			}
			if d := b.readLineDoors(p, said.Doors); len(d) > 0 {
				p.Line = &dataplane.Line{Doors: d}
			}
			continue
		case len(said.Doors) > 0:
			b.wrong(peeringObject(p.Key), "its line is of a consumer, which has no doors there")
		}
		why, older := "", lines[said.View]
		switch at := said.View; {
		case !at.Is4():
			why = "is not of IPv4"
		case !contains(b.externalRanges, at) || slices.Contains(b.external, at):
			why = "is not one of the external range that can stand for it"
		case held(views, at) || contains(b.pods, at):
			why = "is one of a pod"
		case doors[at]:
			why = "is that of a door"
		case older != "":
			why = "is that of the line of peering " + older
		}
		if why != "" {
			b.wrong(peeringObject(p.Key), "its line's address %s %s", written(said.View), why)
			continue
		}
		lines[said.View] = p.Key
		p.Line = &dataplane.Line{View: said.View, Callers: b.readLineCallers(p, said.Callers), Ports: b.readLinePorts(p, said.Ports)}
	}
}

// written is an address as text, also if it is none.
func written(a netip.Addr) string {
	if !a.IsValid() {
		return "(none)"
	}
	return a.String()
}

// readLineCallers leaves out what is no address.
func (b *build) readLineCallers(p *peer, callers []netip.Addr) []netip.Addr {
	sorted := slices.Clone(callers)
	slices.SortFunc(sorted, netip.Addr.Compare)
	return slices.DeleteFunc(slices.Compact(sorted), func(a netip.Addr) bool {
		why := unusable(a)
		if why != "" {
			b.wrong(peeringObject(p.Key), "its line's caller %s %s", written(a), why)
		}
		return why != ""
	})
}

func (b *build) readLinePorts(p *peer, ports []uint16) []uint16 {
	sorted := slices.Compact(slices.Sorted(slices.Values(ports)))
	if len(sorted) > 0 && sorted[0] == 0 {
		b.wrong(peeringObject(p.Key), "its line has port 0, which is none")
		sorted = sorted[1:]
	}
	return sorted
}

// readLineDoors leaves out doors that lead nowhere, and all at a port that lead to several places.
func (b *build) readLineDoors(p *peer, doors []dataplane.LineDoor) []dataplane.LineDoor {
	sorted := slices.Clone(doors)
	slices.SortFunc(sorted, func(a, b dataplane.LineDoor) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), a.To.Compare(b.To), cmp.Compare(a.PerSecond, b.PerSecond), cmp.Compare(a.Burst, b.Burst))
	})
	sorted = slices.Compact(sorted)
	at := map[uint16]int{}
	for _, d := range sorted {
		at[d.Port]++
	}
	return slices.DeleteFunc(sorted, func(d dataplane.LineDoor) bool {
		why := unusable(d.To.Addr())
		switch {
		case why != "":
			why = "leads to an address that " + why
		case !d.To.Addr().Is4():
			why = "leads to an address that is not of IPv4"
		case d.Port == 0 || d.To.Port() == 0:
			why = "has no port"
		case at[d.Port] > 1:
			why = fmt.Sprintf("is one of %d at this port", at[d.Port])
		}
		if why != "" {
			b.wrong(peeringObject(p.Key), "its line's door from port %d to %s %s", d.Port, d.To, why)
		}
		return why != ""
	})
}

// lineView is the address that stands for the other end of the peering's tunnel, if one does.
func (p *peer) lineView() (view netip.Prefix, ok bool) {
	if p.Line == nil || !p.Line.View.IsValid() {
		return view, false
	}
	return netip.PrefixFrom(p.Line.View, p.Line.View.BitLen()), true
}
