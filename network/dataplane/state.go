package dataplane

import (
	"cmp"
	"net/netip"
	"slices"
)

// What is ours in a network namespace.
const (
	devicePrefix = "pelago-"
	vxlanName    = "pelago-vx"
	tableName    = "pelago"
	// protocol marks routes and rules that are ours; no routing daemon has it.
	protocol = 170
	// viewTable has the routes to views, piecesTable those of IPv6 for what came in fragments,
	// nodeTables + number the way to a node, and tunnelTable, in a gateway's namespace, the way into
	// the tunnel.
	viewTable   = 7077
	piecesTable = 7078
	nodeTables  = 700000
	tunnelTable = 77
	// Rules of ours go before those of CNIs, of which the AWS one begins at 512: views
	// overlap nothing, and marks are ours.
	piecesPriority = 89
	viewPriority   = 90
	leapPriority   = 91
	markPriority   = 92
	landPriority   = 93
	insideRules    = 90
	// answerRules and answerMark, in a gateway's namespace, lead what answers to the tunnel, by
	// itself, back there. What it answers may have the mark too, and goes on where it goes.
	answerRules = 91
	answerMark  = 0x70e79
	// insideMark is that of packets that come from the host, and of what answers them by itself.
	insideMark = 0x70e78
	// mappedBits, among mappedMask, mark connections to mapped addresses in a gateway's namespace;
	// the other bits say to which, or that the peer's end was told that there is none any more.
	mappedBits = 0x70e00000
	mappedMask = 0xfffe0000
	mappedGone = mappedBits | 1<<16
	everyBit   = 0xffffffff
	// lastMetric is that of a route that holds when there is no other.
	lastMetric = 4278198272
)

// insideName is the end of a gateway's veth in its namespace. Both ends know each other by
// permanent neighbour entries.
const insideName = "pelago-host"

// itselfName is the device by which routing knows what a namespace says by itself.
const itselfName = "lo"

// hostEnd and gatewayEnd are the next hops on a gateway's veth.
func hostEnd(v4 bool) netip.Addr    { return number(0x0001).nextHop(v4) }
func gatewayEnd(v4 bool) netip.Addr { return number(0x0002).nextHop(v4) }

// errorSource is the address in a gateway's namespace by which errors come from it. It is
// none of the external range: the peer may have the same one, and the kernel takes no
// packets from an address of its own.
func errorSource(v4 bool) netip.Addr {
	if v4 {
		return gatewayEnd(v4)
	}
	return netip.MustParseAddr("fd70:656c:6167:6f00::2") // "pelago"
}

// beyondSource is the address by which all are seen here that are on the way beyond the tunnel.
func beyondSource(v4 bool) netip.Addr {
	if v4 {
		return number(0x0003).nextHop(v4)
	}
	return errorSource(v4).Next()
}

// state is what is wanted of one network namespace.
type state struct {
	links      []link
	addresses  []address
	neighbours []neighbour
	forwards   []forward
	routes     []route
	rules      []rule
	settings   []setting
	table      *table
}

// link is a device. A veth has its other end in the namespace of a peering's gateway.
type link struct {
	name     string
	hardware string
	mtu      int
	// Of a VXLAN.
	vni   uint32
	port  uint16
	local netip.Addr
	// Of a veth.
	peering      string
	peerHardware string
}

type address struct {
	device string
	prefix netip.Prefix
}

type neighbour struct {
	device   string
	addr     netip.Addr
	hardware string
}

// forward is an entry of a VXLAN's forwarding table.
type forward struct {
	device   string
	hardware string
	to       netip.Addr
}

// route with no device is unreachable.
type route struct {
	prefix netip.Prefix
	table  int
	device string
	via    netip.Addr
	source netip.Addr
	mtu    int
	metric int
}

// rule of routing. A mark of 0 is none, and an empty device any.
type rule struct {
	v4       bool
	priority int
	table    int
	mark     uint32
	device   string
	does     ruleAction
}

// ruleAction is what a rule does with what it is for; the zero value has it look at its table.
type ruleAction int

const (
	// leap is for what has none of our marks, and goes on at land: there is a rule for each mark.
	leap ruleAction = iota + 1
	// land is for everything, and does nothing.
	land
)

// setting is a sysctl below net.
type setting struct {
	key, value string
}

var families = []bool{true, false}

func everything(v4 bool) netip.Prefix {
	if v4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// ofFamily returns the first address of a family, the zero one if there is none.
func ofFamily(addrs []netip.Addr, v4 bool) netip.Addr {
	for _, a := range addrs {
		if a.Is4() == v4 {
			return a
		}
	}
	return netip.Addr{}
}

func prefixesOf(prefixes []netip.Prefix, v4 bool) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range prefixes {
		if p.Addr().Is4() == v4 {
			out = append(out, p)
		}
	}
	return out
}

func comparePrefixes(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

func sortedPrefixes(prefixes []netip.Prefix) []netip.Prefix {
	sorted := slices.Clone(prefixes)
	slices.SortFunc(sorted, comparePrefixes)
	return sorted
}

// sortedBy returns a sorted copy.
func sortedBy[T any, K cmp.Ordered](list []T, key func(T) K) []T {
	sorted := slices.Clone(list)
	slices.SortFunc(sorted, func(a, b T) int { return cmp.Compare(key(a), key(b)) })
	return sorted
}

func single(a netip.Addr) netip.Prefix {
	return netip.PrefixFrom(a, a.BitLen())
}
