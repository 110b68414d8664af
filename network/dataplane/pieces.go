package dataplane

import (
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// What a pod sends in fragments over IPv6, as it was told that it is too large for the way, the node makes
// whole again for connection tracking. Where packets of bridges go through that (br_netfilter), as
// kubeadm has it on all nodes, it forgets of what size they were, and sends on what is too large once more. So
// those for views leave in fragments that every way carries. In IPv4 any router makes such.

// piecesMTU is what every way of IPv6 carries.
const piecesMTU = 1280

// piecesMark is that of no node, whose numbers are larger.
const piecesMark = markBits | 0x0003

// beforeDefragmentation is the priority of what sees fragments.
const beforeDefragmentation = -450

// addPieces adds the way of fragments beside a route to a view.
func (s *state) addPieces(k route) {
	if k.prefix.Addr().Is4() {
		return
	}
	k.table, k.mtu = piecesTable, piecesMTU
	s.routes = append(s.routes, k)
	r := rule{priority: piecesPriority, table: piecesTable, mark: piecesMark}
	if !slices.Contains(s.rules, r) {
		s.rules = append(s.rules, r)
	}
}

// piecesChain marks fragments that are for views, and come from no device of ours; of what is made whole
// of them the mark is that of the first.
func piecesChain(views *set) []chain {
	if views.v4 || len(views.elements) == 0 {
		return nil
	}
	pieces := chain{name: "pieces", kind: filterChain, hook: prerouting, priority: beforeDefragmentation}
	pieces.add(cameByOther(devicePrefix+"*"), isPiece(), destinationIn(views), setMark(piecesMark))
	return []chain{pieces}
}

// isPiece holds for fragments of IPv6.
func isPiece() statement {
	v4 := false
	return statement{text: "ip6 nexthdr 44", v4: &v4, exprs: []expr.Any{
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: 6, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{unix.IPPROTO_FRAGMENT}},
	}}
}
