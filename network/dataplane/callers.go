package dataplane

import (
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Callers are pods of a side's own that may call what the other side has opened. What they begin is marked,
// and each packet of it is looked up: so it ends with the first packet after who called may not any more, or
// what he called is open no more, whoever was the agent then. Who is let by other sets is never marked.

// calledMark is on connections that callers have begun. It differs from endedMark in one bit, so that one
// look drops what is of neither.
const (
	calledMark = endedMark | calledBit
	calledBit  = 2
)

// calls says whether somebody is a caller at one end or the other.
func (g Gateway) calls() bool { return len(g.Callers)+len(g.Open) > 0 }

// ended holds for what was ended; where not all pods take part also for what callers have begun, which is to
// pass before this if it may.
func (g Gateway) ended() statement {
	if g.Limited {
		return noted(endedMark, everyBit&^calledBit, false)
	}
	return noted(endedMark, everyBit, false)
}

// calledChain is where packets of what callers have begun pass, while that may go on. Whoever was called
// begins nothing by it. What it lets not pass is dropped as ended.
const calledChain = "called"

// called makes that chain, if there are callers.
func called(g Gateway, ends []*endSets) []chain {
	if !g.calls() {
		return nil
	}
	c := chain{name: calledChain}
	for _, s := range ends {
		if g.shuts() {
			c.shut(g, s)
		}
	}
	c.add(connection(related), accept())
	for _, s := range ends {
		if s.callers != nil {
			c.goesOn(insideName, g.Tunnel, sourceIn(s.callers), destinationIn(s.callers))
		}
		if s.open != nil {
			c.goesOn(g.Tunnel, insideName, destinationIn(s.open), sourceIn(s.open))
		}
	}
	return []chain{c}
}

// goesOn lets pass what comes by the caller's device and is so, and by the other one what answers it.
func (c *chain) goesOn(by, other string, so, answers statement) {
	c.add(cameBy(by), leavesBy(other), so, accept())
	c.add(cameBy(other), beginsTCP(), answers, countedDrop(DropDenied))
	c.add(cameBy(other), leavesBy(by), answers, accept())
}

// call lets callers begin, and pass what is in the middle of what they have begun elsewhere.
func (c *chain) call(g Gateway, s *endSets) {
	mark := note(calledMark)
	if s.callers != nil {
		c.add(cameBy(insideName), sourceIn(s.callers), destinationIn(s.there), mark, accept())
		c.add(cameBy(g.Tunnel), middleOfTCP(), sourceIn(s.there), destinationIn(s.callers), mark, accept())
	}
	if s.open != nil {
		c.add(cameBy(g.Tunnel), destinationIn(s.open), mark, accept())
		c.add(cameBy(insideName), middleOfTCP(), sourceIn(s.open), mark, accept())
	}
}

// beginsTCP holds for segments that begin a connection, and not for the answer to one.
func beginsTCP() statement {
	return statement{text: "tcp flags syn / syn,rst,ack", exprs: append(protocolIs(unix.IPPROTO_TCP),
		transport(tcpFlagsAt, 1), mask([]byte{tcpSyn | tcpRst | tcpAck}),
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{tcpSyn}})}
}

// lent says whether a connection goes on as that of a caller, and as nothing else. What has no ports begins anew.
func (p passage) lent(f flow) bool {
	g := p.gateway
	if is, _ := p.line(f); is || !f.ported || !g.Limited || g.Closed || p.probe(f) || p.shutFlow(f) || p.keeps(f, true) {
		return false
	}
	if f.called {
		return p.open[f.ours]
	}
	return p.callers[f.ours] && p.there[f.theirs]
}

// checkCallers finds what is wrong with callers and what is open to them.
func checkCallers(wrong wrongFunc, field string, g Gateway) {
	if g.calls() && (!g.Limited || g.Closed) {
		wrong("%s: it has callers, or something open to them, and is not limited or is closed", field)
	}
	here := map[netip.Addr]bool{}
	for _, a := range g.Here {
		here[a] = true
	}
	for _, a := range g.Callers {
		if here[a] {
			wrong("%s: callers: %s is one of here, too", field, a)
		}
	}
}
