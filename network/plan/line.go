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
	taken := func(at netip.Addr) (why string) {
		switch older := lines[at]; {
		case !at.IsValid():
			return "is none"
		case !contains(b.externalRanges, at) || slices.Contains(b.external, at):
			return "is not one of the external range that can stand for it"
		case held(views, at) || contains(b.pods, at):
			return "is one of a pod"
		case doors[at]:
			return "is that of a door"
		case older != "":
			return "is that of the line of peering " + older
		}
		return ""
	}
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
			if len(said.Views)+len(said.Callers)+len(said.Ports) > 0 {
				b.wrong(peeringObject(p.Key), "its line is of a provider, which calls nobody by it")
			}
			if d := b.readLineDoors(p, said.Doors); len(d) > 0 {
				p.Line = &dataplane.Line{Doors: d}
			}
			continue
		case len(said.Doors) > 0:
			b.wrong(peeringObject(p.Key), "its line is of a consumer, which has no doors there")
		}
		var at []netip.Addr
		sorted := slices.Clone(said.Views)
		slices.SortFunc(sorted, netip.Addr.Compare)
		for _, view := range slices.Compact(sorted) {
			why := taken(view)
			if why == "" && firstOf(at, view.Is4()).IsValid() {
				why = "is the second one of IPv" + familyName(view.Is4())
			}
			if why != "" {
				b.wrong(peeringObject(p.Key), "its line's address %s %s", written(view), why)
				continue
			}
			at = append(at, view)
		}
		if len(said.Views) == 0 {
			b.wrong(peeringObject(p.Key), "its line has no address")
		}
		for _, view := range at {
			lines[view] = p.Key
		}
		if len(at) > 0 {
			p.Line = &dataplane.Line{Views: at, Callers: b.readLineCallers(p, said.Callers), Ports: b.readLinePorts(p, said.Ports)}
		}
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

// readLineDoors leaves out doors that lead nowhere, and all at a port that lead to several places of a
// family.
func (b *build) readLineDoors(p *peer, doors []dataplane.LineDoor) []dataplane.LineDoor {
	sorted := slices.Clone(doors)
	slices.SortFunc(sorted, func(a, b dataplane.LineDoor) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), a.To.Compare(b.To), cmp.Compare(a.PerSecond, b.PerSecond), cmp.Compare(a.Burst, b.Burst))
	})
	sorted = slices.Compact(sorted)
	type place struct {
		port uint16
		v4   bool
	}
	of := func(d dataplane.LineDoor) place { return place{d.Port, d.To.Addr().Is4()} }
	at := map[place]int{}
	for _, d := range sorted {
		at[of(d)]++
	}
	return slices.DeleteFunc(sorted, func(d dataplane.LineDoor) bool {
		why := unusable(d.To.Addr())
		switch {
		case why != "":
			why = "leads to an address that " + why
		case d.Port == 0 || d.To.Port() == 0:
			why = "has no port"
		case at[of(d)] > 1:
			why = fmt.Sprintf("is one of %d at this port", at[of(d)])
		}
		if why != "" {
			b.wrong(peeringObject(p.Key), "its line's door from port %d to %s %s", d.Port, d.To, why)
		}
		return why != ""
	})
}

// lineViews are the addresses that stand for the other end of the peering's tunnel.
func (p *peer) lineViews() (views []netip.Prefix) {
	if p.Line == nil {
		return nil
	}
	for _, a := range p.Line.Views {
		views = append(views, netip.PrefixFrom(a, a.BitLen()))
	}
	return views
}
