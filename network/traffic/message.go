package traffic

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Messages of connection tracking.
const (
	messageGet    = 1
	messageDelete = 2
	// messageTake is a get that sets the counters to 0.
	messageTake = 3
)

// Attributes of counters.
const (
	counterPackets = 1
	counterBytes   = 2
)

// entry is a connection as the kernel tells of it. What it has refers to the message.
type entry struct {
	family          byte
	tuples, counted [2][]byte // original and reply
}

// read reads a message without its header. What is missing stays empty.
func read(b []byte) entry {
	if len(b) < nl.SizeofNfgenmsg {
		return entry{}
	}
	e := entry{family: b[0]}
	each(b[nl.SizeofNfgenmsg:], func(kind uint16, value []byte) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			e.tuples[0] = value
		case nl.CTA_TUPLE_REPLY:
			e.tuples[1] = value
		case nl.CTA_COUNTERS_ORIG:
			e.counted[0] = value
		case nl.CTA_COUNTERS_REPLY:
			e.counted[1] = value
		}
	})
	return e
}

// each calls f with each attribute.
func each(b []byte, f func(kind uint16, value []byte)) {
	for len(b) >= unix.SizeofNlAttr {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofNlAttr || length > len(b) {
			return
		}
		f(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER), b[unix.SizeofNlAttr:length])
		b = b[min(len(b), (length+3)&^3):]
	}
}

// packets and bytes are those of both directions.
func (e entry) packets() uint64 {
	return counter(e.counted[0], counterPackets) + counter(e.counted[1], counterPackets)
}
func (e entry) bytes() uint64 {
	return counter(e.counted[0], counterBytes) + counter(e.counted[1], counterBytes)
}

func counter(b []byte, of uint16) (n uint64) {
	each(b, func(kind uint16, value []byte) {
		if kind == of && len(value) == 8 {
			n = binary.BigEndian.Uint64(value)
		}
	})
	return n
}

func (e entry) portion() Portion {
	return Portion{Original: e.direction(0), Reply: e.direction(1)}
}

func (e entry) direction(i int) Direction {
	d := Direction{Packets: counter(e.counted[i], counterPackets), Bytes: counter(e.counted[i], counterBytes)}
	each(e.tuples[i], func(kind uint16, value []byte) {
		if kind != nl.CTA_TUPLE_IP {
			return
		}
		each(value, func(kind uint16, value []byte) {
			a, ok := netip.AddrFromSlice(value)
			switch {
			case !ok:
			case kind == nl.CTA_IP_V4_SRC, kind == nl.CTA_IP_V6_SRC:
				d.From = a
			case kind == nl.CTA_IP_V4_DST, kind == nl.CTA_IP_V6_DST:
				d.To = a
			}
		})
	})
	return d
}
