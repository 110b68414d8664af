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
	// View is the address here that stands for the other end, of IPv4; none if nobody here
	// calls it.
	View netip.Addr
	// Callers are the addresses here that may call it, at the TCP ports Ports. Those of IPv6 cannot.
	Callers []netip.Addr
	Ports   []uint16
	// Doors are what the other end may call at this one, over TCP, by the port.
	Doors []LineDoor
}

// LineDoor is a port of this end of the tunnel and what it stands for, of IPv4, which sees this node
// as the client: by its address, and what runs on it by a link-local one.
type LineDoor struct {
	Port uint16
	To   netip.AddrPort
	// PerSecond is how many connections may begin in a second once Burst have begun at once, 0 for
	// any number. A table that is written anew counts anew.
	PerSecond, Burst uint32
}

// calls says whether somebody here may call the other end of the tunnel.
func (l *Line) calls() bool { return l != nil && l.View.IsValid() }

// doors are the doors of a line, in order.
func (l *Line) doors() []LineDoor {
	if l == nil {
		return nil
	}
	return sortedBy(l.Doors, func(d LineDoor) uint16 { return d.Port })
}

// lineEnds are the addresses on this node that stand for the other ends of tunnels whose lines have
// doors, by peering. All other ends have the same address, and each gateway's is of its own namespace.
// Peers choose their names, so who was first has its address, whoever comes.
func lineEnds(c Config, nodes map[string]number) map[string]netip.Addr {
	var names []string
	gateways := slices.Clone(c.Gateways)
	slices.SortFunc(gateways, func(a, b Gateway) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Peering, b.Peering)) })
	for _, g := range gateways {
		if len(g.Line.doors()) > 0 {
			names = append(names, g.Peering)
		}
	}
	ends := make(map[string]netip.Addr, len(names))
	for name, n := range numbersBeside(names, nodes) {
		ends[name] = n.nextHop(true)
	}
	return ends
}

// translateLine leads what is for the line: View to the other end, of which this end seems to call,
// and doors to what they stand for.
func translateLine(c Config, g Gateway, destination, source *chain) {
	if g.Line.calls() {
		destination.add(cameBy(insideName), isTo(g.Line.View), dnatToAddress(g.ProbePeer))
		source.add(cameBy(insideName), leavesBy(g.Tunnel), isTo(g.ProbePeer), snatTo(g.ProbeAt))
	}
	doors := g.Line.doors()
	for _, d := range doors {
		destination.add(cameBy(g.Tunnel), isFrom(g.ProbePeer), destinationIs(netip.AddrPortFrom(g.ProbeAt, d.Port), false), dnatTo(d.To))
	}
	if len(doors) > 0 {
		source.add(cameBy(g.Tunnel), leavesBy(insideName), isFrom(g.ProbePeer), snatTo(lineEnds(c, numbers(namesOf(c.Others)))[g.Peering]))
	}
}

// line lets pass what callers say to the other end, and what that says to doors, of established
// connections too where these do not pass by themselves. Nothing else is for the other end or from it.
func (c *chain) line(t *table, g Gateway, strict bool) {
	if g.Line == nil {
		return
	}
	if g.Line.calls() {
		callers, ports := t.addressSet("line-callers", true, g.Line.Callers), t.portSet("line-ports", singlePorts(g.Line.Ports))
		if strict {
			c.add(cameBy(g.Tunnel), connection(established), isFrom(g.ProbePeer), destinationIn(callers), portIn(ports, unix.IPPROTO_TCP, true), accept())
		}
		c.add(cameBy(insideName), isTo(g.ProbePeer), sourceIn(callers), portIn(ports, unix.IPPROTO_TCP, false), accept())
	}
	for _, d := range g.Line.doors() {
		if strict {
			c.add(cameBy(insideName), connection(established), isTo(g.ProbePeer), sourceIs(d.To, false), translated(), accept())
		}
		if d.PerSecond > 0 {
			c.add(cameBy(g.Tunnel), isFrom(g.ProbePeer), connection(fresh), destinationIs(d.To, false), translated(), fasterThan(d.PerSecond, d.Burst), countedDrop(DropFull))
		}
		c.add(cameBy(g.Tunnel), isFrom(g.ProbePeer), destinationIs(d.To, false), translated(), accept())
	}
	c.add(cameBy(insideName), isTo(g.ProbePeer), countedDrop(DropDenied))
	c.add(cameBy(g.Tunnel), isFrom(g.ProbePeer), countedDrop(DropDenied))
}

// lineUnguarded lets pass what the policy has let pass of the line: it is no pod's.
func (c *chain) lineUnguarded(g Gateway) {
	if g.Line != nil {
		c.add(cameBy(insideName), isTo(g.ProbePeer), accept())
		c.add(cameBy(g.Tunnel), isFrom(g.ProbePeer), accept())
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
	callers := sortedBy(l.Callers, netip.Addr.String)
	return fmt.Sprint(l.View, callers, sortedBy(l.Ports, func(p uint16) uint16 { return p }), l.doors())
}

// line says whether a connection is one of the line, and if so whether it goes on. Probes are none.
func (p passage) line(f flow) (is, goes bool) {
	at, peer, l := p.gateway.ProbeAt, p.gateway.ProbePeer, p.gateway.Line
	switch {
	case !f.tcp || !peer.IsValid():
		return false, false
	case f.answers.Addr() == peer && f.from != at:
		return true, l != nil && f.to.Addr() == l.View && slices.Contains(l.Callers, f.from) && slices.Contains(l.Ports, f.to.Port())
	case f.from == peer && f.answers.Addr() != at:
		return true, slices.ContainsFunc(l.doors(), func(d LineDoor) bool { return d.Port == f.to.Port() && d.To == f.answers })
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
	switch {
	case !l.View.IsValid():
		if len(l.Callers)+len(l.Ports) > 0 {
			wrong("%s: line: there are callers or ports, and no view", field)
		}
	case !l.View.Is4():
		wrong("%s: line: its view %s is not of IPv4", field, l.View)
	case slices.ContainsFunc(g.Views, func(v View) bool { return v.View.Contains(l.View) }):
		wrong("%s: line: its view %s is one of a pod of the peer", field, l.View)
	case slices.ContainsFunc(g.Doors, func(d Door) bool { return d.At.Addr() == l.View }):
		wrong("%s: line: its view %s is where a door is", field, l.View)
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
	seen := map[uint16]bool{}
	for _, d := range l.Doors {
		if d.Port == 0 || seen[d.Port] || !d.To.Addr().Is4() || d.To.Port() == 0 {
			wrong("%s: line: a door from port %d to %s is none, not of IPv4, or there twice", field, d.Port, d.To)
		}
		seen[d.Port] = true
	}
}
