package dataplane

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// What comes for the port of a tunnel and not from where its peer is known to be is limited before
// anything else looks at it: whoever sends it has no key, and each packet would cost the node its
// connection tracking, a way through a socket and a look at who it is from. What is left is enough for a peer to
// shake hands from a new address, and for what it sends until that is known.
const (
	strangerPerSecond, strangerBurst = 500, 500
	// strangersPerSecond is for all strangers at one port: who has many addresses gets no more.
	strangersPerSecond, strangersBurst = 2000, 2000
	// strangersMost is how many addresses are told apart, each for strangerFor. Others go by the limit for all.
	strangersMost = 4096
	strangerFor   = 10 * time.Second
	// strangerBits of an address of IPv6 count: who has one has all with the same ones.
	strangerBits = 64
	// handshakesPerSecond is for what comes from where the peer of a port is known to be and is no data of
	// a session. A peer has a few a minute; each has the tunnel look whether it is from who knows its key.
	handshakesPerSecond, handshakesBurst = 500, 500
	// sessionData is what WireGuard's packets of a session begin with.
	sessionData = 4
	// portsMost is how many ports of tunnels there can be, and with which known addresses.
	portsMost = 1 << 16
	// beforeTracking is the priority of what goes before connection tracking.
	beforeTracking = -300
)

// strangers adds what limits those who send to tunnels of others.
func strangers(t *table, c Config) {
	var ports []uint16
	known := map[bool][]netip.AddrPort{}
	for _, g := range c.Gateways {
		if g.Port == 0 {
			continue
		}
		ports = append(ports, g.Port)
		for _, a := range g.Known {
			known[a.Is4()] = append(known[a.Is4()], netip.AddrPortFrom(a, g.Port))
		}
	}
	if len(ports) == 0 {
		return
	}
	t.count(DropStranger, DropHandshake)
	peers := chain{name: "peers"}
	s := chain{name: "strangers", kind: filterChain, hook: prerouting, priority: beforeTracking}
	tunnels := t.portSet("tunnels", singlePorts(ports))
	s.add(isOther(unix.IPPROTO_UDP), accept())
	s.add(portNotIn(tunnels, unix.IPPROTO_UDP, false), accept())
	s.add(isForElsewhere(), accept()) // a node may be the router of others, whose tunnels have the same ports
	for _, v4 := range families {
		s.add(sentFrom(t.pairSet("known", v4, known[v4])), jump(peers.name))
		s.add(eachFaster(t.meterSet("strangers", v4, strangersMost)), countedDrop(DropStranger))
	}
	s.add(portFaster(t.portMeterSet("strangers-at", portsMost)), countedDrop(DropStranger))
	peers.add(isSessionData(), accept())
	for _, v4 := range families {
		peers.add(pairFaster(t.pairMeterSet("handshakes", v4, portsMost)), countedDrop(DropHandshake))
	}
	peers.add(accept())
	t.chains = append(t.chains, peers, s)
}

// meterSet is a set that packets fill, by where they are from.
func (t *table) meterSet(name string, v4 bool, most uint32) *set {
	s := t.newSet(name, v4, false, noData, 0)
	s.most = most
	return s
}

// portMeterSet is one that they fill by which port they are for.
func (t *table) portMeterSet(name string, most uint32) *set {
	s := &set{name: name, of: portKey, most: most}
	t.sets = append(t.sets, s)
	return s
}

// pairMeterSet is one that they fill by where they are from and which port they are for.
func (t *table) pairMeterSet(name string, v4 bool, most uint32) *set {
	s := t.meterSet(name, v4, most)
	s.of = pairKey
	return s
}

// isSessionData holds for packets of UDP that are WireGuard's of a session, by their first word: all others are
// about handshakes, or nothing of its.
func isSessionData() statement {
	kind := binary.LittleEndian.AppendUint32(nil, sessionData)
	return statement{text: fmt.Sprintf("@th,64,32 0x%x", kind), exprs: append(protocolIs(unix.IPPROTO_UDP),
		transport(8, uint32(len(kind))), &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: kind})}
}

// isOther holds for packets of another protocol.
func isOther(p uint8) statement {
	return statement{text: "meta l4proto != " + protocolNames[p], exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: []byte{p}},
	}}
}

// isForElsewhere holds for packets to no address of this node.
func isForElsewhere() statement {
	return statement{text: "fib daddr type != local", exprs: []expr.Any{
		&expr.Fib{Register: register, ResultADDRTYPE: true, FlagDADDR: true},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)},
	}}
}

// portNotIn looks whether a port is in no set of ports.
func portNotIn(s *set, p uint8, source bool) statement {
	what, payload := portOf(p, source)
	return statement{text: what + " != @" + s.name, exprs: append(protocolIs(p), payload, &expr.Lookup{SourceRegister: register, SetName: s.name, Invert: true})}
}

// sentFrom looks for the source with the port of UDP that a packet is for in a set of pairs.
func sentFrom(s *set) statement {
	what, pair := sourceAndPort(s.v4)
	return statement{text: what + " @" + s.name, v4: &s.v4, exprs: append(pair, &expr.Lookup{SourceRegister: register, SetName: s.name})}
}

// sourceAndPort reads the source of a packet of UDP, and the port that it is for.
func sourceAndPort(v4 bool) (string, []expr.Any) {
	address, load := load(v4, true)
	what, payload := portOf(unix.IPPROTO_UDP, false)
	payload.DestRegister = register2
	if v4 {
		payload.DestRegister = registerSecondWord
	}
	return address + " . " + what, append(protocolIs(unix.IPPROTO_UDP), load, payload)
}

// eachFaster holds for packets beyond what one source may send.
func eachFaster(s *set) statement {
	what, payload := load(s.v4, true)
	exprs := []expr.Any{payload}
	if !s.v4 {
		what += fmt.Sprintf(" & /%d", strangerBits)
		exprs = append(exprs, mask(net.CIDRMask(strangerBits, 128)))
	}
	return s.faster(what, exprs, strangerPerSecond, strangerBurst, &s.v4)
}

// portFaster holds for packets beyond what all may send to one port of UDP.
func portFaster(s *set) statement {
	what, payload := portOf(unix.IPPROTO_UDP, false)
	return s.faster(what, append(protocolIs(unix.IPPROTO_UDP), payload), strangersPerSecond, strangersBurst, nil)
}

// pairFaster holds for packets beyond what one source may send to one port of UDP.
func pairFaster(s *set) statement {
	what, pair := sourceAndPort(s.v4)
	return s.faster(what, pair, handshakesPerSecond, handshakesBurst, &s.v4)
}

func (s *set) faster(what string, key []expr.Any, perSecond, burst uint32, v4 *bool) statement {
	beyond := fasterThan(perSecond, burst)
	return statement{text: fmt.Sprintf("update @%s { %s %s }", s.name, what, beyond.text), v4: v4, exprs: append(key,
		&expr.Dynset{SrcRegKey: register, SetName: s.name, Operation: unix.NFT_DYNSET_OP_UPDATE, Timeout: strangerFor, Exprs: beyond.exprs})}
}

// checkStrangers finds what is wrong with where peers are known to be.
func checkStrangers(wrong wrongFunc, gateways []Gateway) {
	for _, g := range gateways {
		for i, a := range g.Known {
			if !plain(a) || slices.Contains(g.Known[:i], a) {
				wrong("gateways: %s: known address %s is no address or there twice", g.Peering, a)
			}
		}
	}
}
