package plan

import (
	"cmp"
	"net/netip"
	"slices"
)

// claim is a prefix and who claims it.
type claim struct {
	prefix netip.Prefix
	holder int
}

// clash is of two claims to the same addresses.
type clash struct {
	of, with claim
}

func (c claim) compare(o claim) int {
	return cmp.Or(c.prefix.Addr().Compare(o.prefix.Addr()), cmp.Compare(c.prefix.Bits(), o.prefix.Bits()), cmp.Compare(c.holder, o.holder))
}

// disjoint returns the claims that overlap none of another holder, of each holder's
// the widest, in order, and of the others with which one they overlap. All of them are
// left out: nobody knows who is right.
func disjoint(claims []claim) (kept []claim, clashes []clash) {
	slices.SortFunc(claims, claim.compare)
	contested := false // of the one that was kept last, which all that it holds follow
	for _, c := range claims {
		if len(kept) == 0 || !kept[len(kept)-1].prefix.Overlaps(c.prefix) {
			if contested {
				kept = kept[:len(kept)-1]
			}
			kept, contested = append(kept, c), false
			continue
		}
		if outer := kept[len(kept)-1]; outer.holder != c.holder {
			contested = true
			clashes = append(clashes, clash{c, outer})
		}
	}
	if contested {
		kept = kept[:len(kept)-1]
	}
	return kept, clashes
}

// settle returns those of some claims that are kept if each comes after those before it, in order of
// their prefixes, and of the others with which one they overlap.
func settle(claims []claim) (kept []claim, clashes []clash) {
	for _, c := range claims {
		i, _ := slices.BinarySearchFunc(kept, c, claim.compare)
		switch {
		case i > 0 && kept[i-1].prefix.Overlaps(c.prefix):
			clashes = append(clashes, clash{c, kept[i-1]})
		case i < len(kept) && kept[i].prefix.Overlaps(c.prefix):
			clashes = append(clashes, clash{c, kept[i]})
		default:
			kept = slices.Insert(kept, i, c)
		}
	}
	return kept, clashes
}

// held reports whether one of some claims, sorted and disjoint, holds an address.
func held(claims []claim, a netip.Addr) bool { return holding(claims, a) >= 0 }

// holding is which one of such claims holds an address, -1 if none does.
func holding(claims []claim, a netip.Addr) int {
	after, exact := slices.BinarySearchFunc(claims, a, func(c claim, a netip.Addr) int { return c.prefix.Addr().Compare(a) })
	switch {
	case exact:
		return after
	case after > 0 && claims[after-1].prefix.Contains(a):
		return after - 1
	}
	return -1
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// ipv4InIPv6 has the addresses of IPv4 as they look among those of IPv6 (RFC 4291, 2.5.5.2): no packet has them.
var ipv4InIPv6 = netip.MustParsePrefix("::ffff:0.0.0.0/96")

// sound holds for a prefix in the one form that is compared.
func sound(p netip.Prefix) bool {
	return p.IsValid() && p == p.Masked() && !p.Addr().Is4In6()
}

// unusable says why an address is that of no node or pod, "" if it may be.
func unusable(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "is none"
	case a.Is4In6() || a.Zone() != "":
		return "is not written the usual way"
	case a.IsUnspecified() || a.IsLoopback() || a.IsMulticast() || a.IsLinkLocalUnicast():
		return "is none by which others can reach it"
	}
	return ""
}

// firstOf returns the first address of a family, the zero one if there is none.
func firstOf(addrs []netip.Addr, v4 bool) netip.Addr {
	for _, a := range addrs {
		if a.Is4() == v4 {
			return a
		}
	}
	return netip.Addr{}
}

func familyName(v4 bool) string {
	if v4 {
		return "4"
	}
	return "6"
}
