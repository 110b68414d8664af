package dataplane

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Views of this cluster's own pods are put in and taken out of each packet by itself, outside of what
// connection tracking sees: before that what comes by the tunnel, and after it what leaves by it.
// So a connection has the same ends there as at any other gateway. As a translation of connections
// they would not be sure to be told apart: a view of ours, which is the consumer's choice, may be one by
// which we see the peer, so that what comes by the tunnel could look as what is said here.
const (
	ownInPriority  = -250 // connection tracking comes at -200
	ownOutPriority = 200  // translations of sources at 100

	ownIn, ownOut             = "own-in", "own-out"
	ownQuotedIn, ownQuotedOut = "own-quoted-in", "own-quoted-out"

	// quotedAt is where an error of ICMP quotes what it is about: after its header.
	quotedAt       = 8
	checksumOfICMP = 2
)

// podsOf are the ranges whose addresses may be at this end of a gateway.
func podsOf(c Config, g Gateway) []netip.Prefix {
	if len(g.Own) > 0 {
		return realsOf(g.Own)
	}
	return slices.Concat(c.Pods, g.Transit)
}

func realsOf(views []View) (reals []netip.Prefix) {
	for _, v := range views {
		reals = append(reals, v.Real)
	}
	return reals
}

// ownChains translate between pods here and the views by which the peer knows them. What comes by
// the tunnel for none of these views, and what would leave from none of these pods, ends here.
func ownChains(g Gateway) []chain {
	if len(g.Own) == 0 {
		return nil
	}
	arrives := chain{name: ownIn, kind: filterChain, hook: prerouting, priority: ownInPriority}
	leaves := chain{name: ownOut, kind: filterChain, hook: postrouting, priority: ownOutPriority}
	quotedIn, quotedOut := chain{name: ownQuotedIn}, chain{name: ownQuotedOut}
	if g.ProbeAt.IsValid() {
		arrives.add(cameBy(g.Tunnel), isTo(g.ProbeAt), accept())
		quotedOut.add(append(placeOf(true, false).quoted().moves(single(g.ProbeAt), single(g.ProbeAt)), returns())...)
	}
	for _, v4 := range families {
		for _, is := range errorsOf(v4) {
			arrives.add(cameBy(g.Tunnel), is, jump(ownQuotedIn))
			leaves.add(leavesBy(g.Tunnel), is, jump(ownQuotedOut)) // those of the gateway itself, too
		}
	}
	for _, v := range sortedBy(g.Own, func(v View) string { return v.View.String() }) {
		v4 := v.Real.Addr().Is4()
		to, from := placeOf(v4, false), placeOf(v4, true)
		arrives.add(slices.Concat([]statement{cameBy(g.Tunnel)}, to.moves(v.View, v.Real), []statement{accept()})...)
		leaves.add(slices.Concat([]statement{cameBy(insideName), leavesBy(g.Tunnel)}, from.moves(v.Real, v.View), []statement{accept()})...)
		// An error quotes the packet that it is about, the other way round.
		quotedIn.add(append(from.quoted().moves(v.View, v.Real), returns())...)
		quotedOut.add(append(to.quoted().moves(v.Real, v.View), returns())...)
	}
	for _, v4 := range families { // of an error in a connection, told by a node on the way to the pod
		for _, is := range errorsOf(v4) {
			leaves.add(cameBy(insideName), leavesBy(g.Tunnel), is, placeOf(v4, true).becomes(single(errorSource(v4))), accept())
		}
	}
	quotedIn.add(countedDrop(DropInvalid))
	quotedOut.add(countedDrop(DropInvalid))
	arrives.add(cameBy(g.Tunnel), countedDrop(DropDestination))
	leaves.add(cameBy(insideName), leavesBy(g.Tunnel), countedDrop(DropSource))
	return []chain{quotedIn, quotedOut, arrives, leaves}
}

// addressPlace is where an address is in a packet.
type addressPlace struct {
	text   string
	v4     bool
	base   expr.PayloadBase
	offset uint32
	// checksum is where the header with the address has its checksum, and pseudo says that the
	// payload's has the address in it as well.
	checksum uint32
	pseudo   bool
}

// placeOf is that of a packet's source or destination.
func placeOf(v4, source bool) addressPlace {
	text, load := load(v4, source)
	p := load.(*expr.Payload)
	if v4 {
		return addressPlace{text: text, v4: v4, base: p.Base, offset: p.Offset, checksum: 10, pseudo: true}
	}
	// There is no checksum. What is updated in place of one is part of the address, which is
	// written after that: package nftables says nothing of the payload's checksum else.
	return addressPlace{text: text, v4: v4, base: p.Base, offset: p.Offset, checksum: p.Offset, pseudo: true}
}

// quoted is the same place of the packet that an error of ICMP quotes.
func (p addressPlace) quoted() addressPlace {
	q := addressPlace{text: "quoted " + p.text, v4: p.v4, base: expr.PayloadBaseTransportHeader, offset: quotedAt + p.offset, checksum: checksumOfICMP}
	if p.v4 { // that of the quoted header, with which that of the error stays right
		q.checksum = quotedAt + p.checksum
	}
	return q
}

func (p addressPlace) size() uint32 {
	if p.v4 {
		return 4
	}
	return 16
}

func (p addressPlace) load() expr.Any {
	return &expr.Payload{DestRegister: register, Base: p.base, Offset: p.offset, Len: p.size()}
}

// moves finds an address of a prefix, and makes it that of another one of the same size.
func (p addressPlace) moves(from, to netip.Prefix) []statement {
	found := statement{text: fmt.Sprintf("%s %s", p.text, from), v4: &p.v4, exprs: []expr.Any{
		p.load(), mask(maskOf(from, false)), &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: from.Addr().AsSlice()},
	}}
	if from == to {
		return []statement{found}
	}
	return []statement{found, p.becomes(to)}
}

// becomes puts the address into a prefix, with the bits that it has behind that.
func (p addressPlace) becomes(to netip.Prefix) statement {
	write := &expr.Payload{OperationType: expr.PayloadWrite, SourceRegister: register, Base: p.base, Offset: p.offset, Len: p.size(),
		CsumType: expr.CsumTypeInet, CsumOffset: p.checksum}
	if p.pseudo {
		write.CsumFlags = unix.NFT_PAYLOAD_L4CSUM_PSEUDOHDR
	}
	return statement{text: fmt.Sprintf("%s set prefix %s", p.text, to), v4: &p.v4, exprs: []expr.Any{
		p.load(),
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: p.size(), Mask: maskOf(to, true), Xor: to.Addr().AsSlice()},
		write,
	}}
}

// maskOf is the mask of a prefix, or of the bits behind it.
func maskOf(p netip.Prefix, behind bool) []byte {
	bits := make([]byte, p.Addr().BitLen()/8)
	for i := range p.Addr().BitLen() {
		if i < p.Bits() != behind {
			bits[i/8] |= 0x80 >> (i % 8)
		}
	}
	return bits
}

// errorsOf hold for the errors of ICMP, which quote what they are about.
func errorsOf(v4 bool) []statement {
	kinds := func(name string, protocol byte, first, last byte) statement {
		return statement{text: fmt.Sprintf("%s type %d-%d", name, first, last), v4: &v4, exprs: append(protocolIs(protocol), transport(0, 1),
			&expr.Cmp{Op: expr.CmpOpGte, Register: register, Data: []byte{first}}, &expr.Cmp{Op: expr.CmpOpLte, Register: register, Data: []byte{last}})}
	}
	if v4 { // destination unreachable to redirect, and time exceeded to parameter problem
		return []statement{kinds("icmp", unix.IPPROTO_ICMP, 3, 5), kinds("icmp", unix.IPPROTO_ICMP, 11, 12)}
	}
	return []statement{kinds("icmpv6", unix.IPPROTO_ICMPV6, 0, 127)}
}

// checkOwn finds what is wrong with the views of this cluster's own ranges.
func checkOwn(wrong wrongFunc, field string, g Gateway) {
	if len(g.Own) == 0 {
		return
	}
	views, reals := checkViews(wrong, field+": own", g.Own)
	for _, v := range g.Views {
		reals = append(reals, v.View)
	}
	checkDisjoint(wrong, field+": own views", views)
	checkDisjoint(wrong, field+": own ranges and views", reals)
	if len(g.External)+len(g.Transit)+len(g.Doors)+len(g.Calls)+len(g.Mapped) > 0 || g.Line != nil {
		wrong("%s: with own views there is nothing but pods at this end", field)
	}
	if !g.Limited {
		wrong("%s: with own views it has to be limited", field)
	}
}
