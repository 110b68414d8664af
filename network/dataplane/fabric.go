package dataplane

import (
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

const (
	// lastOfInput is the priority of what sees in the input hook what is left of a call to a Service, also by IPVS.
	lastOfInput = 101
	// beforeMasquerade is that of what sees sources as they were sent.
	beforeMasquerade = 98
)

// fabric adds who is heard by our VXLAN, and by those of other nodes: the kernel takes what comes to its port from
// anybody, at any address of the node, and what is in it would come out as if another node had sent it.
//
// Heard is what another node sends from its address to this one's, and nothing that was called by another address or
// port: a pod's call by a node port, which has the pod's node as its source, could be led here by a Service.
// The kernel listens in the underlay's family alone, and what comes in the other one is for nobody.
//
// What a pod sends to another node's port is dropped before a network plugin masquerades it, and has it look as if
// this node had sent it. Only the node that it leaves can tell.
//
// A pod may also forge a node's address. Such a packet comes by no device that leads to that node. Nor does one of a
// node where routes are not the same both ways; but that comes by the device that has the address which it is for,
// as no pod's does. What comes by one with neither is dropped; so a node that has others' packets for the address of one
// device come by a second one, by which it reaches none of them, hears nothing there.
func fabric(t *table, c Config) {
	if c.Node.VNI == 0 || len(c.Others) == 0 {
		return
	}
	t.count(DropStranger)
	v4 := c.Node.Underlay.Is4()
	nodes := t.addressSet("nodes", v4, nil)
	for _, o := range c.Others {
		nodes.addPrefix(single(o.Underlay))
	}
	here := udpTo(c.Node.Port)
	heard, way := chain{name: "fabric-heard"}, chain{name: "fabric-way"}
	heard.add(translated(), countedDrop(DropStranger))
	heard.add(isTo(c.Node.Underlay), sourceIn(nodes), accept())
	heard.add(countedDrop(DropStranger))
	way.add(leadsBack(), accept())
	way.add(isForItsDevice(), accept())
	way.add(isForElsewhere(), destinationNotIn(nodes), accept())
	way.add(countedDrop(DropStranger))
	forged := chain{name: "fabric-forged", kind: filterChain, hook: prerouting, priority: afterDestinations}
	forged.add(here, sourceIn(nodes), jump(way.name))
	forged.add(here, isFrom(c.Node.Underlay), jump(way.name))
	in := chain{name: "fabric", kind: filterChain, hook: input, priority: lastOfInput}
	in.add(here, jump(heard.name))
	out := chain{name: "fabric-out", kind: filterChain, hook: postrouting, priority: beforeMasquerade}
	out.add(here, isFrom(c.Node.Underlay), accept())
	out.add(here, destinationIn(nodes), sourceNotIn(nodes), countedDrop(DropStranger)) // a node may be the router of others
	t.chains = append(t.chains, heard, way, forged, in, out)
}

// leadsBack holds for packets that came by a device by which answers may leave.
func leadsBack() statement {
	return statement{text: "fib saddr . iif oif exists", exprs: []expr.Any{
		&expr.Fib{Register: register, ResultOIF: true, FlagSADDR: true, FlagIIF: true, FlagPRESENT: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{1}},
	}}
}

// isForItsDevice holds for packets to an address of the device that they came by.
func isForItsDevice() statement {
	return statement{text: "fib daddr . iif type local", exprs: []expr.Any{
		&expr.Fib{Register: register, ResultADDRTYPE: true, FlagDADDR: true, FlagIIF: true},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}}
}
