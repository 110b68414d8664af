package dataplane

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// toldChain knows again what the peer has to be told of if it is too large for this node, or has come
// too far: what is from its addresses, and for pods here or what is mapped. What translations made of a
// packet until then is made undone where an error quotes it: the error belongs to the packet's connection
// from the start. So the peer is told of what is mapped, and not where that leads to.
func toldChain(g Gateway, ends []*endSets) chain {
	told := chain{name: "told", kind: filterChain, hook: prerouting, priority: afterDestinations}
	told.add(cameByOther(g.Tunnel), accept())
	for _, d := range doorsOf(g) { // which may lead to a pod
		if !g.maps(d.At.Addr()) {
			told.add(destinationIs(d.To, d.UDP), translated(), accept())
		}
	}
	for _, s := range ends {
		told.add(sourceIn(s.peer), destinationIn(s.pods), setMark(answerMark))
		if len(g.Mapped) > 0 {
			told.add(noted(mappedBits, mappedMask, false), sourceIn(s.peer), setMark(answerMark))
		}
	}
	return told
}

// afterDestinations is after translations of destinations.
const afterDestinations = -90

// answersChain is for what the gateway itself says: to the host answers to what came from there, and no
// others; to who sent what came out of the tunnel that a packet was too large, or had come too far, and resets.
// The kernel sends echoes and errors to whoever a packet says it is from, and what comes out of the tunnel
// may say anything. Who asks how far it is is told here only if it is a pod, and at the peer only of a
// connection of which something has passed: nobody finds out so what is behind this gateway.
func answersChain(g Gateway, ends []*endSets) chain {
	answers := chain{name: "answers", kind: filterChain, hook: output, priority: 0}
	answers.add(leavesBy(insideName), markedOther(insideMark), countedDrop(DropLocal))
	for i, v4 := range families {
		answers.add(leavesBy(insideName), tooFar(v4), destinationNotIn(ends[i].pods), countedDrop(DropLocal))
		answers.add(leavesBy(g.Tunnel), tooLarge(v4), accept())
		answers.add(leavesBy(g.Tunnel), tooFar(v4), confirmed(), accept())
	}
	answers.add(leavesBy(g.Tunnel), isOther(unix.IPPROTO_TCP), markedAs(answerMark), countedDrop(DropLocal))
	return answers
}

// hopsChain gives who says that a packet has come too far one address for each side: translations make
// its address that of the end of the connection, as if that had been reached, and a router's own is nobody
// else's to know.
func hopsChain(g Gateway) chain {
	hops := chain{name: "hops", kind: filterChain, hook: postrouting, priority: afterSources}
	for _, v4 := range families {
		from := placeOf(v4, true)
		hops.add(tooFar(v4), cameBy(g.Tunnel), leavesBy(insideName), from.becomes(single(beyondSource(v4))), accept())
		hops.add(tooFar(v4), from.becomes(single(errorSource(v4))))
	}
	return hops
}

// afterSources is after translations of sources, and before those of each packet by itself.
const afterSources = 150

// tooLarge holds for errors that say that a packet was too large.
func tooLarge(v4 bool) statement {
	if v4 { // it may not be sent in fragments
		return statement{text: "icmp type 3 code 4", v4: &v4, exprs: append(protocolIs(unix.IPPROTO_ICMP), transport(0, 2),
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{3, 4}})}
	}
	return statement{text: "icmpv6 type 2", v4: &v4, exprs: append(protocolIs(unix.IPPROTO_ICMPV6), transport(0, 1),
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{2}})}
}

// tooFar holds for errors that say that a packet has come too far.
func tooFar(v4 bool) statement {
	kind, text, protocol := byte(3), "icmpv6 type 3 code 0", byte(unix.IPPROTO_ICMPV6)
	if v4 {
		kind, text, protocol = 11, "icmp type 11 code 0", unix.IPPROTO_ICMP
	}
	return statement{text: text, v4: &v4, exprs: append(protocolIs(protocol), transport(0, 2),
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{kind, 0}})}
}

// errors lets pass what pods are told of the connections that they have, where not all of these pass by
// themselves: it comes from whoever is on the way. Who is out of reach is told nothing.
func (c *chain) errors(g Gateway, s *endSets, v4 bool) {
	for _, is := range []statement{tooLarge(v4), tooFar(v4)} {
		c.add(cameBy(g.Tunnel), connection(related), is, destinationIn(s.pods), destinationNotIn(s.shutHere), accept())
	}
}
