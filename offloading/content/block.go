package content

import (
	"fmt"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
)

// Private addresses are a cluster's own, and mean something else in another one; so do link-local
// ones, of which clouds have their metadata. All others are the same everywhere.
var privateBlocks = [][]netip.Prefix{
	prefixes("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10"),
	prefixes("fc00::/7"),
	prefixes("169.254.0.0/16"),
	prefixes("fe80::/10"),
}

func prefixes(texts ...string) (all []netip.Prefix) {
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// block is what a block of addresses says.
type block struct {
	whole  netip.Prefix
	except []netip.Prefix
}

// readBlock reads a block, and says what is wrong with it.
func readBlock(cidr string, except []string) (block, string) {
	if n := excepts(except); n > maxExcepts {
		return block{}, fmt.Sprintf(".except: %d, at most %d; use several blocks", n, maxExcepts)
	}
	whole, ok := readPrefix(cidr)
	if !ok {
		return block{}, ".block: " + quote(cidr) + " is no prefix, as 192.0.2.0/24"
	}
	b := block{whole: whole}
	for i, text := range except {
		e, ok := readPrefix(text)
		if !ok || !inside(e, whole) || e == whole {
			return block{}, fmt.Sprintf(".except[%d]: %s is no prefix within the block, and smaller", i, quote(text))
		}
		b.except = append(b.except, e)
	}
	return b, ""
}

// excepts counts what a block excepts, but for what everywhere may add.
func excepts(all []string) (n int) {
	for _, text := range all {
		if p, ok := readPrefix(text); !ok || !slices.ContainsFunc(privateBlocks, func(kind []netip.Prefix) bool { return slices.Contains(kind, p) }) {
			n++
		}
	}
	return n
}

// readPrefix reads a prefix without the bits of hosts. IPv4 inside of IPv6 is none: who reads it does
// not agree on what it means.
func readPrefix(text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, false
	}
	return p.Masked(), true
}

// inside says whether all of a prefix is in another one.
func inside(p, of netip.Prefix) bool { return of.Bits() <= p.Bits() && of.Contains(p.Addr()) }

// everywhere is what of a block means the same in every cluster: all but private addresses, and these
// too of a block of all addresses, as who says so means everybody. It is false if nothing is left.
func (b block) everywhere() (block, bool) {
	b.except = slices.Clone(b.except)
	for _, kind := range privateBlocks {
		whole := b.whole.Bits() == 0 && !slices.ContainsFunc(kind, func(p netip.Prefix) bool {
			return slices.ContainsFunc(b.except, p.Overlaps)
		})
		if whole {
			continue
		}
		for _, p := range kind {
			if inside(b.whole, p) {
				return block{}, false
			}
			if inside(p, b.whole) {
				b.except = append(slices.DeleteFunc(b.except, func(e netip.Prefix) bool { return inside(e, p) }), p)
			}
		}
	}
	slices.SortFunc(b.except, netip.Prefix.Compare)
	b.except = slices.Compact(b.except)
	return b, true
}

// peer is a block as the API has it.
func (b block) peer() networkingv1.NetworkPolicyPeer {
	p := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: b.whole.String()}}
	for _, e := range b.except {
		p.IPBlock.Except = append(p.IPBlock.Except, e.String())
	}
	return p
}
