// Package mapping decides what IPMappings get: which address of this cluster's external range
// stands for what is mapped, and which addresses nobody may map. It is pure: it talks to
// nothing, and remembers nothing but what it is given.
package mapping

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pelago-dev/pelago/network/ipam"
)

// Part is a prefix of this cluster's or Pelago's, what its addresses are, as in "a pod's", and what to do
// about it if that is not to map something outside of the cluster.
type Part struct {
	Prefix netip.Prefix
	What   string
	Remedy string
}

// Ground is what decisions follow from.
type Ground struct {
	// External are the external ranges of this cluster, at most one of each family.
	External []netip.Prefix
	// Mappable is what the owner lets be mapped.
	Mappable []netip.Prefix
	// Taken is what is never mapped, whatever Mappable says.
	Taken []Part
}

// special are prefixes that mean something else than one host somewhere, or are this node's own
// business: clouds give out credentials by link-local addresses.
var special = []Part{
	{Prefix: netip.MustParsePrefix("0.0.0.0/8"), What: "unspecified"},
	{Prefix: netip.MustParsePrefix("127.0.0.0/8"), What: "loopback"},
	{Prefix: netip.MustParsePrefix("169.254.0.0/16"), What: "link-local"},
	{Prefix: netip.MustParsePrefix("224.0.0.0/4"), What: "multicast"},
	{Prefix: netip.MustParsePrefix("240.0.0.0/4"), What: "reserved"},
	{Prefix: netip.MustParsePrefix("::/8"), What: "unspecified, loopback or IPv4 in IPv6"},
	{Prefix: netip.MustParsePrefix("64:ff9b::/96"), What: "IPv4 in IPv6"},
	{Prefix: netip.MustParsePrefix("64:ff9b:1::/48"), What: "IPv4 in IPv6"},
	{Prefix: netip.MustParsePrefix("2002::/16"), What: "IPv4 in IPv6"},
	{Prefix: netip.MustParsePrefix("fe80::/10"), What: "link-local"},
	{Prefix: netip.MustParsePrefix("fec0::/10"), What: "site-local"},
	{Prefix: netip.MustParsePrefix("ff00::/8"), What: "multicast"},
	// By these clouds give out credentials or orders.
	{Prefix: netip.MustParsePrefix("100.100.100.200/32"), What: "an address of a cloud's metadata"},
	{Prefix: netip.MustParsePrefix("168.63.129.16/32"), What: "an address of a cloud's metadata"},
	{Prefix: netip.MustParsePrefix("192.0.0.0/24"), What: "an address of a cloud's metadata"},
	{Prefix: netip.MustParsePrefix("fd00:ec2::/32"), What: "an address of a cloud's metadata"},
	{Prefix: netip.MustParsePrefix("fd20:ce::/32"), What: "an address of a cloud's metadata"},
}

// Refuse says why an address may not be mapped, and what to do; "" if it may.
func Refuse(g Ground, a netip.Addr) string {
	if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
		return "spec.address: is no address of one host; write it like 192.0.2.50"
	}
	for _, p := range special {
		if p.Prefix.Contains(a) {
			return fmt.Sprintf("spec.address: %s is %s and cannot be mapped; give an address by which every node reaches the same host", a, p.What)
		}
	}
	for _, p := range g.Taken {
		if p.Prefix.Contains(a) {
			return fmt.Sprintf("spec.address: %s is %s and cannot be mapped; %s", a, p.What, cmp.Or(p.Remedy, "a mapping is for what is outside of the cluster"))
		}
	}
	if len(g.Mappable) == 0 {
		return fmt.Sprintf("spec.address: the owner of this cluster lets nothing be mapped: for %s to be, the setting network.mappable has to hold it", a)
	}
	if !slices.ContainsFunc(g.Mappable, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return fmt.Sprintf("spec.address: %s is not in the setting network.mappable of this cluster, which its owner can change", a)
	}
	return ""
}

// Holder is a mapping that has an address, or has asked for one.
type Holder struct {
	// Key tells mappings apart, one that is made anew under the same name, too.
	Key   string
	Since time.Time
	// Has is the address that it was given, if any.
	Has netip.Addr
	// Other says that it is no mapping, but something else that an address stands for.
	Other bool
}

// older compares holders: of two with one address the first keeps it.
func older(a, b Holder) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Key, b.Key)) }

// Holds says whether a holder keeps the address that it has: it is one of the external ranges', of
// the family that it needs, and no older holder has it.
func Holds(external []netip.Prefix, of Holder, v4 bool, others []Holder) bool {
	return of.Has.IsValid() && of.Has.Is4() == v4 && Giveable(external, of.Has) &&
		!slices.ContainsFunc(others, func(o Holder) bool { return o.Key != of.Key && o.Has == of.Has && older(o, of) < 0 })
}

// Choose gives an address of a family that nobody has: the one after the highest that is held or
// was left, then the lowest that was not left, then the one that was left first. It says whether
// there is one, and whether there is a range at all. Left are addresses that were given up, the
// last one last.
func Choose(external []netip.Prefix, v4 bool, holders []Holder, left []netip.Addr) (a netip.Addr, free, ranged bool) {
	var all []netip.Prefix
	for _, p := range external {
		if p.Addr().Is4() == v4 {
			all = append(all, ipam.Mappable(p)...)
		}
	}
	if len(all) == 0 {
		return netip.Addr{}, false, false
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	held, highest := map[netip.Addr]bool{}, netip.Addr{}
	use := func(a netip.Addr) {
		if a.Is4() == v4 && Giveable(external, a) && (!highest.IsValid() || highest.Less(a)) {
			highest = a
		}
	}
	for _, h := range holders {
		if held[h.Has] = true; !h.Other {
			use(h.Has)
		}
	}
	was := map[netip.Addr]bool{}
	for _, a := range left {
		was[a] = true
		use(a)
	}
	fresh := func(a netip.Addr) bool { return !held[a] && !was[a] && Giveable(external, a) }
	if highest.IsValid() {
		if next := highest.Next(); fresh(next) && next.Is4() == v4 {
			return next, true, true
		}
	}
	// No more are looked at than there may be held or left, and one.
	for _, p := range all {
		for a := p.Addr(); p.Contains(a); a = a.Next() {
			if fresh(a) {
				return a, true, true
			}
		}
	}
	for _, a := range left {
		if !held[a] && a.Is4() == v4 && Giveable(external, a) {
			return a, true, true
		}
	}
	return netip.Addr{}, false, true
}

// Giveable says whether an address is one of those that are given: the first few are Pelago's,
// and the last one of IPv4 is none that all programs take.
func Giveable(external []netip.Prefix, a netip.Addr) bool {
	for _, whole := range external {
		if !whole.Contains(a) {
			continue
		}
		in := slices.ContainsFunc(ipam.Mappable(whole), func(p netip.Prefix) bool { return p.Contains(a) })
		return in && (a.Is6() || whole.Contains(a.Next()))
	}
	return false
}

// Highest is the highest address of a family that is given and that nobody holds.
func Highest(external []netip.Prefix, v4 bool, held map[netip.Addr]bool) (netip.Addr, bool) {
	for _, whole := range external {
		parts := ipam.Mappable(whole)
		if whole.Addr().Is4() != v4 || len(parts) == 0 {
			continue
		}
		slices.SortFunc(parts, netip.Prefix.Compare)
		first := parts[0].Addr()
		for a := last(whole); !a.Less(first); a = a.Prev() { // no more are looked at than may be held, and two
			if !held[a] && Giveable(external, a) {
				return a, true
			}
		}
	}
	return netip.Addr{}, false
}

// last is the last address of a prefix.
func last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for i := p.Bits(); i < 8*len(b); i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
