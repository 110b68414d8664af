// Package plan computes from what a node's agent knows of its cluster what that node has to
// have: its whole data plane, and the tunnels and probes of the gateways that are on it. It
// is pure, and every node computes alike, so that nodes with the same input agree on who
// is gateway of what without a word.
//
// Input that cannot be right, as two nodes with one address, costs what it is about and
// nothing else: that part is left out, of all nodes' plans, and told of as a Problem. A
// plan is always one that the data plane takes.
package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// What all nodes of all clusters have in common.
const (
	// VNI and Port are those of the VXLAN between the nodes of a cluster. The port is none
	// of those that CNIs take (4789, 8472) or of NodePorts, nor one that a kernel gives to
	// clients, and only nodes of one cluster need to agree on both.
	VNI  = 7077
	Port = 7077
	// ProbePort is the UDP port of probes in the namespace of a gateway, where nothing
	// else listens. Both sides of a tunnel have to take the same.
	ProbePort = 7077

	// The headers of a packet in a packet: Ethernet, VXLAN, UDP and IP, and WireGuard, UDP
	// and IP.
	vxlanOver4, vxlanOver6   = 50, 70
	tunnelOver4, tunnelOver6 = 60, 80
	// mtuMin is what IPv6 needs. Where that is too large with its headers, those are what
	// is sent in fragments.
	mtuMin = 1280
	// mtuOutside is the most that the way to a peer is thought to carry, as the internet
	// does, however large the packets between the nodes are.
	mtuOutside = 1500

	// beginPerSecond is how many connections may begin from one peer. A node's table of the usual
	// size, 262,144, where what has ended stays for two minutes, has room for half of that.
	beginPerSecond = 5000

	// keepalive keeps an address translation between the peers open, most of which forget
	// after 30 s.
	keepalive = 25 * time.Second
)

// The tunnel's ends for probes. Both sides know them by their roles. They are link-local,
// so no range of anybody, and among those that no node's next hop has.
var (
	consumerEnd = netip.AddrFrom4([4]byte{169, 254, 0, 4})
	providerEnd = netip.AddrFrom4([4]byte{169, 254, 0, 5})
)

// The same ends for lines of IPv6. Nothing that is forwarded has link-local addresses there, so these
// are among those that Pelago keeps for itself, as the one for names is: nobody's range or view.
var (
	consumerEnd6 = netip.MustParseAddr("fd46:c73d:1b8d::4")
	providerEnd6 = netip.MustParseAddr("fd46:c73d:1b8d::5")
)

// Input is what is known. The order in its lists has no meaning, but for that of endpoints.
type Input struct {
	// Node is the name of the node whose plan is wanted.
	Node string
	// Nodes are all nodes of the cluster, with that one.
	Nodes []Node
	// Pods are the ranges of this cluster's pods, and External those of its external
	// addresses, at most one of each family.
	Pods, External []netip.Prefix
	Peerings       []Peering
	// AtNodes are addresses of nodes beside those that Nodes have.
	AtNodes []netip.Addr
}

// Node is a node of this cluster.
type Node struct {
	Name string
	// Addresses are those by which other nodes reach it, the first one of each family
	// before others.
	Addresses []netip.Addr
	// Alive says that its agent is, which makes it one that may be gateway. It is what was
	// seen last: who cannot see any more whether agents live keeps what he knew, since a
	// cluster whose API server is away for a while must not lose its gateways.
	Alive bool
	// MTU is the largest packet that its network device carries, 0 if that is not known.
	MTU int
	// Ranges are the prefixes that its pods keep to, and Pods the addresses of those of
	// its pods that are in none of them.
	Ranges []netip.Prefix
	Pods   []netip.Addr
}

// Role is what this cluster is in a peering.
type Role string

// The roles.
const (
	Consumer Role = "consumer"
	Provider Role = "provider"
)

// Peering is a peering of this cluster.
type Peering struct {
	// Key names it, and is the same on all nodes.
	Key string
	// Since is when it began. Where two cannot both be, the older one is, and of equally old ones
	// that of the lower key: who comes later, perhaps by a name of his choice, pushes nobody out.
	Since time.Time
	Role  Role
	// Views are what ipam has decided.
	Views []ipam.View
	// Transit are views of other peers, whom the peer reaches through this cluster.
	Transit []netip.Prefix
	// Limited lets connections begin only to Here, from the peer, and to There, which are
	// real addresses of the peer's, from this cluster. At the provider they also begin only
	// at Here, which are the consumer's pods, and at the consumer from the peer only at There,
	// which are the same ones: at one end of every connection is a pod that runs there for it.
	// Without Limited all pods of this cluster may be at this end, and the lists count for
	// Transit alone.
	Limited     bool
	Here, There []netip.Addr
	// Callers, of a provider, are pods of this cluster's own that may begin connections to There beside those in
	// Here. Open, of a consumer, are addresses of this cluster's own pods that whoever is at the peer may begin
	// connections to. Neither counts without Limited, nor if it is Closed.
	Callers, Open []netip.Addr
	// Closed lets nothing pass but what goes through doors: Here is then who may call those
	// of the peer.
	Closed bool
	// ShutHere and ShutThere are addresses, as in Here and There, that nothing reaches and that
	// reach nothing but by doors, whatever else may pass.
	ShutHere, ShutThere []netip.Addr
	// Parties are those of the peer's pods that are of other clusters, whom this one lies between.
	Parties []dataplane.Party
	// Doors are what the peer may reach here that is no pod, at addresses of External.
	Doors []dataplane.Door
	// Calls are the doors of the peer, by its real addresses.
	Calls []netip.AddrPort
	// Guard is what NetworkPolicies let pass besides, nil if there are none.
	Guard *dataplane.Guard
	// Line is what passes between the tunnel's ends themselves, nil if nothing does but probes: a
	// consumer calls, and a provider has doors. A peering may have that and nothing else.
	Line *dataplane.Line
	// Paths are direct ways to other providers of the same consumer, and of a consumer to what runs for it
	// behind the provider.
	Paths []Path
	// ListenPort is the UDP port of the tunnel on whichever node is gateway, the same on
	// all of them; no two peerings have one. 0 is any, for who is not called.
	ListenPort uint16
	// Secret names what holds this side's private key.
	Secret string
	// Peer and NextPeer are the other side's public keys. Without Peer there is no tunnel yet.
	Peer, NextPeer tunnel.PublicKey
	// Endpoints are host:port where the other side may be.
	Endpoints []string
	// Heard is where the other side was heard last, by this node, nothing if it was not.
	Heard netip.Addr
	// Told are the nodes here at which the other side was told to call, in that order: the first that
	// may be is gateway. So none is that the other side does not know of, while there is one that it does.
	Told []string
}

// Path is a direct way to some prefixes that the other side of a peering shows this one, past
// its gateways. Its gateway is on the node of the peering's own: a route to it moves on
// one node only, and nodes have nothing to agree on.
type Path struct {
	// Key names it, as Peering.Key does, and is the name of none.
	Key string
	// Prefixes are those that it leads to, each the real side of one of the peering's Views.
	Prefixes []netip.Prefix
	// Own are this cluster's pods as the other side sees them: the real ranges, and their views there.
	Own []ipam.View
	// Here and There are as in Peering, whatever of it is Limited: at a provider the consumer's pods here,
	// at a consumer those here that its pods may call; and real addresses within Prefixes.
	Here, There []netip.Addr
	// First is whether this end has the first one of the two addresses for probes. Both ends know by the
	// order of their public keys.
	First bool
	// Alive says that packets go by it: the tunnel on this node answers. While they do not they go
	// by the peering's own gateway.
	Alive bool
	// ListenPort, Secret, Peer, Endpoints and Heard are as in Peering.
	ListenPort uint16
	Secret     string
	Peer       tunnel.PublicKey
	Endpoints  []string
	Heard      netip.Addr
}

// Plan is what a node has to have.
type Plan struct {
	Config dataplane.Config
	// Tunnels and Probes are those of Config's gateways, by peering or path.
	Tunnels []Tunnel
	Probes  []Probe
	// Gateways says of each peering which node is its gateway, "" if none is; its paths have theirs
	// there too.
	Gateways map[string]string
	// Places are where no peer is called, also where a name leads there.
	Places *Places
	// Problems are what was left out or cannot be, in order.
	Problems []Problem
}

// Tunnel is a tunnel that ends on this node, in the namespace of its peering.
type Tunnel struct {
	Peering string
	// Secret names what holds the private key, which Config lacks.
	Secret string
	Config tunnel.Config
}

// Probe says whence to where a peering's probes go: its responder listens at At, and its
// prober asks Peer from any other port of that address.
type Probe struct {
	Peering  string
	At, Peer netip.AddrPort
}

// Problem is something wrong with the input.
type Problem struct {
	// Object is what it is about, as in "node rome-1".
	Object string
	Text   string
}

// String names the object first.
func (p Problem) String() string { return p.Object + ": " + p.Text }

// Compute makes a node's plan.
func Compute(in Input) Plan {
	var b build
	b.prepare(in)
	p := Plan{Gateways: map[string]string{}}
	if b.self != nil {
		p.Config.Node, p.Config.Others = b.node(), b.others()
	} else {
		p.Config.Node.Name = in.Node
	}
	p.Config.Pods = b.pods
	mtu := b.tunnelMTU()
	for _, peering := range b.peerings {
		g := Gateway(peering.Key, b.candidates, peering.Told)
		p.Gateways[peering.Key] = g
		if g == "" {
			b.wrong(peeringObject(peering.Key), "no node with a live agent can be its gateway")
		}
		here := g == in.Node && b.self != nil
		for _, v := range peering.Views {
			by := peering.Key
			if w := peering.wayTo(v); w != nil {
				by = w.Key
			}
			p.Config.Routes = append(p.Config.Routes, b.route(v.View, by, g, mtu))
		}
		for _, view := range peering.lineViews() {
			p.Config.Routes = append(p.Config.Routes, b.route(view, peering.Key, g, mtu))
		}
		if here {
			gateway := b.gateway(peering, mtu)
			p.Config.Gateways = append(p.Config.Gateways, gateway)
			p.Probes = append(p.Probes, probe(peering))
			if peering.tunnel {
				p.Tunnels = append(p.Tunnels, peering.tunnelOf(mtu))
			}
			for _, w := range peering.paths {
				p.Config.Gateways = append(p.Config.Gateways, w.gateway(gateway))
				p.Probes = append(p.Probes, w.probe())
				p.Tunnels = append(p.Tunnels, w.tunnelOf(mtu))
			}
		}
	}
	p.Places, p.Problems = b.places, b.problems
	slices.SortFunc(p.Problems, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Text, b.Text)) })
	p.Problems = slices.Compact(p.Problems)
	return p
}

// build is a plan on its way. All of it but self is the same on all nodes.
type build struct {
	problems []Problem
	// nodes are those of the input that are sound, by name, and self the one whose plan it is.
	nodes []*member
	self  *member
	// underlay4 says that the VXLAN goes over IPv4.
	underlay4  bool
	candidates []string
	pods       []netip.Prefix
	// external stand for what is no pod, one of each range.
	external       []netip.Addr
	externalRanges []netip.Prefix
	// mapped are what of these stands for what owners map.
	mapped   []netip.Prefix
	peerings []*peer
	places   *Places
}

func (b *build) prepare(in Input) {
	b.readNodes(in)
	b.pods = b.readPods(in.Pods)
	b.readExternal(in.External)
	b.readPeerings(in)
}

// route leads to a view by its gateway. Where none is it leads nowhere: what is for a peer
// must not leave by the node's default route.
func (b *build) route(view netip.Prefix, peering, gateway string, mtu int) dataplane.Route {
	r := dataplane.Route{Prefix: view}
	switch {
	case gateway == "" || b.self == nil:
	case gateway == b.self.Name:
		r.Gateway, r.MTU = peering, mtu
	default:
		r.Node, r.MTU = gateway, mtu
	}
	return r
}

func nodeObject(name string) string   { return "node " + name }
func peeringObject(key string) string { return "peering " + key }
