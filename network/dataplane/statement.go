package dataplane

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// statement is a part of a rule of nftables. One that reads addresses is of a family,
// which its rule looks at first.
type statement struct {
	text  string
	v4    *bool
	exprs []expr.Any
}

const (
	register  = 1
	register2 = 2
	// registerSecondWord is the second word of the first register.
	registerSecondWord = 9
	tcpFlagsAt         = 13
	tcpChecksumAt      = 16
	tcpSyn, tcpRst     = 0x02, 0x04
	tcpAck             = 0x10
	counterObject      = 1
	// These are bits of a connection's status.
	connectionConfirmed   = 1 << 3
	destinationTranslated = 1 << 5
	optionMaxSegment      = 2
)

type state32 uint32

// States of connections, as bits.
const (
	invalid     state32 = 1
	established state32 = 2 | 4 // and related
	related     state32 = 4
	standing    state32 = 2
	fresh       state32 = 8
)

func isFamily(v4 bool) []expr.Any {
	family := byte(unix.NFPROTO_IPV6)
	if v4 {
		family = unix.NFPROTO_IPV4
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{family}},
	}
}

// device compares a device's name; a star at its end stands for anything.
func device(key expr.MetaKey, op expr.CmpOp, name string) []expr.Any {
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	if start, wild := strings.CutSuffix(name, "*"); wild {
		data = []byte(start)
	}
	return []expr.Any{
		&expr.Meta{Key: key, Register: register},
		&expr.Cmp{Op: op, Register: register, Data: data},
	}
}

func cameBy(name string) statement {
	return statement{text: fmt.Sprintf("iifname %q", name), exprs: device(expr.MetaKeyIIFNAME, expr.CmpOpEq, name)}
}

func cameByOther(name string) statement {
	return statement{text: fmt.Sprintf("iifname != %q", name), exprs: device(expr.MetaKeyIIFNAME, expr.CmpOpNeq, name)}
}

func leavesBy(name string) statement {
	return statement{text: fmt.Sprintf("oifname %q", name), exprs: device(expr.MetaKeyOIFNAME, expr.CmpOpEq, name)}
}

func leavesByOther(name string) statement {
	return statement{text: fmt.Sprintf("oifname != %q", name), exprs: device(expr.MetaKeyOIFNAME, expr.CmpOpNeq, name)}
}

// load reads an address of the packet.
func load(v4, source bool) (string, expr.Any) {
	p := &expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: 24, Len: 16}
	family, which := "ip6", "daddr"
	if v4 {
		p.Offset, p.Len, family = 16, 4, "ip"
	}
	if source {
		p.Offset, which = p.Offset-p.Len, "saddr"
	}
	return family + " " + which, p
}

func in(s *set, source, not bool) statement {
	what, payload := load(s.v4, source)
	op := ""
	if not {
		op = "!= "
	}
	return statement{text: what + " " + op + "@" + s.name, v4: &s.v4, exprs: []expr.Any{
		payload, &expr.Lookup{SourceRegister: register, SetName: s.name, Invert: not},
	}}
}

func sourceIn(s *set) statement         { return in(s, true, false) }
func sourceNotIn(s *set) statement      { return in(s, true, true) }
func destinationIn(s *set) statement    { return in(s, false, false) }
func destinationNotIn(s *set) statement { return in(s, false, true) }

// sameSource translates the sources in a set to themselves. A connection that is translated
// once is not masqueraded any more.
func sameSource(s *set) statement {
	out := sourceIn(s)
	what, payload := load(s.v4, true)
	family, _, _ := strings.Cut(what, " ")
	out.text += fmt.Sprintf(" snat %s to %s", family, what)
	out.exprs = append(out.exprs, payload, &expr.NAT{Type: expr.NATTypeSourceNAT, Family: natFamily(s.v4), RegAddrMin: register})
	return out
}

// translate translates the destinations, or sources, of a prefix to those of another of
// the same size. It is no map, as package nftables cannot make one of prefixes that nft(8)
// could list.
func translate(from, to netip.Prefix, source bool) statement {
	v4 := from.Addr().Is4()
	what, payload := load(v4, source)
	family, _, _ := strings.Cut(what, " ")
	verb, kind := "dnat", expr.NATTypeDestNAT
	if source {
		verb, kind = "snat", expr.NATTypeSourceNAT
	}
	second := uint32(register2)
	if v4 {
		second = registerSecondWord
	}
	return statement{text: fmt.Sprintf("%s %s %s %s prefix to %s", what, from, verb, family, to), v4: &v4, exprs: []expr.Any{
		payload,
		mask(net.CIDRMask(from.Bits(), from.Addr().BitLen())),
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: from.Addr().AsSlice()},
		&expr.Immediate{Register: register, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: second, Data: last(to).AsSlice()},
		&expr.NAT{Type: kind, Family: natFamily(v4), RegAddrMin: register, RegAddrMax: second, Prefix: true},
	}}
}

func snatTo(a netip.Addr) statement {
	v4, family := a.Is4(), "ip6"
	if v4 {
		family = "ip"
	}
	return statement{text: "snat " + family + " to " + a.String(), v4: &v4, exprs: []expr.Any{
		&expr.Immediate{Register: register, Data: a.AsSlice()},
		&expr.NAT{Type: expr.NATTypeSourceNAT, Family: natFamily(v4), RegAddrMin: register},
	}}
}

// isTo holds for packets to an address, and isFrom for those from there.
func isTo(a netip.Addr) statement   { return addressIs(a, false) }
func isFrom(a netip.Addr) statement { return addressIs(a, true) }

func addressIs(a netip.Addr, source bool) statement {
	v4 := a.Is4()
	what, payload := load(v4, source)
	return statement{text: what + " " + a.String(), v4: &v4, exprs: []expr.Any{
		payload, &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: a.AsSlice()},
	}}
}

// destinationIs holds for TCP, or UDP, to an address and port, sourceIs for what comes from there.
func destinationIs(to netip.AddrPort, udp bool) statement { return endIs(to, udp, false) }
func sourceIs(from netip.AddrPort, udp bool) statement    { return endIs(from, udp, true) }

func endIs(at netip.AddrPort, udp, source bool) statement {
	v4, proto, name := at.Addr().Is4(), byte(unix.IPPROTO_TCP), "tcp"
	if udp {
		proto, name = unix.IPPROTO_UDP, "udp"
	}
	what, payload := load(v4, source)
	port, offset := "dport", uint32(2)
	if source {
		port, offset = "sport", 0
	}
	exprs := []expr.Any{payload, &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: at.Addr().AsSlice()}}
	exprs = append(append(exprs, protocolIs(proto)...),
		transport(offset, 2), &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: binary.BigEndian.AppendUint16(nil, at.Port())})
	return statement{text: fmt.Sprintf("%s %s %s %s %d", what, at.Addr(), name, port, at.Port()), v4: &v4, exprs: exprs}
}

// dnatToAddress keeps the port.
func dnatToAddress(to netip.Addr) statement {
	v4, family := to.Is4(), "ip6"
	if v4 {
		family = "ip"
	}
	return statement{text: "dnat " + family + " to " + to.String(), v4: &v4, exprs: []expr.Any{
		&expr.Immediate{Register: register, Data: to.AsSlice()},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: natFamily(v4), RegAddrMin: register},
	}}
}

func dnatTo(to netip.AddrPort) statement {
	v4, family := to.Addr().Is4(), "ip6"
	if v4 {
		family = "ip"
	}
	return statement{text: "dnat " + family + " to " + to.String(), v4: &v4, exprs: []expr.Any{
		&expr.Immediate{Register: register, Data: to.Addr().AsSlice()},
		&expr.Immediate{Register: register2, Data: binary.BigEndian.AppendUint16(nil, to.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: natFamily(v4), RegAddrMin: register, RegProtoMin: register2, Specified: true},
	}}
}

// translated holds for connections whose destination was translated.
func translated() statement { return hasStatus("dnat", destinationTranslated) }

// confirmed holds for connections of which a packet has passed.
func confirmed() statement { return hasStatus("confirmed", connectionConfirmed) }

func hasStatus(text string, bits uint32) statement {
	return statement{text: "ct status " + text, exprs: []expr.Any{
		&expr.Ct{Register: register, Key: expr.CtKeySTATUS},
		mask(native(bits)),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: native(0)},
	}}
}

// note marks a connection.
func note(mark uint32) statement {
	return statement{text: fmt.Sprintf("ct mark set %#x", mark), exprs: []expr.Any{
		&expr.Immediate{Register: register, Data: native(mark)},
		&expr.Ct{Key: expr.CtKeyMARK, Register: register, SourceRegister: true},
	}}
}

// noted holds for packets of both directions of connections that were marked so, or not, as far as
// some bits go.
func noted(mark, bits uint32, not bool) statement {
	op, text := expr.CmpOpEq, "=="
	if not {
		op, text = expr.CmpOpNeq, "!="
	}
	return statement{text: fmt.Sprintf("ct mark & %#x %s %#x", bits, text, mark), exprs: []expr.Any{
		&expr.Ct{Key: expr.CtKeyMARK, Register: register},
		mask(native(bits)),
		&expr.Cmp{Op: op, Register: register, Data: native(mark)},
	}}
}

// moreThan holds for what begins a connection when there are as many as may be.
func moreThan(most uint32) statement {
	return statement{text: fmt.Sprintf("ct count over %d", most), exprs: []expr.Any{&expr.Connlimit{Count: most, Flags: expr.NFT_CONNLIMIT_F_INV}}}
}

// fasterThan holds for packets beyond a rate, once there were as many as may come at once.
func fasterThan(perSecond, burst uint32) statement {
	burst = max(burst, 1)
	return statement{text: fmt.Sprintf("limit rate over %d/second burst %d packets", perSecond, burst), exprs: []expr.Any{
		&expr.Limit{Type: expr.LimitTypePkts, Rate: uint64(perSecond), Unit: expr.LimitTimeSecond, Burst: burst, Over: true},
	}}
}

func isTCP() statement {
	return statement{text: "meta l4proto tcp", exprs: protocolIs(unix.IPPROTO_TCP)}
}

// reset ends a connection of TCP: who has sent the packet is told. Its mark is that of the
// answer, too, which leaves by it.
func reset(reason Reason, mark uint32) statement {
	return statement{text: fmt.Sprintf("counter name %q meta mark set %#x reject with tcp reset", reason, mark), exprs: []expr.Any{
		&expr.Objref{Type: counterObject, Name: string(reason)},
		&expr.Immediate{Register: register, Data: native(mark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register},
		&expr.Reject{Type: unix.NFT_REJECT_TCP_RST},
	}}
}

// becomesReset makes a packet of TCP the reset of its connection for who gets it.
func becomesReset(reason Reason) statement {
	const flags = tcpFlagsAt - 1 // with the length of the header, as checksums are of 16 bits
	write := transport(flags, 2)
	write.OperationType, write.DestRegister, write.SourceRegister = expr.PayloadWrite, 0, register
	write.CsumType, write.CsumOffset = expr.CsumTypeInet, tcpChecksumAt
	return statement{text: fmt.Sprintf("counter name %q tcp flags set rst,ack", reason), exprs: []expr.Any{
		&expr.Objref{Type: counterObject, Name: string(reason)},
		transport(flags, 2),
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 2, Mask: []byte{0xf0, 0}, Xor: []byte{0, tcpRst | tcpAck}},
		write,
	}}
}

func masquerade() statement {
	return statement{text: "masquerade", exprs: []expr.Any{&expr.Masq{}}}
}

func natFamily(v4 bool) uint32 {
	if v4 {
		return unix.NFPROTO_IPV4
	}
	return unix.NFPROTO_IPV6
}

func markBy(s *set) statement {
	what, payload := load(s.v4, false)
	return statement{text: fmt.Sprintf("meta mark set %s map @%s", what, s.name), v4: &s.v4, exprs: []expr.Any{
		payload,
		&expr.Lookup{SourceRegister: register, DestRegister: register, IsDestRegSet: true, SetName: s.name},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register},
	}}
}

func marked() statement {
	return statement{text: fmt.Sprintf("meta mark & %#x == %#x", markMask, markBits), exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: register},
		mask(native(markMask)),
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: native(markBits)},
	}}
}

func setMark(mark uint32) statement {
	return statement{text: fmt.Sprintf("meta mark set %#x", mark), exprs: []expr.Any{
		&expr.Immediate{Register: register, Data: native(mark)},
		&expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: register},
	}}
}

func markedAs(mark uint32) statement {
	return statement{text: fmt.Sprintf("meta mark %#x", mark), exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: native(mark)},
	}}
}

func markedOther(mark uint32) statement {
	return statement{text: fmt.Sprintf("meta mark != %#x", mark), exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: register},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: native(mark)},
	}}
}

func connection(bits state32) statement {
	text := "ct state invalid"
	switch bits {
	case established:
		text = "ct state established,related"
	case standing:
		text = "ct state established"
	case related:
		text = "ct state related"
	case fresh:
		text = "ct state new"
	}
	return statement{text: text, exprs: []expr.Any{
		&expr.Ct{Register: register, Key: expr.CtKeySTATE},
		mask(native(uint32(bits))),
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: native(0)},
	}}
}

func accept() statement {
	return statement{text: "accept", exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}}
}

func countedDrop(reason Reason) statement {
	return statement{text: fmt.Sprintf("counter name %q drop", reason), exprs: []expr.Any{
		&expr.Objref{Type: counterObject, Name: string(reason)},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}}
}

func goTo(name string) statement {
	return statement{text: "goto " + name, exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: name}}}
}

func jump(name string) statement {
	return statement{text: "jump " + name, exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: name}}}
}

func returns() statement {
	return statement{text: "return", exprs: []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}}
}

var protocolNames = map[uint8]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_SCTP: "sctp"}

// ofProtocol holds for packets of a protocol.
func ofProtocol(p uint8) statement {
	name := protocolNames[p]
	if name == "" {
		name = strconv.Itoa(int(p))
	}
	return statement{text: "meta l4proto " + name, exprs: protocolIs(p)}
}

// portOf reads the port of a protocol of which a packet is.
func portOf(p uint8, source bool) (string, *expr.Payload) {
	name := protocolNames[p]
	if name == "" {
		name = "meta l4proto " + strconv.Itoa(int(p)) + " th"
	}
	if source {
		return name + " sport", transport(0, 2)
	}
	return name + " dport", transport(2, 2)
}

// portIn looks for a port in a set of ports.
func portIn(s *set, p uint8, source bool) statement {
	what, payload := portOf(p, source)
	return statement{text: what + " @" + s.name, exprs: append(protocolIs(p), payload, &expr.Lookup{SourceRegister: register, SetName: s.name})}
}

// pairIn looks for an address with its port in a set of pairs.
func pairIn(s *set, p uint8, source bool) statement {
	address, load := load(s.v4, source)
	what, payload := portOf(p, source)
	second := uint32(register2)
	if s.v4 {
		second = registerSecondWord
	}
	payload.DestRegister = second
	return statement{text: address + " . " + what + " @" + s.name, v4: &s.v4, exprs: append(protocolIs(p), load, payload, &expr.Lookup{SourceRegister: register, SetName: s.name})}
}

func protocolIs(p byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{p}},
	}
}

func transport(offset, length uint32) *expr.Payload {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: length}
}

func synOnly() statement {
	return statement{text: "tcp flags syn / syn,rst", exprs: append(protocolIs(unix.IPPROTO_TCP),
		transport(tcpFlagsAt, 1), mask([]byte{tcpSyn | tcpRst}),
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{tcpSyn}})}
}

// saidOn holds for what who has begun a connection says in it after that, and answersIt for what the other end does.
func saidOn() statement    { return inDirection("original", 0) }
func answersIt() statement { return inDirection("reply", 1) }

func inDirection(name string, direction byte) statement {
	stands := connection(standing)
	return statement{text: stands.text + " ct direction " + name, exprs: append(stands.exprs,
		&expr.Ct{Register: register, Key: expr.CtKeyDIRECTION},
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{direction}})}
}

func middleOfTCP() statement {
	return statement{text: "tcp flags ! syn", exprs: append(protocolIs(unix.IPPROTO_TCP),
		transport(tcpFlagsAt, 1), mask([]byte{tcpSyn}),
		&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{0}})}
}

func clampSegments() statement {
	return statement{text: "tcp option maxseg size set rt mtu", exprs: []expr.Any{
		&expr.Rt{Register: register, Key: expr.RtTCPMSS},
		&expr.Byteorder{SourceRegister: register, DestRegister: register, Op: expr.ByteorderHton, Len: 2, Size: 2},
		&expr.Exthdr{SourceRegister: register, Type: optionMaxSegment, Offset: 2, Len: 2, Op: expr.ExthdrOpTcpopt},
	}}
}

func udpTo(port uint16) statement {
	return statement{text: "udp dport " + portText(port), exprs: append(protocolIs(unix.IPPROTO_UDP),
		transport(2, 2), &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: binary.BigEndian.AppendUint16(nil, port)})}
}

func echoRequest(v4 bool) statement {
	text, proto, kind := "icmpv6 type echo-request", byte(unix.IPPROTO_ICMPV6), byte(128)
	if v4 {
		text, proto, kind = "icmp type echo-request", unix.IPPROTO_ICMP, 8
	}
	return statement{text: text, exprs: append(protocolIs(proto),
		transport(0, 1), &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{kind}})}
}

func mask(bits []byte) expr.Any {
	return &expr.Bitwise{
		SourceRegister: register, DestRegister: register, Len: uint32(len(bits)), Mask: bits, Xor: make([]byte, len(bits)),
	}
}

func native(v uint32) []byte {
	return binary.NativeEndian.AppendUint32(nil, v)
}
