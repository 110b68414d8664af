package cli

import (
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// Packet is one that was seen on its way between this cluster and a peer, with the addresses by
// which this cluster sees both ends.
type Packet struct {
	Time time.Time `json:"time"`
	// Direction is to the cluster that Peer names, or from it.
	Direction string `json:"direction"`
	Peer      string `json:"peer"`
	// From and To are addresses, with ports where there are some.
	From string `json:"from"`
	To   string `json:"to"`
	// Protocol is the name of what IP carries, Flags are those of TCP, or the kind of an ICMP message.
	Protocol string `json:"protocol"`
	Flags    string `json:"flags,omitempty"`
	// Bytes is how long the packet of IP is.
	Bytes int `json:"bytes"`
}

// Directions of a packet.
const (
	toPeer   = "to"
	fromPeer = "from"
)

// ethernetHeader is how much longer a frame is than what it carries, in bytes.
const ethernetHeader = 14

// describePacket reads a frame of Ethernet, which may be cut off after its headers. The pod's
// addresses tell the direction; away is whether it runs at the peer.
func describePacket(frame []byte, info gopacket.CaptureInfo, peer string, pod []netip.Addr, away bool) Packet {
	p := Packet{Time: info.Timestamp, Peer: peer, Direction: fromPeer, Protocol: "unknown", Bytes: max(0, info.Length-ethernetHeader)}
	decoded := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
	network := decoded.NetworkLayer()
	if network == nil {
		return p
	}
	source, target := network.NetworkFlow().Endpoints()
	p.From, p.To, p.Protocol = source.String(), target.String(), carried(network)
	if from, err := netip.ParseAddr(p.From); err == nil && slices.Contains(pod, from) != away {
		p.Direction = toPeer
	}
	switch l := decoded.TransportLayer().(type) {
	case *layers.TCP:
		p.ports(int(l.SrcPort), int(l.DstPort))
		p.Flags = tcpFlags(l)
	case *layers.UDP:
		p.ports(int(l.SrcPort), int(l.DstPort))
	case *layers.SCTP:
		p.ports(int(l.SrcPort), int(l.DstPort))
	default:
		if l, is := decoded.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4); is {
			p.Flags = l.TypeCode.String()
		}
		if l, is := decoded.Layer(layers.LayerTypeICMPv6).(*layers.ICMPv6); is {
			p.Flags = l.TypeCode.String()
		}
	}
	return p
}

// ports adds them to the addresses.
func (p *Packet) ports(from, to int) {
	p.From, p.To = net.JoinHostPort(p.From, strconv.Itoa(from)), net.JoinHostPort(p.To, strconv.Itoa(to))
}

// carried is the protocol that a packet of IP carries, behind what IPv6 puts in between.
func carried(network gopacket.NetworkLayer) string {
	switch l := network.(type) {
	case *layers.IPv4:
		return l.Protocol.String()
	case *layers.IPv6:
		return l.NextHeader.String()
	}
	return network.LayerType().String()
}

// tcpFlags are those that are set, in the order in which people write them.
func tcpFlags(l *layers.TCP) string {
	var set []string
	for _, f := range []struct {
		name string
		is   bool
	}{{"SYN", l.SYN}, {"FIN", l.FIN}, {"RST", l.RST}, {"PSH", l.PSH}, {"URG", l.URG}, {"ACK", l.ACK}} {
		if f.is {
			set = append(set, f.name)
		}
	}
	return strings.Join(set, " ")
}
