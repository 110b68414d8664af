package capture

import "encoding/binary"

// maxHeaders bounds where headers are looked for, in bytes.
const maxHeaders = 512

// Protocols above IP that are known here, by their numbers.
const (
	protocolHopByHop    = 0
	protocolICMP        = 1
	protocolIPv4        = 4
	protocolTCP         = 6
	protocolUDP         = 17
	protocolIPv6        = 41
	protocolRouting     = 43
	protocolFragment    = 44
	protocolICMPv6      = 58
	protocolDestination = 60
	protocolSCTP        = 132
	protocolUDPLite     = 136
)

// Lengths of headers in bytes, the least where they vary, and where in them things are.
const (
	lengthEthernet = typeAt + lengthOfField
	lengthIPv4     = 20
	length4At      = 2
	fragment4At    = 6
	protocol4At    = 9
	lengthIPv6     = 40
	length6At      = 4
	next6At        = 6
	lengthFragment = 8
	lengthTCP      = 20
	words4TCPAt    = 12
	lengthUDP      = 8
	lengthICMP     = 8
	lengthICMPv6   = 4
	lengthSCTP     = 12
	// offset4 are the bits of a fragment's place in its packet, and more4 is that others follow.
	offset4, more4 = 0x1fff, 0x2000
)

// headers is how many bytes of a frame its headers are. What is none of the protocols known here,
// or is cut short, counts as carried: frames come from strangers, and what is not understood
// stays here.
func headers(frame []byte) int {
	frame = frame[:min(len(frame), maxHeaders)]
	if len(frame) < lengthEthernet {
		return 0
	}
	switch binary.BigEndian.Uint16(frame[typeAt:]) {
	case typeIPv4:
		return above(frame, lengthEthernet, protocolIPv4)
	case typeIPv6:
		return above(frame, lengthEthernet, protocolIPv6)
	}
	return lengthEthernet
}

// above is where the headers end of which those from a place on are of a protocol.
func above(frame []byte, at int, protocol byte) int {
	for {
		length, next, more := header(frame[at:], protocol)
		if length == 0 || length > len(frame)-at {
			return at
		}
		frame = frame[:min(len(frame), at+whole(frame[at:], protocol))] // padding is no header
		at += length
		if !more {
			return at
		}
		protocol = next
	}
}

// header is how long the header of a protocol is, 0 if it is not known, and what follows it if
// that is a header too.
func header(b []byte, protocol byte) (length int, next byte, more bool) {
	switch protocol {
	case protocolIPv4:
		return headerIPv4(b)
	case protocolIPv6:
		if len(b) < lengthIPv6 || b[0]>>4 != 6 {
			return 0, 0, false
		}
		return lengthIPv6, b[next6At], true
	case protocolHopByHop, protocolRouting, protocolDestination:
		if len(b) < 2 {
			return 0, 0, false
		}
		return 8 + 8*int(b[1]), b[0], true
	case protocolFragment: // what follows is but a part
		return lengthFragment, 0, false
	case protocolTCP:
		if len(b) < lengthTCP || int(b[words4TCPAt]>>4)*lengthOfWord < lengthTCP {
			return 0, 0, false
		}
		return int(b[words4TCPAt]>>4) * lengthOfWord, 0, false
	case protocolUDP, protocolUDPLite:
		return lengthUDP, 0, false
	case protocolICMP:
		return lengthICMP, 0, false
	case protocolICMPv6:
		return lengthICMPv6, 0, false
	case protocolSCTP:
		return lengthSCTP, 0, false
	}
	return 0, 0, false
}

// whole is how long a packet of IP says that it is with its header. Segments that were joined to one
// too long for that say 0, and then, as in what is no such packet, it is as long as it likes.
func whole(b []byte, protocol byte) int {
	n := 0
	switch protocol {
	case protocolIPv4:
		n = int(binary.BigEndian.Uint16(b[length4At:]))
	case protocolIPv6:
		if n = int(binary.BigEndian.Uint16(b[length6At:])); n > 0 {
			n += lengthIPv6
		}
	}
	if n == 0 {
		return len(b)
	}
	return n
}

func headerIPv4(b []byte) (length int, next byte, more bool) {
	if len(b) < lengthIPv4 || b[0]>>4 != 4 {
		return 0, 0, false
	}
	length = int(b[0]&0xf) * lengthOfWord
	if said := whole(b, protocolIPv4); length < lengthIPv4 || said < length {
		return 0, 0, false
	}
	return length, b[protocol4At], binary.BigEndian.Uint16(b[fragment4At:])&(offset4|more4) == 0
}
