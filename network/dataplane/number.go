package dataplane

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/vishvananda/netlink"
)

// number is what this node calls another one by: in its next hops, mark and table. It
// means nothing to anybody else.
type number uint16

// Numbers make link-local next hops, whose first and last 256 addresses are reserved. The
// next hops inside of gateways are among those.
const (
	numberMin = 0x0100
	numberMax = 0xfeff
	// numberNames would make 169.254.77.53, where each node answers for names: no next hop
	// can be an address of the node itself.
	numberNames number = 77<<8 | 53
	// numberRouted is the first one that makes an address to which a node has a route. Clouds and CNIs
	// have services of theirs at those before, as 169.254.169.254, 169.254.20.10 and 169.254.1.1.
	numberRouted number = 0xc000
)

// numbers gives each other node a number.
func (c Config) numbers() map[string]number { return numbers(namesOf(c.Others), c.own) }

// numbers gives each name a number by its hash; of two with the same hash the one that
// does not get it tries its next hash. So the others keep theirs when a name comes or
// goes, but for the few that it had in its way. Nobody gets one of own.
func numbers(names []string, own map[number]bool) map[string]number {
	taken := map[number]bool{numberNames: true}
	maps.Copy(taken, own)
	type wish struct {
		name string
		n    number
	}
	wishes := make([]wish, 0, len(names))
	for _, name := range names {
		wishes = append(wishes, wish{name, hashed(numberMin, name, 0)})
	}
	// In the order of first wishes, so that a name that is late in the alphabet does not
	// lose its wish to one whose first wish was another.
	slices.SortFunc(wishes, func(a, b wish) int { return cmp.Or(cmp.Compare(a.n, b.n), cmp.Compare(a.name, b.name)) })
	given := make(map[string]number, len(names))
	var late []wish
	for _, w := range wishes {
		if taken[w.n] {
			late = append(late, w)
			continue
		}
		taken[w.n], given[w.name] = true, w.n
	}
	for _, w := range late {
		for try := 1; taken[w.n]; try++ {
			w.n = hashed(numberMin, w.name, try)
		}
		taken[w.n], given[w.name] = true, w.n
	}
	return given
}

// numbersBeside gives names, in their order, numbers that make addresses, none of them one of some
// others' or of own. No name changes the number of one of those, or of one before it.
func numbersBeside(names []string, others map[string]number, own map[number]bool) map[string]number {
	taken := make(map[number]bool, len(others)+len(names)+len(own))
	maps.Copy(taken, own)
	for _, n := range others {
		taken[n] = true
	}
	given := make(map[string]number, len(names))
	for _, name := range names {
		n := hashed(numberRouted, name, 0)
		for try := 1; taken[n]; try++ {
			n = hashed(numberRouted, name, try)
		}
		taken[n], given[name] = true, n
	}
	return given
}

func hashed(first number, name string, try int) number {
	sum := sha256.Sum256([]byte(name + "\x00" + strconv.Itoa(try)))
	return number(uint32(first) + binary.BigEndian.Uint32(sum[:])%(numberMax-uint32(first)+1))
}

// numberOf is the number whose next hop an address is, if there is one.
func numberOf(a netip.Addr) (number, bool) {
	if !a.Is4() {
		return 0, false
	}
	b := a.As4()
	n := number(b[2])<<8 | number(b[3])
	return n, n.nextHop(true) == a && n >= numberMin && n <= numberMax
}

// learnOwn finds out which next hops the node has as its own addresses, as node-local DNS has it and
// adapters of a server's management: the kernel takes no route by one. What it once had nobody gets
// later, so that no other node's number moves to and fro with a daemon that is restarted. It says whether
// there are more than before.
func (k *Kernel) learnOwn() (more bool, err error) {
	list, err := k.host.addressesOf(netlink.FAMILY_V4)
	if err != nil {
		return false, err
	}
	for _, a := range list {
		if n, ok := numberOf(prefixOf(a.IPNet).Addr()); ok && !k.own[n] {
			k.own[n], more = true, true
		}
	}
	return more, nil
}

// nextHop is the address on our VXLAN that stands for a node.
func (n number) nextHop(v4 bool) netip.Addr {
	hi, lo := byte(n>>8), byte(n)
	if v4 {
		return netip.AddrFrom4([4]byte{169, 254, hi, lo})
	}
	return netip.AddrFrom16([16]byte{0: 0xfe, 1: 0x80, 14: hi, 15: lo})
}

// lineEnd is the address on this node that stands for the other end of a tunnel. What is forwarded may
// not come from a link-local address of IPv6, so that is one which no network has.
func (n number) lineEnd(v4 bool) netip.Addr {
	if v4 {
		return n.nextHop(v4)
	}
	b := linePrefix.Addr().As16()
	b[14], b[15] = byte(n>>8), byte(n)
	return netip.AddrFrom16(b)
}

// linePrefix is among the addresses of IPv6 that Pelago keeps for itself.
var linePrefix = netip.MustParsePrefix("fd46:c73d:1b8d:1::/64")

// Marks are only on packets between our last look before they are routed and our first
// after it. They leave the bits 8 to 11 at 0, which Cilium's rules before ours look at.
const (
	markBits = 0x70e00000
	markMask = 0xfff00f00
)

// mark is what routes a packet to a node.
func (n number) mark() uint32 {
	return markBits | uint32(n&0xff00)<<4 | uint32(n&0x00ff)
}

// table is the routing table with the way to a node.
func (n number) table() int {
	return nodeTables + int(n)
}

// hardware is the hardware address made of a name, the same wherever it is made.
func hardware(name string) string {
	sum := sha256.Sum256([]byte("pelago hardware address\x00" + name))
	sum[0] = sum[0]&^0x01 | 0x02 // of one device, given locally
	return net.HardwareAddr(sum[:6]).String()
}

// Device is the name of the host's end of a gateway's veth.
func Device(peering string) string {
	sum := sha256.Sum256([]byte(peering))
	return devicePrefix + hex.EncodeToString(sum[:4])
}
