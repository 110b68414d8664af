package dataplane

import "github.com/google/nftables/expr"

// unknown adds what drops segments that connection tracking takes for none of a connection: they are
// translated back to no Service's address. One that comes from a peer, as an old duplicate does after an
// outage, would be for a connection that the pod never had, and the pod's reset would end at the server
// the one that it was of. Not every kube-proxy drops them.
//
// The same holds of what is for the node itself: its processes call by Services as well, and callers of a node
// port have the node's address until it is translated back. The node sees all of such a connection.
//
// What a node passes on between our devices stays: it need not have seen all of a connection whose
// gateway was elsewhere for a while, and translates nothing of it. Nor is it for us to drop what is no
// TCP: nobody resets that, and errors that tell of too large packets may be of connections that a network
// plugin does not have tracked.
func unknown(t *table, c Config, pods map[bool]*set) {
	if len(c.Routes) == 0 {
		return
	}
	t.counters = append(t.counters, string(DropInvalid))
	u := chain{name: "unknown", kind: filterChain, hook: forwarding, priority: -350}
	u.add(isTCP(), connection(invalid), cameBy(devicePrefix+"*"), leavesByOther(devicePrefix+"*"), countedDrop(DropInvalid))
	u.add(resets(), connection(invalid), leavesBy(devicePrefix+"*"), cameByOther(devicePrefix+"*"), countedDrop(DropInvalid))
	own := chain{name: "unknown-here", kind: filterChain, hook: input, priority: -350}
	own.add(isTCP(), connection(invalid), cameBy(devicePrefix+"*"), countedDrop(DropInvalid))
	t.bridges(c, &own, pods)
	t.chains = append(t.chains, u, own)
}

// bridges keeps peers from beginning anything with the node itself at an address of the pods' range, as that of their
// bridge is, or the node's own in some clouds: it is no pod. What doors lead to may be there. It does so before the
// node's ports lead elsewhere, those of Services and of pods, and again where a Service that a door leads to is the node.
func (t *table) bridges(c Config, own *chain, pods map[bool]*set) {
	t.count(DropDestination)
	before := chain{name: "bridges", kind: filterChain, hook: prerouting, priority: beforeServices}
	before.add(cameByOther(devicePrefix+"*"), accept())
	before.add(isForElsewhere(), accept())
	t.atBridges(c, &before, pods)
	t.atBridges(c, own, pods)
	t.chains = append(t.chains, before)
}

// beforeServices is the priority of what sees destinations as peers said them, of connections that are tracked.
const beforeServices = -150

func (t *table) atBridges(c Config, own *chain, pods map[bool]*set) {
	for _, v4 := range families {
		if len(prefixesOf(c.Pods, v4)) == 0 {
			continue
		}
		for _, g := range sortedBy(c.Gateways, func(g Gateway) string { return g.Peering }) {
			for _, d := range doorsOf(g) {
				if d.To.Addr().Is4() == v4 {
					own.add(cameBy(Device(g.Peering)), destinationIs(d.To, d.UDP), accept())
				}
			}
			for _, d := range g.Line.doors(v4) {
				own.add(cameBy(Device(g.Peering)), destinationIs(d.To, false), accept())
			}
		}
		own.add(cameBy(devicePrefix+"*"), connection(fresh), destinationIn(pods[v4]), countedDrop(DropDestination))
	}
}

// resets holds for segments that end a connection of TCP.
func resets() statement {
	return statement{text: "tcp flags rst", exprs: append(isTCP().exprs,
		transport(tcpFlagsAt, 1), mask([]byte{tcpRst}),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: []byte{0}})}
}
