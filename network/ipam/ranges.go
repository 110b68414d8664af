package ipam

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

const (
	// maxRanges is how many ranges a peer may have, of both families together.
	maxRanges = 16
	// maxText is more than the longest prefix takes.
	maxText = 64
	// shortest4 and shortest6 are the lengths of the largest ranges that are carried. A
	// pod network is never larger, and one peer must not be able to claim most of a family.
	shortest4, shortest6 = 8, 16
)

// meant are addresses that mean something else than one host.
type meant struct {
	prefix netip.Prefix
	what   string
}

// special are addresses that are nobody's pod, and that no view may have.
var special = []meant{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified addresses"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback addresses"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local addresses"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast addresses"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved addresses"},
	{netip.MustParsePrefix("::/8"), "unspecified, loopback and IPv4 addresses"}, // also those of NAT64
	{netip.MustParsePrefix("fe80::/10"), "link-local addresses"},
	{netip.MustParsePrefix("ff00::/8"), "multicast addresses"},
}

// private are the addresses that are nobody's in the internet, without 100.64.0.0/10: that
// one is for the insides of networks, and their owners use it where no cluster says so.
var private = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("fc00::/7"),
}

// RangeError says why a range of a peer, or a pool, is refused.
type RangeError struct {
	// Range is as it was written, shortened and quoted if it is no prefix; empty if all of them are meant.
	Range          string
	Reason, Remedy string
}

// Error names the range, the reason and the remedy.
func (e *RangeError) Error() string {
	if e.Range == "" {
		return e.Reason + ": " + e.Remedy
	}
	return fmt.Sprintf("%s %s: %s", e.Range, e.Reason, e.Remedy)
}

// PoolError says that there is no view for a range.
type PoolError struct {
	Range netip.Prefix
	// Pools are those of the range's family.
	Pools []netip.Prefix
	// Why says why the range cannot be viewed as it is.
	Why string
	// Most is the key of the peering that takes most of the pools, if any does.
	Most string
}

// Error names the range, the pools, the reason and the remedy.
func (e *PoolError) Error() string {
	family, length := "IPv6", e.Range.Bits()
	if e.Range.Addr().Is4() {
		family = "IPv4"
	}
	smaller := "let the peer publish the smaller ranges that its pods really have"
	switch {
	case len(e.Pools) == 0:
		return fmt.Sprintf("%v %s, and there is no pool of %s: add one with a /%d that nobody here uses", e.Range, e.Why, family, length)
	case !slices.ContainsFunc(e.Pools, func(p netip.Prefix) bool { return p.Bits() <= length }):
		return fmt.Sprintf("%v %s, and is larger than every pool of %s (%s): add a pool of /%d or larger, or %s",
			e.Range, e.Why, family, list(e.Pools), length, smaller)
	}
	most := ""
	if e.Most != "" {
		most = fmt.Sprintf(", of which peering %s takes most", e.Most)
	}
	return fmt.Sprintf("%v %s, and no /%d is free in the pools of %s (%s)%s: add a pool, or %s", e.Range, e.Why, length, family, list(e.Pools), most, smaller)
}

func list(prefixes []netip.Prefix) string {
	var texts []string
	for _, p := range prefixes {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}

// DefaultPools are the pools of a cluster whose owner names none. Views are cut from the
// high end, far from 10.0.0.0/16, 10.42.0.0/16, 10.96.0.0/12 and others that everybody's defaults
// are. 100.64.0.0/10 is none of them: Tailscale, OVN-Kubernetes, EKS and Alibaba's metadata use it
// unseen. IPv6 is a /40 of random local addresses, 256 times the usual /48, since a peer's pods may
// have a /48; it follows from the cluster's id, so that two clusters hardly ever choose alike.
func DefaultPools(clusterID string) []netip.Prefix {
	sum := sha256.Sum256([]byte("pelago pool of views\n" + clusterID))
	local := netip.AddrFrom16([16]byte{0xfd, sum[0], sum[1], sum[2], sum[3]})
	return []netip.Prefix{private[0], private[1], private[2], netip.PrefixFrom(local, 40)}
}

// ParsePools reads the pools that an owner has written.
func ParsePools(texts []string) ([]netip.Prefix, error) {
	var pools []netip.Prefix
	var errs []error
	for _, text := range texts {
		p, err := plain(text)
		if err == nil {
			err = meaningful(p)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("pool %w", err))
			continue
		}
		pools = append(pools, p)
	}
	return pools, errors.Join(errs...)
}

// ParseRanges reads the ranges that a peer has written, and sorts them: the largest first.
// It takes all of them or none.
func ParseRanges(texts []string) ([]netip.Prefix, error) {
	if len(texts) > maxRanges {
		return nil, &RangeError{Reason: fmt.Sprintf("there are %d ranges", len(texts)), Remedy: fmt.Sprintf("publish at most %d, larger ones if need be", maxRanges)}
	}
	var ranges []netip.Prefix
	var errs []error
	for _, text := range slices.Sorted(slices.Values(texts)) {
		p, err := plain(text)
		if err == nil {
			err = carried(p)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ranges = append(ranges, p)
	}
	slices.SortFunc(ranges, bySize)
	for i, p := range ranges {
		for _, larger := range ranges[:i] {
			if p.Overlaps(larger) {
				errs = append(errs, &RangeError{p.String(), fmt.Sprintf("overlaps %v of the same peer", larger), "publish each address once"})
				break
			}
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return ranges, nil
}

// bySize orders prefixes: the largest first, then by address.
func bySize(a, b netip.Prefix) int {
	return cmp.Or(cmp.Compare(a.Bits(), b.Bits()), a.Addr().Compare(b.Addr()))
}

// plain reads a prefix that is written the one way it can be.
func plain(text string) (netip.Prefix, error) {
	if len(text) > maxText {
		return netip.Prefix{}, &RangeError{fmt.Sprintf("%.20q…", text), "is too long for a range", "write it like 10.42.0.0/16"}
	}
	p, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, &RangeError{fmt.Sprintf("%q", text), "is not a range of addresses", "write it like 10.42.0.0/16"}
	case p.Addr().Is4In6():
		return netip.Prefix{}, &RangeError{p.String(), "is IPv4 in an IPv6 form", "write it as IPv4"}
	case p != p.Masked():
		return netip.Prefix{}, &RangeError{p.String(), "begins inside the range", "write " + p.Masked().String()}
	}
	return p, nil
}

// carried says why a plain prefix is never carried through a tunnel, whoever is there.
func carried(p netip.Prefix) error {
	shortest := shortest6
	if p.Addr().Is4() {
		shortest = shortest4
	}
	if p.Bits() < shortest {
		return &RangeError{p.String(), fmt.Sprintf("is larger than a /%d", shortest), "publish the ranges that pods really have"}
	}
	return meaningful(p)
}

// meaningful refuses prefixes with addresses that mean something else than one host.
func meaningful(p netip.Prefix) error {
	for _, s := range special {
		if p.Overlaps(s.prefix) {
			return &RangeError{p.String(), fmt.Sprintf("overlaps %v, %s", s.prefix, s.what), "choose a range without them"}
		}
	}
	return nil
}

// within reports whether all of a prefix is in one of several.
func within(p netip.Prefix, several []netip.Prefix) bool {
	return slices.ContainsFunc(several, func(q netip.Prefix) bool {
		return q.IsValid() && q.Bits() <= p.Bits() && q.Contains(p.Addr())
	})
}
