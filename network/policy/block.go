package policy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/ipam"
)

// interval is the addresses of one family from first to last.
type interval struct{ first, last netip.Addr }

// block are the addresses of an ipBlock, without those that it excepts.
func block(b *networkingv1.IPBlock) ([]interval, error) {
	whole, err := ofPrefix(b.CIDR)
	if err != nil {
		return nil, fmt.Errorf("cidr: %w", err)
	}
	left := []interval{whole}
	for _, text := range b.Except {
		except, err := ofPrefix(text)
		if err != nil {
			return nil, fmt.Errorf("except: %w", err)
		}
		var next []interval
		for _, i := range left {
			next = append(next, i.without(except)...)
		}
		left = next
	}
	var met []interval
	for _, i := range left {
		met = append(met, i.without(asIPv6)...)
	}
	if len(met) == 0 && len(left) > 0 {
		return nil, errors.New("its addresses are of IPv4, written as of IPv6; write them as of IPv4")
	}
	return met, nil
}

// asIPv6 are addresses of IPv4 as they are written as of IPv6, which no packet has.
var asIPv6 = interval{netip.MustParseAddr("::ffff:0.0.0.0"), netip.MustParseAddr("::ffff:255.255.255.255")}

// mapped are the blocks of an ipBlock with both addresses of what is mapped, if it holds one of them and
// excepts neither, and else without both. Gateways at the provider meet External alone, and are not
// told the other one.
func (c *compiler) mapped(b *networkingv1.IPBlock, blocks []interval) []interval {
	for _, m := range c.world.Mapped {
		held, excepted := contains(blocks, m.Real) || contains(blocks, m.External), excepts(b, m.Real) || excepts(b, m.External)
		for _, a := range []netip.Addr{m.Real, m.External} {
			switch {
			case !held:
			case excepted:
				var left []interval
				for _, i := range blocks {
					left = append(left, i.without(interval{a, a})...)
				}
				blocks = left
			case a == m.External || !c.world.ByUID:
				blocks = append(blocks, interval{a, a})
			}
		}
	}
	return blocks
}

// excepts says whether an ipBlock that can be read excepts an address.
func excepts(b *networkingv1.IPBlock, a netip.Addr) bool {
	return slices.ContainsFunc(b.Except, func(text string) bool {
		p, err := netip.ParsePrefix(text)
		return err == nil && p.Contains(a)
	})
}

func ofPrefix(text string) (interval, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return interval{}, err
	}
	p = p.Masked()
	last := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(last)*8; bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	end, _ := netip.AddrFromSlice(last)
	return interval{p.Addr(), end}, nil
}

// prefixesOf is how many prefixes intervals are.
func prefixesOf(all []interval) (n int) {
	for _, i := range all {
		n += len(ipam.Between(i.first, i.last))
	}
	return n
}

// without are what is left of an interval: none, one or two.
func (i interval) without(o interval) []interval {
	if i.first.BitLen() != o.first.BitLen() || o.last.Less(i.first) || i.last.Less(o.first) {
		return []interval{i}
	}
	var left []interval
	if i.first.Less(o.first) {
		left = append(left, interval{i.first, o.first.Prev()})
	}
	if o.last.Less(i.last) {
		left = append(left, interval{o.last.Next(), i.last})
	}
	return left
}

// union are intervals in order that neither overlap nor touch.
func union(all []interval) (out []interval) {
	slices.SortFunc(all, func(a, b interval) int { return a.first.Compare(b.first) })
	for _, i := range all {
		if n := len(out); n > 0 && out[n-1].first.BitLen() == i.first.BitLen() {
			if before := &out[n-1]; !before.last.Less(i.first) || before.last.Next() == i.first {
				if before.last.Less(i.last) {
					before.last = i.last
				}
				continue
			}
		}
		out = append(out, i)
	}
	return out
}

func contains(all []interval, a netip.Addr) bool {
	return slices.ContainsFunc(all, func(i interval) bool {
		return i.first.BitLen() == a.BitLen() && !a.Less(i.first) && !i.last.Less(a)
	})
}

func written(all []interval) (out []v1alpha1.NetworkAddressRange) {
	for _, i := range all {
		out = append(out, v1alpha1.NetworkAddressRange{First: i.first.String(), Last: i.last.String()})
	}
	return out
}
