package netnstest

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// Packet is one of IP as a test wants it, right or wrong.
type Packet struct {
	From, To netip.Addr
	// Protocol is that of Payload; TTL is 64 if it is 0.
	Protocol, TTL byte
	// Options are those of IPv4, in words of four bytes; of IPv6 a header of hop-by-hop options,
	// or another one that OptionsAre says, as its kind and without the two bytes that begin it.
	Options    []byte
	OptionsAre byte
	// Offset, in bytes, and More make it a fragment, of the packet that Number says.
	Offset uint16
	More   bool
	Number uint16
	// Whole says that nobody on the way may send one of IPv4 in fragments.
	Whole   bool
	Payload []byte
}

// Bytes is the packet on the wire.
func (p Packet) Bytes() []byte {
	ttl := p.TTL
	if ttl == 0 {
		ttl = 64
	}
	if p.From.Is4() {
		b := []byte{0x40 | byte(5+len(p.Options)/4), 0, 0, 0, 0, 0, 0, 0, ttl, p.Protocol, 0, 0}
		binary.BigEndian.PutUint16(b[4:], p.Number)
		at := p.Offset / 8
		if p.More {
			at |= 0x2000
		}
		if p.Whole {
			at |= 0x4000
		}
		binary.BigEndian.PutUint16(b[6:], at)
		b = slices.Concat(b, p.From.AsSlice(), p.To.AsSlice(), p.Options)
		binary.BigEndian.PutUint16(b[2:], uint16(len(b)+len(p.Payload)))
		binary.BigEndian.PutUint16(b[10:], checksum(b))
		return append(b, p.Payload...)
	}
	next, rest := p.Protocol, p.Payload
	if p.More || p.Offset > 0 {
		header := []byte{next, 0, 0, 0, 0, 0}
		at := p.Offset
		if p.More {
			at |= 1
		}
		binary.BigEndian.PutUint16(header[2:], at)
		rest = slices.Concat(binary.BigEndian.AppendUint16(header, p.Number), rest)
		next = unix.IPPROTO_FRAGMENT
	}
	if p.Options != nil {
		rest = slices.Concat([]byte{next, byte((len(p.Options)+2)/8 - 1)}, p.Options, rest)
		next = p.OptionsAre
	}
	b := []byte{0x60, 0, 0, 0, 0, 0, next, ttl}
	binary.BigEndian.PutUint16(b[4:], uint16(len(rest)))
	return slices.Concat(b, p.From.AsSlice(), p.To.AsSlice(), rest)
}

// Sealed returns the payload with its checksum, which is at a place of it, of a packet.
func (p Packet) Sealed(payload []byte, at int) []byte {
	pseudo := slices.Concat(p.From.AsSlice(), p.To.AsSlice())
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(payload)))
	pseudo = append(pseudo, 0, 0, 0, p.Protocol)
	if p.Protocol == unix.IPPROTO_ICMP {
		pseudo = nil
	}
	sealed := slices.Clone(payload)
	binary.BigEndian.PutUint16(sealed[at:], 0)
	binary.BigEndian.PutUint16(sealed[at:], checksum(append(pseudo, sealed...)))
	return sealed
}

// Flags of TCP.
const (
	FIN, SYN, RST, ACK = 1, 2, 4, 16
)

// TCP is a packet with one segment.
func (p Packet) TCP(from, to uint16, flags byte, seq, ack uint32, data []byte) Packet {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to)
	b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, seq), ack)
	b = append(append(b, 5<<4, flags, 0xff, 0xff, 0, 0, 0, 0), data...)
	p.Protocol = unix.IPPROTO_TCP
	p.Payload = p.Sealed(b, 16)
	return p
}

// UDP is a packet with one datagram.
func (p Packet) UDP(from, to uint16, data []byte) Packet {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to)
	b = append(binary.BigEndian.AppendUint16(b, uint16(8+len(data))), 0, 0)
	p.Protocol = unix.IPPROTO_UDP
	p.Payload = p.Sealed(append(b, data...), 6)
	return p
}

// Echo is a packet with a request for an echo.
func (p Packet) Echo(id uint16, data []byte) Packet {
	kind := byte(128)
	if p.Protocol = unix.IPPROTO_ICMPV6; p.From.Is4() {
		kind, p.Protocol = 8, unix.IPPROTO_ICMP
	}
	b := append([]byte{kind, 0, 0, 0}, byte(id>>8), byte(id), 0, 1)
	p.Payload = p.Sealed(append(b, data...), 2)
	return p
}

// TooLarge is a packet with the error that another one was too large for what carries so much.
func (p Packet) TooLarge(carries uint16, other Packet) Packet {
	const most = 1280 - 40 - 8
	quoted := other.Bytes()
	quoted = quoted[:min(len(quoted), most)]
	p.Protocol = unix.IPPROTO_ICMPV6
	b := []byte{2, 0, 0, 0, 0, 0, byte(carries >> 8), byte(carries)}
	if p.From.Is4() {
		p.Protocol, b[0], b[1] = unix.IPPROTO_ICMP, 3, 4
	}
	p.Payload = p.Sealed(append(b, quoted...), 2)
	return p
}
