package config

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pelago-dev/pelago/sandbox/address"
)

// span is a range of addresses that pods and Services cannot have.
type span struct {
	prefix netip.Prefix
	what   string
}

var spans = []span{
	{address.Space4, "the addresses of the sandbox's machines"},
	{address.Space6, "the addresses of the sandbox's machines"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback addresses"},
	{netip.MustParsePrefix("::1/128"), "the loopback address"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local addresses"},
	{netip.MustParsePrefix("fe80::/10"), "link-local addresses"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast addresses"},
	{netip.MustParsePrefix("ff00::/8"), "multicast addresses"},
	{netip.MustParsePrefix("0.0.0.0/8"), "addresses that mean no host"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved and broadcast addresses"},
}

// size is what a kind of range may be, as prefix lengths; hint tells why.
type size struct {
	shortest, longest int
	hint              string
}

var (
	// kube-apiserver refuses more than 2^20 Service addresses; its allocator and
	// the cluster's DNS address need a few.
	serviceSize4 = size{12, 28, "kube-apiserver takes at most 2^20 addresses"}
	serviceSize6 = size{108, 124, "kube-apiserver takes at most 2^20 addresses"}
	// Each node gets a /24 or a /64. kube-controller-manager hands out at most
	// 2^16 networks of IPv6.
	podSize4 = size{8, 24, "each node takes a /24 of it"}
	podSize6 = size{48, 64, "each node takes a /64 of it"}
)

// placed is a range with the path it stands at.
type placed struct {
	path   string
	prefix netip.Prefix
}

func (c *checker) ranges(at string, k Cluster) {
	pods, services := at+".podRanges", at+".serviceRanges"
	placedPods, podsClear := c.kind(pods, k.PodRanges, podSize4, podSize6)
	placedServices, servicesClear := c.kind(services, k.ServiceRanges, serviceSize4, serviceSize6)
	for _, p := range placedPods {
		c.room(p, at+".nodes", k.Nodes)
	}
	if a, b := families(k.PodRanges), families(k.ServiceRanges); podsClear && servicesClear && !slices.Equal(a, b) {
		c.clash(services, pods, fmt.Sprintf("has the families %v, podRanges has %v", b, a), "give both the same families in the same order")
	}
	all := slices.Concat(placedPods, placedServices)
	for i, a := range all {
		for _, b := range all[:i] {
			if a.prefix.Overlaps(b.prefix) {
				c.clash(a.path, b.path, fmt.Sprintf("%v overlaps %v of %s", a.prefix, b.prefix, b.path), "choose a range of its own")
			}
		}
	}
}

// kind checks the ranges of one kind. It returns those that are ranges at all,
// and whether it is clear which families they are meant to have.
func (c *checker) kind(path string, ranges []netip.Prefix, v4, v6 size) (whole []placed, clear bool) {
	clear = true
	switch n := len(ranges); {
	case n == 0:
		c.wrong(path, "is empty", "give a range or remove the line")
		clear = false
	case n > 2:
		c.wrong(path, fmt.Sprintf("has %d ranges", n), "give one per family: IPv4, IPv6 or both")
		return nil, false
	case n == 2 && ranges[0].IsValid() && ranges[1].IsValid() && ranges[0].Addr().Is4() == ranges[1].Addr().Is4():
		c.wrong(item(path, 1), "is of the same family as the first", "give one range per family: IPv4, IPv6 or both")
		clear = false
	}
	for i, p := range ranges {
		s := v6
		if p.Addr().Is4() {
			s = v4
		}
		if at := item(path, i); c.prefix(at, p, s) {
			whole = append(whole, placed{at, p})
		}
		clear = clear && p.IsValid() && !p.Addr().Is4In6()
	}
	return whole, clear
}

// prefix checks one range by itself.
func (c *checker) prefix(field string, p netip.Prefix, s size) bool {
	switch {
	case !p.IsValid():
		c.wrong(field, "is not an address range", "write it like "+DefaultPodRangeV4)
		return false
	case p.Addr().Is4In6():
		c.wrong(field, fmt.Sprintf("%v is IPv4 in an IPv6 form", p), "write it as IPv4")
		return false
	case p != p.Masked():
		c.wrong(field, fmt.Sprintf("%v begins inside the range", p), fmt.Sprintf("write %v", p.Masked()))
		return false
	}
	for _, f := range spans {
		if p.Overlaps(f.prefix) {
			c.wrong(field, fmt.Sprintf("%v overlaps %v, %s", p, f.prefix, f.what), "choose a private range such as "+DefaultPodRangeV4+" or "+DefaultPodRangeV6)
			return false
		}
	}
	switch b := p.Bits(); {
	case b < s.shortest:
		c.wrong(field, fmt.Sprintf("%v is too large: %s", p, s.hint), fmt.Sprintf("choose a prefix length of %d to %d", s.shortest, s.longest))
	case b > s.longest:
		c.wrong(field, fmt.Sprintf("%v is too small", p), fmt.Sprintf("choose a prefix length of %d to %d", s.shortest, s.longest))
	}
	return true
}

// room checks that every node finds its part in a pod range.
func (c *checker) room(p placed, nodesField string, nodes int) {
	part := podSize6.longest
	if p.prefix.Addr().Is4() {
		part = podSize4.longest
	}
	spare := part - p.prefix.Bits()
	if nodes > maxNodes || spare < 0 || spare >= 16 || nodes <= 1<<spare {
		return // also: too many nodes or too small a range, which has been said
	}
	length := part
	for 1<<(part-length) < nodes {
		length--
	}
	c.clash(p.path, nodesField, fmt.Sprintf("%v holds a /%d for %d of %d nodes", p.prefix, part, 1<<spare, nodes),
		fmt.Sprintf("choose a /%d or larger", length))
}

// families names the IP families of ranges, in their order.
func families(ranges []netip.Prefix) []string {
	var names []string
	for _, p := range ranges {
		if p.Addr().Is4() {
			names = append(names, "IPv4")
		} else {
			names = append(names, "IPv6")
		}
	}
	return names
}
