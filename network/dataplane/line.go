package dataplane

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Line lets some here call the other end of the tunnel, and the other end call something here:
// clusters speak with each other by it, and not pods. The order in its lists has no meaning.
type Line struct {
	// Views are the addresses here that stand for the other end, at most one of each family; none if
	// nobody here calls it.
	Views []netip.Addr
	// Callers are the addresses here that may call it, at the TCP ports Ports, by the view of their
	// family.
	Callers []netip.Addr
	Ports   []uint16
	// Doors are what the other end may call at this one, over TCP, by the port and the family.
	Doors []LineDoor
}

// LineDoor is a port of this end of the tunnel and what it stands for, of the family in which it is
// called. That sees this node as the client: by its address, and what runs on it by one of no network.
type LineDoor struct {
	Port uint16
	To   netip.AddrPort
	// PerSecond is how many connections may begin in a second once Burst have begun at once, 0 for
	// any number. With other ones it counts anew.
	PerSecond, Burst uint32
}

// view is the address of a family by which somebody here may call the other end of the tunnel.
func (l *Line) view(v4 bool) netip.Addr {
	if l == nil {
		return netip.Addr{}
	}
	return ofFamily(l.Views, v4)
}

// doors are the doors of a line in a family, in order.
func (l *Line) doors(v4 bool) []LineDoor {
	if l == nil {
		return nil
	}
	all := slices.DeleteFunc(slices.Clone(l.Doors), func(d LineDoor) bool { return d.To.Addr().Is4() != v4 })
	return sortedBy(all, func(d LineDoor) uint16 { return d.Port })
}

// of says whether the line has to do with a family: with IPv4 always, as probes go by it.
func (l *Line) of(v4 bool) bool {
	return l != nil && (v4 || l.view(v4).IsValid() || len(l.doors(v4)) > 0)
}

// ends are this end of the tunnel and the other one in a family.
func (g Gateway) ends(v4 bool) (at, peer netip.Addr) {
	if v4 {
		return g.ProbeAt, g.ProbePeer
	}
	return g.LineAt, g.LinePeer
}

// lineEnd is what stands on this node for the other end of a tunnel whose line has doors in a family.
type lineEnd struct {
	peering string
	v4      bool
}

// lineEnds are the addresses on this node that stand for the other ends of tunnels whose lines have
// doors. All other ends have the same addresses, and each gateway's are of its own namespace. Peers
// choose their names, so who was first has its addresses, whoever comes.
func lineEnds(c Config, nodes map[string]number) map[lineEnd]netip.Addr {
	var names []string
	gateways := slices.Clone(c.Gateways)
	slices.SortFunc(gateways, func(a, b Gateway) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Peering, b.Peering)) })
	for _, g := range gateways {
		if g.Line != nil && len(g.Line.Doors) > 0 {
			names = append(names, g.Peering)
		}
	}
	given := numbersBeside(names, nodes, c.own)
	ends := make(map[lineEnd]netip.Addr, len(names))
	for _, g := range gateways {
		for _, v4 := range families {
			if len(g.Line.doors(v4)) > 0 {
				ends[lineEnd{g.Peering, v4}] = given[g.Peering].lineEnd(v4)
			}
		}
	}
	return ends
}

// translateLine leads what is for the line: views to the other end, of which this end seems to call,
// and doors to what they stand for.
func translateLine(c Config, g Gateway, destination, source *chain) {
	for _, v4 := range families {
		at, peer := g.ends(v4)
		if view := g.Line.view(v4); view.IsValid() {
			destination.add(cameBy(insideName), isTo(view), dnatToAddress(peer))
			source.add(cameBy(insideName), leavesBy(g.Tunnel), isTo(peer), snatTo(at))
		}
		doors := g.Line.doors(v4)
		for _, d := range doors {
			destination.add(cameBy(g.Tunnel), isFrom(peer), destinationIs(netip.AddrPortFrom(at, d.Port), false), dnatTo(d.To))
		}
		if len(doors) > 0 {
			source.add(cameBy(g.Tunnel), leavesBy(insideName), isFrom(peer), snatTo(lineEnds(c, c.numbers())[lineEnd{g.Peering, v4}]))
		}
	}
}

// line lets pass what callers say to the other end, and what that says to doors, of established
// connections too where these do not pass by themselves. Nothing else is for the other end or from it.
func (c *chain) line(t *table, g Gateway, strict bool) {
	if g.Line == nil {
		return
	}
	var ports *set
	if len(g.Line.Views) > 0 {
		ports = t.portSet("line-ports", singlePorts(g.Line.Ports))
	}
	for _, v4 := range families {
		_, peer := g.ends(v4)
		if !g.Line.of(v4) {
			continue
		}
		if g.Line.view(v4).IsValid() {
			callers := t.addressSet("line-callers", v4, g.Line.Callers)
			if strict {
				c.add(cameBy(g.Tunnel), connection(established), isFrom(peer), destinationIn(callers), portIn(ports, unix.IPPROTO_TCP, true), accept())
			}
			c.add(cameBy(insideName), isTo(peer), sourceIn(callers), portIn(ports, unix.IPPROTO_TCP, false), accept())
		}
		for _, d := range g.Line.doors(v4) {
			if strict {
				c.add(cameBy(insideName), connection(established), isTo(peer), sourceIs(d.To, false), translated(), accept())
			}
			if d.PerSecond > 0 {
				c.add(cameBy(g.Tunnel), isFrom(peer), connection(fresh), destinationIs(d.To, false), translated(), t.limit(fmt.Sprintf("line-%d-%s", d.Port, familyName(v4)), fasterThan(d.PerSecond, d.Burst), DropFull))
			}
			c.add(cameBy(g.Tunnel), isFrom(peer), destinationIs(d.To, false), translated(), accept())
		}
		c.add(cameBy(insideName), isTo(peer), countedDrop(DropDenied))
		c.add(cameBy(g.Tunnel), isFrom(peer), countedDrop(DropDenied))
	}
}

// lineUnguarded lets pass what the policy has let pass of the line: it is no pod's.
func (c *chain) lineUnguarded(g Gateway) {
	for _, v4 := range families {
		if _, peer := g.ends(v4); g.Line.of(v4) {
			c.add(cameBy(insideName), isTo(peer), accept())
			c.add(cameBy(g.Tunnel), isFrom(peer), accept())
		}
	}
}

func singlePorts(ports []uint16) (out []Ports) {
	for _, p := range ports {
		out = append(out, Ports{p, p})
	}
	return out
}

// said is all that a line says, the same for lists in another order.
func (l *Line) said() string {
	if l == nil {
		return ""
	}
	views, callers := sortedBy(l.Views, netip.Addr.String), sortedBy(l.Callers, netip.Addr.String)
	return fmt.Sprint(views, callers, sortedBy(l.Ports, func(p uint16) uint16 { return p }), l.doors(true), l.doors(false))
}

// line says whether a connection is one of the line, and if so whether it goes on. Probes are none.
func (p passage) line(f flow) (is, goes bool) {
	v4, l := f.from.Is4(), p.gateway.Line
	at, peer := p.gateway.ends(v4)
	switch {
	case !f.tcp || !peer.IsValid():
		return false, false
	case f.answers.Addr() == peer && f.from != at:
		return true, l != nil && f.to.Addr() == l.view(v4) && slices.Contains(l.Callers, f.from) && slices.Contains(l.Ports, f.to.Port())
	case f.from == peer && f.answers.Addr() != at:
		return true, slices.ContainsFunc(l.doors(v4), func(d LineDoor) bool { return d.Port == f.to.Port() && d.To == f.answers })
	}
	return false, false
}

// checkLine finds what is wrong with a Line.
func checkLine(wrong wrongFunc, field string, g Gateway) {
	l := g.Line
	if l == nil {
		return
	}
	if !g.ProbeAt.IsValid() || !g.ProbePeer.IsValid() {
		wrong("%s: line: the tunnel's ends have no addresses", field)
	}
	if len(l.Views) == 0 && len(l.Callers)+len(l.Ports) > 0 {
		wrong("%s: line: there are callers or ports, and no view", field)
	}
	checkFamilies(wrong, field+": line: views", l.Views)
	for _, view := range l.Views {
		switch at, _ := g.ends(view.Is4()); {
		case !at.IsValid():
			wrong("%s: line: its view %s is of a family in which the tunnel has no ends", field, view)
		case slices.ContainsFunc(g.Views, func(v View) bool { return v.View.Contains(view) }):
			wrong("%s: line: its view %s is one of a pod of the peer", field, view)
		case slices.ContainsFunc(g.Doors, func(d Door) bool { return d.At.Addr() == view }):
			wrong("%s: line: its view %s is where a door is", field, view)
		}
	}
	for i, a := range l.Callers {
		if !plain(a) || slices.Contains(l.Callers[:i], a) {
			wrong("%s: line: caller %s is no address or there twice", field, a)
		}
	}
	for i, port := range l.Ports {
		if port == 0 || slices.Contains(l.Ports[:i], port) {
			wrong("%s: line: port %d is none or there twice", field, port)
		}
	}
	type place struct {
		port uint16
		v4   bool
	}
	seen := map[place]bool{}
	for _, d := range l.Doors {
		is := place{d.Port, d.To.Addr().Is4()}
		if at, _ := g.ends(is.v4); d.Port == 0 || seen[is] || !plain(d.To.Addr()) || !at.IsValid() || d.To.Port() == 0 {
			wrong("%s: line: a door from port %d to %s is none, of a family in which the tunnel has no ends, or there twice", field, d.Port, d.To)
		}
		seen[is] = true
	}
}
