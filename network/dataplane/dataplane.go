// Package dataplane makes the network of one node what a Config says: the VXLAN between
// the nodes, routes to the views of peers, marks for the way in, and a network namespace
// for each gateway with its translation, its policy and its counters. A Config is the
// whole wanted state; Set compares it with the kernel and writes the difference. What has
// our name and is not wanted goes, and nothing else is touched. It never decides who is
// gateway or who views whom by what, and never makes a tunnel: it routes to the tunnel's
// device once somebody has moved it into the gateway's namespace.
//
// Only names of devices, namespaces and tables of nftables tell what is ours, with the
// protocol of routes and rules. Needed are Linux 5.8 (translation of prefixes), nftables
// with NAT, VXLAN, and forwarding between devices that somebody else has enabled.
//
// A packet that another table of nftables or iptables drops by policy in its forward hook
// stays dropped: no verdict of ours overrules that.
package dataplane

import (
	"context"
	"net/netip"
	"time"
)

// Plane is the network of this node.
type Plane interface {
	// Set makes the network what the config says. It may be called again and again; the
	// same config twice changes nothing, and the empty one removes all. After an error
	// part of the config may be in force; Set again goes on from there.
	Set(ctx context.Context, config Config) error
}

// Config is the whole wanted state of one node. The order in its lists has no meaning.
type Config struct {
	Node Node
	// Others are the other nodes of the cluster.
	Others []Other
	// Pods are the real ranges of this cluster's pods, whose addresses peers see as
	// they are or translate themselves.
	Pods []netip.Prefix
	// Routes lead to the views of peers.
	Routes []Route
	// Gateways are those of the peerings whose gateway is on this node.
	Gateways []Gateway

	// own are the numbers whose next hops this node has as addresses of its own.
	own map[number]bool
}

// Node is the node that this is.
type Node struct {
	// Name is known to all nodes: the hardware address of our VXLAN device is made of it.
	Name string
	// Underlay is the address by which the other nodes reach this one. All nodes of a
	// cluster take the same family.
	Underlay netip.Addr
	// Addresses, at most one of each family, are what sources that are not pods become
	// on their way to a peer.
	Addresses []netip.Addr
	// Owns are single addresses of this node's pods inside of a prefix that another one
	// owns. Others of this node need not be known.
	Owns []netip.Addr
	// VNI and Port are the network identifier and the UDP port of our VXLAN. A node of a
	// cluster without other nodes needs none of the two.
	VNI  uint32
	Port uint16
	// MTU is the largest packet that the VXLAN carries.
	MTU int
}

// Other is another node of the cluster.
type Other struct {
	Name     string
	Underlay netip.Addr
	// Owns are the addresses that packets from a peer find at that node: prefixes where a
	// node's pods keep to one, single addresses where they do not, and the node's own.
	// No address is owned twice; the single address goes before the prefix.
	Owns []netip.Prefix
}

// Route leads to a prefix, by the other node or by the gateway here that is named. With
// none of them the prefix cannot be reached, and senders are told so: what is for a peer
// never leaves by the node's other routes.
type Route struct {
	Prefix netip.Prefix
	// Node is the name of another node, Gateway the peering of a gateway on this one;
	// one of them at most is set.
	Node    string
	Gateway string
	// MTU is that of the path, 0 for that of the device.
	MTU int
}

// Gateway is one peering's gateway on this node.
type Gateway struct {
	// Peering names it: its namespace and, shortened, its device.
	Peering string
	// Since is when the peering began. Of two Lines whose names want the same address on this
	// node the older one's has it.
	Since time.Time
	// Tunnel is the name that the tunnel's device has in the namespace.
	Tunnel string
	// Port is the UDP port of the tunnel on this node, 0 for one that nobody calls, and Known where
	// its peer may be. What comes for it from elsewhere is limited, whatever it is.
	Port  uint16
	Known []netip.Addr
	// MTU is the largest packet that the tunnel carries.
	MTU int
	// External, at most one of each family, are the addresses in the external range of
	// this cluster that sources that are not pods become.
	External []netip.Addr
	// Views are the ranges of the peer, each with the prefix by which we see it.
	Views []View
	// Own are ranges of this cluster's pods, each with the prefix by which the peer knows it,
	// where that is not by itself: on a direct path, where both ends speak as the consumer sees
	// them. What is from a pod has its view as the source in the tunnel, and what comes for a view
	// is for the pod; what is neither does not cross. With none the tunnel has addresses here as they are.
	Own []View
	// Transit are prefixes beside Pods that the peer may send to and sees as they are:
	// views of other peers that it reaches through this cluster.
	Transit []netip.Prefix
	// Probe is the UDP port in the namespace where probes from the tunnel are heard,
	// 0 for none.
	Probe uint16
	// ProbeAt and ProbePeer are this end and the other one of the tunnel for probes, of
	// IPv4; both are empty, or none. A gateway has ProbeAt, and a way to ProbePeer by the
	// tunnel alone.
	ProbeAt, ProbePeer netip.Addr
	// LineAt and LinePeer are these ends in IPv6, for the Line alone; both are empty, or none. A gateway
	// has LineAt, and a way to LinePeer, while something of its Line is of IPv6.
	LineAt, LinePeer netip.Addr
	// Begin is how many connections may begin from the peer in a second, those of TCP and the others each,
	// 0 for any number; four times as many may at once. Full lets none begin from there.
	Begin uint32
	Full  bool
	// Limited lets new connections pass only to an address in Here, from the peer, and
	// to an address in There, from us. Where it is not, this holds of Transit alone, and all
	// pods of this cluster may be at this end.
	Limited bool
	// FromHere and FromThere, of a gateway that is Limited, also let them begin only at an
	// address in Here, from us, and at one in There, from the peer. Of one that is not
	// Limited, FromHere lets them begin at pods only, from us.
	FromHere, FromThere bool
	// Closed lets nothing pass but what goes through Doors, and from Here to Calls.
	// Connections that were there before end.
	Closed bool
	// Calls are the doors of the peer, by its real addresses.
	Calls []netip.AddrPort
	// ShutHere and ShutThere are addresses of this cluster, and real ones of the peer, of
	// which nothing passes either but through doors.
	ShutHere, ShutThere []netip.Addr
	// Here are the addresses of this cluster that the peer may reach.
	Here []netip.Addr
	// There are the real addresses of the peer that this cluster may reach.
	There []netip.Addr
	// Callers are addresses of this cluster that are not in Here and may begin connections to There as well, and
	// Open are those that whoever is at the peer may begin connections to. Nothing begins at what they call, and
	// what they have begun ends when they may not any more. Only a gateway that is Limited and not Closed has them.
	Callers, Open []netip.Addr
	// Parties keep pods of the peer apart, whatever else lets pass.
	Parties []Party
	// Doors are what the peer may reach here that is no pod. They are open whether or not
	// it is Limited.
	Doors []Door
	// Mapped are prefixes of the external range whose doors take their connections along when
	// they go, or when who began one may not any more: both ends are told at the next packet.
	Mapped []netip.Prefix
	// Guard says which connections single pods may accept and begin, besides; nil if none of them is
	// isolated.
	Guard *Guard
	// Line is what passes between the ends of the tunnel themselves, ProbeAt and ProbePeer, LineAt
	// and LinePeer; nil if nothing does but probes.
	Line *Line
}

// Door stands, in the external range of this cluster, for something that is no pod. What is
// no node of this cluster either sees the node of the gateway as its client.
type Door struct {
	// At is what the peer calls, of the external range, and To what that stands for; both are of
	// one family.
	At, To netip.AddrPort
	// UDP says that it is for that, and not for TCP.
	UDP bool
	// Most is how many connections it may have at a time, 0 for any number.
	Most uint32
	// From are the real addresses of the peer that may. Doors at one address have the same.
	From []netip.Addr
}

// View is a range of a peer and the prefix of the same size by which we see it, which
// may be the range itself.
type View struct {
	View, Real netip.Prefix
}

// Drop counts what a gateway has dropped for one reason since its namespace was made. That of no
// peering counts what the node itself has dropped.
type Drop struct {
	Peering string
	Reason  Reason
	Packets uint64
	Bytes   uint64
}

// Passed is what went between a node and one of its gateways: Sent to the gateway, what it
// has dropped then included, and Received from it. What the kernel handles as one packet counts
// as one, as segments of TCP do that are cut at the end of the way.
type Passed struct {
	Peering                 string
	Sent, SentBytes         uint64
	Received, ReceivedBytes uint64
}

// Reason is why a gateway drops a packet.
type Reason string

// Reasons to drop.
const (
	// DropSource: it came from the tunnel and its source is not the peer's.
	DropSource Reason = "source"
	// DropDestination: it came from the tunnel and its destination is not a pod here, or
	// from here and it is none of the peer.
	DropDestination Reason = "destination"
	// DropDenied: its destination is not to be reached, or not from there, or its connection was
	// ended.
	DropDenied Reason = "denied"
	// DropIsolated: its pod is isolated, and no entry of the Guard lets it pass.
	DropIsolated Reason = "isolated"
	// DropInvalid: it belongs to no connection and cannot begin one, so that it cannot be
	// translated. It is counted for the node if that has dropped it, between a pod and its own end of
	// the way to a peer: there it would be, or is, a reset of a connection that is well.
	DropInvalid Reason = "invalid"
	// DropLocal: it came from the tunnel for the gateway itself, and is no probe; or it would be
	// the gateway's own, to the host, and answers nothing that came from there.
	DropLocal Reason = "local"
	// DropPath: it would leave by the device it came in by.
	DropPath Reason = "path"
	// DropFull: the door that it is for, or the gateway, has as many connections as it may, or they
	// begin faster.
	DropFull Reason = "full"
	// DropStranger: it came for the port of a tunnel, faster than those may who are not where its
	// peer is known to be; or for that of the VXLAN, from no other node. It is counted for the node, as it is nobody's.
	DropStranger Reason = "stranger"
	// DropHandshake: it came for the port of a tunnel from where its peer is known to be, is no data of a
	// session, and came faster than such may. It is counted for the node: who sent it may have forged the address.
	DropHandshake Reason = "handshake"
)

// Reasons returns all reasons for which a gateway drops, in order.
func Reasons() []Reason {
	return []Reason{DropDenied, DropDestination, DropFull, DropInvalid, DropIsolated, DropLocal, DropPath, DropSource}
}
