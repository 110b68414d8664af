package dataplane

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Guard says which connections single pods at the two ends of a gateway may accept and begin: one
// that is isolated in a direction only those that an entry of that direction is for. Both ends of a
// connection are asked. Only its first packet is, what is open stays open; but all that the peer says in what it
// has begun without TCP. What Limited refuses, no entry allows. The order in its lists has no meaning.
//
// Addresses are real ones: of pods here as this cluster has them, of what is at the peer as the
// peer has them.
type Guard struct {
	// HereIn and HereOut are pods of this side that are isolated for what they accept and for
	// what they begin, and ThereIn and ThereOut those of the peer.
	HereIn, HereOut, ThereIn, ThereOut []netip.Addr
	Entries                            []Entry
	// Free are addresses of the peer that pods here may call over TCP whatever isolates them.
	Free []netip.AddrPort
}

// Entry lets connections pass between some pods and their peers.
type Entry struct {
	// Name tells it from all others. One that keeps its name when others come and go keeps its sets.
	Name string
	// There says that its pods are the peer's, and Out that they begin connections; else they
	// are of this side, and accept them.
	There, Out bool
	// Pods are those that it is for, and Peers, which do not overlap, who is at the other end.
	Pods  []netip.Addr
	Peers []netip.Prefix
	// Protocol is that of IP; any if 0, of any ports.
	Protocol uint8
	// Ports are those of who accepts, which do not overlap; any if there are none.
	Ports []Ports
	// Named says that instead of by Ports, and by the addresses of that end, it goes by Pairs of
	// addresses and ports of who accepts.
	Named bool
	Pairs []netip.AddrPort
}

// Ports are those from the first to the last.
type Ports struct {
	First, Last uint16
}

// Names of the chains that decide. Each goes to the next, or returns with no decision.
const (
	guardChain   = "guard"
	againChain   = "again"
	ingressChain = "ingress"
	egressChain  = "egress"
	repliesTail  = "-replies"
)

// guardPriority is after that of the policy, whose accept ends nothing but its own chain.
const guardPriority = 10

// guard makes the chains of a gateway's Guard. A packet in the middle of a connection whose
// beginning the gateway has not seen passes also if the connection could have begun at the other end. What the peer
// says on in what it has begun, and is no TCP, is asked again: the address may be another pod's by now.
func (t *table) guard(g Gateway, ends []*endSets) []chain {
	if g.Guard == nil {
		return nil
	}
	first, again := chain{name: guardChain, kind: filterChain, hook: forwarding, priority: guardPriority}, chain{name: againChain}
	again.add(cameBy(g.Tunnel), isOther(unix.IPPROTO_TCP), saidOn(), returns())
	again.add(goTo(openChain))
	first.add(connection(established), jump(againChain))
	first.lineUnguarded(g)
	for _, d := range doorsOf(g) {
		if !g.maps(d.At.Addr()) { // it asks for tokens itself
			first.add(cameBy(g.Tunnel), destinationIs(d.To, d.UDP), translated(), accept())
		}
	}
	for _, to := range g.Guard.Free {
		first.add(cameBy(insideName), destinationIs(to, false), accept())
		first.add(cameBy(g.Tunnel), middleOfTCP(), sourceIs(to, false), accept())
	}
	d := &decision{gateway: g, table: t}
	first.add(jump(ingressChain))
	first.add(middleOfTCP(), jump(ingressChain+repliesTail))
	first.add(countedDrop(DropIsolated))

	for _, reply := range []bool{false, true} {
		tail := ""
		if reply {
			tail = repliesTail
		}
		d.in = append(d.in, chain{name: ingressChain + tail})
		d.out = append(d.out, chain{name: egressChain + tail})
	}
	for i, v4 := range families {
		d.nodes(ends[i].pods)
		d.isolated(v4)
	}
	for _, e := range sortedBy(g.Guard.Entries, func(e Entry) string { return e.Name }) {
		d.entry(e)
	}
	return []chain{again, d.out[0], d.out[1], first, d.in[0], d.in[1]}
}

// decision makes the chains for what pods accept, in, and for what they begin, out: each for the
// packets that begin a connection, and for those that answer.
type decision struct {
	gateway Gateway
	table   *table
	in, out []chain
}

// nodes lets go on to pods there what pods here have not begun: the peer sees it come from an
// address that stands for nodes, which is for the peer's gateway to judge.
func (d *decision) nodes(pods *set) {
	d.in[0].add(cameBy(insideName), sourceNotIn(pods), goTo(d.out[0].name))
}

// isolated lets pass who is not isolated.
func (d *decision) isolated(v4 bool) {
	guard := d.gateway.Guard
	for _, of := range []struct {
		name       string
		pods       []netip.Addr
		there, out bool
	}{
		{"in-here", guard.HereIn, false, false}, {"in-there", guard.ThereIn, true, false},
		{"out-here", guard.HereOut, false, true}, {"out-there", guard.ThereOut, true, true},
	} {
		s := d.table.addressSet(of.name, v4, of.pods)
		d.pass(of.there, of.out, func(reply bool) []statement { return []statement{in(s, of.out != reply, true)} })
	}
}

// entry lets pass what an entry is for.
func (d *decision) entry(e Entry) {
	sum := sha256.Sum256([]byte(e.Name))
	name := "e" + hex.EncodeToString(sum[:16]) // of names that a tenant chooses: no two are alike
	var ports *set
	if !e.Named && e.Protocol != 0 && len(e.Ports) > 0 {
		ports = d.table.portSet(name+"-ports", e.Ports)
	}
	for _, v4 := range families {
		if !hasFamily(d.gateway.Views, v4) {
			continue
		}
		// Who accepts is found by pairs if there are names of ports.
		var pods, peers, pairs *set
		if !e.Named || e.Out {
			pods = d.table.addressSet(name+"-pods", v4, e.Pods)
		}
		if !e.Named || !e.Out {
			peers = d.table.prefixSet(name+"-peers", v4)
			for _, p := range e.Peers {
				peers.addPrefix(p)
			}
		}
		if e.Named {
			pairs = d.table.pairSet(name+"-pairs", v4, e.Pairs)
		}
		d.pass(e.There, e.Out, func(reply bool) (so []statement) {
			if pods != nil {
				so = append(so, in(pods, e.Out != reply, false))
			}
			if peers != nil {
				so = append(so, in(peers, e.Out == reply, false))
			}
			switch {
			case pairs != nil:
				so = append(so, pairIn(pairs, e.Protocol, reply))
			case ports != nil:
				so = append(so, portIn(ports, e.Protocol, reply))
			case e.Protocol != 0:
				so = append(so, ofProtocol(e.Protocol))
			}
			return so
		})
	}
}

// pass lets go on what is so, for pods of a side in a direction: from ingress to egress, and from
// there through the gateway.
func (d *decision) pass(there, out bool, so func(reply bool) []statement) {
	for i, reply := range []bool{false, true} {
		by := insideName
		if there == out != reply {
			by = d.gateway.Tunnel
		}
		c, verdict := &d.in[i], goTo(d.out[i].name)
		if out {
			c, verdict = &d.out[i], accept()
		}
		c.add(append(append([]statement{cameBy(by)}, so(reply)...), verdict)...)
	}
}

func hasFamily(views []View, v4 bool) bool {
	for _, v := range views {
		if v.Real.Addr().Is4() == v4 {
			return true
		}
	}
	return false
}

// checkGuard finds what is wrong with a Guard.
func checkGuard(wrong wrongFunc, field string, g *Guard) {
	if g == nil {
		return
	}
	plains := func(what string, addrs []netip.Addr) {
		for _, a := range addrs {
			if !plain(a) {
				wrong("%s: %s: %s is no address", field, what, a)
			}
		}
	}
	plains("guard.hereIn", g.HereIn)
	plains("guard.hereOut", g.HereOut)
	plains("guard.thereIn", g.ThereIn)
	plains("guard.thereOut", g.ThereOut)
	for _, to := range g.Free {
		if !plain(to.Addr()) || to.Port() == 0 {
			wrong("%s: guard.free: %s is no address with a port", field, to)
		}
	}
	names := map[string]bool{}
	for _, e := range g.Entries {
		at := "guard.entries: " + e.Name
		if e.Name == "" || names[e.Name] {
			wrong("%s: %s: its name is empty or there twice", field, at)
		}
		names[e.Name] = true
		plains(at, e.Pods)
		checkDisjoint(wrong, field+": "+at, e.Peers)
		if e.Named && e.Protocol == 0 {
			wrong("%s: %s: named ports are those of a protocol", field, at)
		}
		for _, p := range e.Pairs {
			if !plain(p.Addr()) || p.Port() == 0 {
				wrong("%s: %s: %s is no address with a port", field, at, p)
			}
		}
		sorted := sortedBy(e.Ports, func(p Ports) uint16 { return p.First })
		for i, p := range sorted {
			if p.First == 0 || p.Last < p.First || i > 0 && p.First <= sorted[i-1].Last {
				wrong("%s: %s: ports %d to %d are none, or overlap others", field, at, p.First, p.Last)
			}
		}
	}
}
