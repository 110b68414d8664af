package dataplane

import (
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// toldChain knows again what the peer has to be told of if it is too large for this node: what is from
// its addresses, and for pods here. An error quotes what translations made of the packet until then: what
// came through a door, or for a node, would tell the peer addresses that are not its to know.
func toldChain(g Gateway, ends []*endSets) chain {
	told := chain{name: "told", kind: filterChain, hook: prerouting, priority: afterDestinations}
	for _, d := range doorsOf(g) { // which may lead to a pod
		told.add(cameBy(g.Tunnel), destinationIs(d.To, d.UDP), translated(), accept())
	}
	for _, s := range ends {
		told.add(cameBy(g.Tunnel), sourceIn(s.peer), destinationIn(s.pods), setMark(answerMark))
	}
	return told
}

// afterDestinations is after translations of destinations.
const afterDestinations = -90

// answersChain is for what the gateway itself says: to the host answers to what came from there, and no
// others; to who sent what came out of the tunnel that a packet was too large, and resets. The kernel
// sends echoes and errors to whoever a packet says it is from, and what comes out of the tunnel may say anything.
func answersChain(g Gateway) chain {
	answers := chain{name: "answers", kind: filterChain, hook: output, priority: 0}
	answers.add(leavesBy(insideName), markedOther(insideMark), countedDrop(DropLocal))
	for _, v4 := range families {
		answers.add(leavesBy(g.Tunnel), tooLarge(v4), accept())
	}
	answers.add(leavesBy(g.Tunnel), isOther(unix.IPPROTO_TCP), markedAs(answerMark), countedDrop(DropLocal))
	return answers
}

// tooLarge holds for errors that say that a packet was too large.
func tooLarge(v4 bool) statement {
	if v4 { // it may not be sent in fragments
		return statement{text: "icmp type 3 code 4", v4: &v4, exprs: append(protocolIs(unix.IPPROTO_ICMP), transport(0, 2),
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{3, 4}})}
	}
	return statement{text: "icmpv6 type 2", v4: &v4, exprs: append(protocolIs(unix.IPPROTO_ICMPV6), transport(0, 1),
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{2}})}
}

// errors lets pass what pods are told of the connections that they have, where not all of these pass by
// themselves: it comes from whoever is on the way. Who is out of reach is told nothing.
func (c *chain) errors(g Gateway, s *endSets, v4 bool) {
	c.add(cameBy(g.Tunnel), connection(related), tooLarge(v4), destinationIn(s.pods), destinationNotIn(s.shutHere), accept())
}
