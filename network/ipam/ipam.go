// Package ipam decides by which prefix each range of each peer is viewed in this cluster, and
// translates addresses to views and back. It is pure: it remembers nothing, and talks to nothing.
//
// What a peer says of its ranges is untrusted, and what must never happen is that a view covers
// an address that means something here. So the question is asked of views, not of ranges:
//
//   - A range that overlaps our pods, services, nodes or API server is no attack. Clusters of
//     owners who never met have the same addresses, nodes' included, and it is what translation is
//     for: the real addresses of a peer exist in the network namespace of its gateway only. To refuse
//     such a range would forbid the normal case, would tell a peer what we use where, and would
//     protect nothing that a translated view does not. It gets one.
//   - A range is viewed as it is only if it is disjoint from all that is taken, and of private addresses,
//     or of others that the owner vouches for. Public ones are disjoint from all that is ours, and
//     still a peer that claims 8.8.8.0/24 would get what our nodes send to their name server. A view
//     from the pools costs it nothing if it is honest.
//   - Refused are ranges that make no sense to carry: whoever is there, no pod has such an
//     address. ParseRanges says which.
//
// A peer can waste views, by many or large ranges that it does not have. It cannot take those of
// others, which are kept; a PoolError names who takes most.
package ipam

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"time"
)

// Own is what this cluster uses and its owner wants. No view overlaps the first six.
type Own struct {
	Pods, Services, External []netip.Prefix
	// Nodes are the networks that nodes are in: their interfaces' prefixes rather than single
	// addresses, and the API server's and name servers' addresses.
	Nodes []netip.Prefix
	// Reached are addresses beyond those at which programs of this cluster reach something
	// without a tunnel, above all the API servers of peers. What a peer may change at will is not for
	// this list: it would move views of others.
	Reached []netip.Prefix
	// Reserved is what the owner keeps out of views.
	Reserved []netip.Prefix
	// Mapped are addresses beyond peers that pods are given, and Mappable those that they may be. No
	// new view overlaps the former, and none the latter unless it is cut from pools that have no other
	// room. Views that are there stay.
	Mapped, Mappable []netip.Prefix
	// Pools are what views are cut from, the first one first.
	Pools []netip.Prefix
	// AsIs are prefixes, beside private ones and the pools, in which a peer's range may be its own view.
	AsIs []netip.Prefix
}

// Peering is what a peer says and what was decided about it before.
type Peering struct {
	// Key names the peering, of one here and for as long as it lasts.
	Key string
	// Since is when it began. Who came first chooses first.
	Since time.Time
	// Ranges are those of its pods and of its external addresses, as the peer wrote them.
	Ranges []string
	// Before are the views of the last Result. They are checked like all else, but a peer that
	// could write them would decide where its views are: they belong where it cannot.
	Before []View
	// Translate says that no range is its own view, also where it could be: who is shown the view
	// does not learn by it which addresses the peer has.
	Translate bool
}

// View says that the addresses of a real prefix, of a peer, are those of another one here: of
// the same size, and often the same.
type View struct {
	Real, View netip.Prefix
}

// sound reports whether a view is one at all.
func (v View) sound() bool {
	return v.Real.IsValid() && v.View.IsValid() && v.Real.Bits() == v.View.Bits() && v.Real.Addr().BitLen() == v.View.Addr().BitLen() &&
		v.Real == v.Real.Masked() && v.View == v.View.Masked() && !v.Real.Addr().Is4In6() && !v.View.Addr().Is4In6()
}

// Result is what was decided about one peering.
type Result struct {
	// Views are sorted by real prefix. They are in force also if Errs is not empty.
	Views []View
	// Changes are views from before that could not be kept.
	Changes []Change
	// Errs say which ranges have no view, and what to do: RangeErrors, joined, if the peer's list is refused,
	// and a PoolError for each range that found no place.
	Errs []error
}

// Change says that a range has lost its view.
type Change struct {
	Real, Was netip.Prefix
	// Now is the view that took its place, the zero Prefix if there is none.
	Now netip.Prefix
	// Why says what was wrong with the old one.
	Why string
}

// Allocate decides the views of all peerings, by key. The same input has the same result in
// whatever order its lists are, but for the order of pools.
//
// First the views from before are kept that are still right: disjoint from all that is ours and from
// each other, and of private addresses, of the pools or AsIs, whatever the pools were then. Where two overlap,
// that of the older peering stays, or of equally old ones that of the lower key. Then, in the same
// order of peerings and the largest range first, ranges without a view get one: themselves if that
// can be and the peering is not to be translated, else the highest free prefix of the first pool that has one.
//
// A list of ranges that is refused changes nothing: the ranges from before stay, so that a slip of a peer's
// owner does not cost connections. A peering that is not in the input has no views, and others may
// get what were its views at once; who wants a time in between leaves it in.
func Allocate(own Own, peerings []Peering) map[string]Result {
	own.Pools, own.AsIs = normal(own.Pools), normal(own.AsIs)
	taken := own.taken()
	claims, results := claims(peerings)
	for _, c := range claims {
		c.keep(own, taken)
	}
	room := own.room(taken)
	for _, c := range claims {
		c.fill(own, room)
	}
	blame(claims)
	for _, c := range claims {
		results[c.Key] = c.result()
	}
	return results
}

// holder is who has taken a prefix: something of ours, or a range of a peering.
type holder struct {
	what string
	key  string
	real netip.Prefix
}

func (h holder) String() string {
	if h.key == "" {
		return fmt.Sprintf("%s (%v)", h.what, h.real)
	}
	return fmt.Sprintf("the view of %v of peering %s", h.real, h.key)
}

// taken is the space before the first view.
func (o Own) taken() *space {
	taken := &space{}
	for _, s := range special {
		taken.take(s.prefix, holder{what: s.what, real: s.prefix})
	}
	for _, ours := range []struct {
		what     string
		prefixes []netip.Prefix
	}{
		{"the pods here", o.Pods}, {"the services here", o.Services}, {"the external addresses here", o.External},
		{"the nodes here", o.Nodes}, {"what is reached without a tunnel", o.Reached}, {"what is reserved", o.Reserved},
	} {
		for _, p := range normal(ours.prefixes) {
			taken.take(p, holder{what: ours.what, real: p})
		}
	}
	return taken
}

// room is where new views may be: best in what is free in the last of its spaces, each of which has
// all that is taken in the ones before.
type room []*space

// room is what is taken already, beside that what is mapped, and beside these what may be.
func (o Own) room(taken *space) room {
	r := room{taken}
	for _, more := range []struct {
		what     string
		prefixes []netip.Prefix
	}{{"what is mapped", o.Mapped}, {"what may be mapped", o.Mappable}} {
		all := normal(more.prefixes)
		if len(all) == 0 {
			continue
		}
		next := r[len(r)-1].clone()
		for _, p := range all {
			next.take(p, holder{what: more.what, real: p})
		}
		r = append(r, next)
	}
	if len(normal(o.Mapped)) > 0 {
		return r[1:] // that is never covered
	}
	return r
}

func (r room) take(p netip.Prefix, by holder) {
	for _, s := range r {
		s.take(p, by)
	}
}

// holder is one of those that keep a prefix from being a view, of several the one that is more so.
func (r room) holder(p netip.Prefix) (holder, bool) {
	for _, s := range r {
		if by, taken := s.holder(p); taken {
			return by, true
		}
	}
	return holder{}, false
}

// cut finds a prefix in pools, that avoids all that it can.
func (r room) cut(pools []netip.Prefix, length int) (netip.Prefix, bool) {
	for _, s := range slices.Backward(r) {
		if p, ok := cut(s, pools, length); ok {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

func (r room) clone() (same room) {
	for _, s := range r {
		same = append(same, s.clone())
	}
	return same
}

// Free finds the highest prefix of a length, of the family that is asked for, that lies in the
// first pool with one and overlaps nothing of ours nor what is to be avoided.
func (o Own) Free(four bool, length int, avoid []netip.Prefix) (netip.Prefix, bool) {
	taken := o.taken()
	for _, p := range normal(avoid) {
		taken.take(p, holder{what: "what is to be avoided", real: p})
	}
	free := o.room(taken)
	like := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	if four {
		like = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return free.cut(family(normal(o.Pools), like), length)
}

// Holds says what of ours a prefix overlaps, "" if nothing.
func (o Own) Holds(p netip.Prefix) string {
	if by, taken := o.taken().holder(p); taken {
		return by.String()
	}
	return ""
}

// normal are prefixes of ours in the one form that is compared. What is none is left out.
func normal(prefixes []netip.Prefix) []netip.Prefix {
	var plain []netip.Prefix
	for _, p := range prefixes {
		if a := p.Addr(); a.Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(a.Unmap(), p.Bits()-96)
		}
		if p = p.Masked(); p.IsValid() {
			plain = append(plain, p)
		}
	}
	return plain
}

// allowed reports whether a prefix may be a view, of a range of any peer, as far as
// nobody has it.
func (o Own) allowed(p netip.Prefix) bool {
	return within(p, private) || within(p, o.AsIs) || within(p, o.Pools)
}

// claim is a peering on its way to a Result.
type claim struct {
	Peering
	ranges  []netip.Prefix // the largest first
	views   map[netip.Prefix]netip.Prefix
	lost    map[netip.Prefix]Change
	refused error
	lacking []*PoolError
}

// claims reads the peerings and sorts them. Those whose key is not theirs alone have
// their results at once.
func claims(peerings []Peering) ([]*claim, map[string]Result) {
	named := map[string]int{}
	for _, p := range peerings {
		named[p.Key]++
	}
	var claims []*claim
	results := make(map[string]Result, len(peerings))
	for _, p := range peerings {
		if n := named[p.Key]; n > 1 {
			results[p.Key] = Result{Errs: []error{fmt.Errorf("%d peerings have the key %q", n, p.Key)}}
			continue
		}
		c := &claim{Peering: p, views: map[netip.Prefix]netip.Prefix{}, lost: map[netip.Prefix]Change{}}
		c.Before = slices.DeleteFunc(slices.Clone(p.Before), func(v View) bool { return !v.sound() })
		slices.SortFunc(c.Before, View.compare)
		if c.ranges, c.refused = ParseRanges(p.Ranges); c.refused != nil {
			c.ranges = rangesOf(c.Before)
		}
		claims = append(claims, c)
	}
	slices.SortFunc(claims, func(a, b *claim) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key)) })
	return claims, results
}

func (v View) compare(o View) int {
	return cmp.Or(v.Real.Addr().Compare(o.Real.Addr()), cmp.Compare(v.Real.Bits(), o.Real.Bits()), v.View.Addr().Compare(o.View.Addr()))
}

// rangesOf are the ranges that views are of, as far as a peer could have them.
func rangesOf(views []View) []netip.Prefix {
	var ranges []netip.Prefix
	for _, v := range views {
		if carried(v.Real) == nil && !slices.ContainsFunc(ranges, v.Real.Overlaps) && len(ranges) < maxRanges {
			ranges = append(ranges, v.Real)
		}
	}
	slices.SortFunc(ranges, bySize)
	return ranges
}

// keep takes the views from before that are still right.
func (c *claim) keep(own Own, taken *space) {
	for _, v := range c.Before {
		if _, has := c.views[v.Real]; has || !slices.Contains(c.ranges, v.Real) {
			continue
		}
		switch by, overlaps := taken.holder(v.View); {
		case overlaps:
			c.lost[v.Real] = Change{Real: v.Real, Was: v.View, Why: fmt.Sprintf("it overlaps %v", by)}
		case c.Translate && v.View == v.Real:
			c.lost[v.Real] = Change{Real: v.Real, Was: v.View, Why: "it is the range itself, which is to be translated"}
		case !own.allowed(v.View):
			c.lost[v.Real] = Change{Real: v.Real, Was: v.View, Why: "it is neither private nor in a pool"}
		default:
			delete(c.lost, v.Real) // of two from before, one is right
			c.take(v, room{taken})
		}
	}
}

func (c *claim) take(v View, room room) {
	room.take(v.View, holder{key: c.Key, real: v.Real})
	c.views[v.Real] = v.View
}

// fill finds views for the ranges that have none.
func (c *claim) fill(own Own, room room) {
	for _, r := range c.ranges {
		if _, has := c.views[r]; has {
			continue
		}
		by, overlaps := room.holder(r)
		if !c.Translate && !overlaps && own.allowed(r) {
			c.take(View{r, r}, room)
			continue
		}
		pools := family(own.Pools, r)
		if p, ok := c.other(r, pools, room); ok {
			c.take(View{r, p}, room)
			continue
		}
		why := "is not of private addresses"
		switch {
		case overlaps:
			why = fmt.Sprintf("overlaps %v", by)
		case own.allowed(r):
			why = "is to be translated"
		}
		c.lacking = append(c.lacking, &PoolError{Range: r, Pools: pools, Why: why})
	}
}

// other finds a view in the pools, which for who is to be translated is not the range itself.
func (c *claim) other(r netip.Prefix, pools []netip.Prefix, room room) (netip.Prefix, bool) {
	p, ok := room.cut(pools, r.Bits())
	if !ok || p != r || !c.Translate {
		return p, ok
	}
	rest := room.clone()
	rest.take(r, holder{what: "the range itself", real: r})
	return rest.cut(pools, r.Bits())
}

// family are the pools that are of a range's.
func family(pools []netip.Prefix, r netip.Prefix) []netip.Prefix {
	var same []netip.Prefix
	for _, p := range pools {
		if p.Addr().Is4() == r.Addr().Is4() {
			same = append(same, p)
		}
	}
	return same
}

func cut(taken *space, pools []netip.Prefix, length int) (netip.Prefix, bool) {
	for _, pool := range pools {
		if p, ok := taken.free(pool, length); ok {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// blame writes into the errors who takes most of the pools they speak of.
func blame(claims []*claim) {
	most := map[bool]string{}
	for _, c := range claims {
		for _, e := range c.lacking {
			is4 := e.Range.Addr().Is4()
			if _, known := most[is4]; !known {
				most[is4] = mostOf(claims, e.Pools)
			}
			e.Most = most[is4]
		}
	}
}

func mostOf(claims []*claim, pools []netip.Prefix) (key string) {
	var most float64
	for _, c := range claims {
		var sum float64
		for _, r := range c.ranges { // in a fixed order
			if v, ok := c.views[r]; ok && within(v, pools) {
				sum += math.Ldexp(1, v.Addr().BitLen()-v.Bits())
			}
		}
		if sum > most {
			key, most = c.Key, sum
		}
	}
	return key
}

// result says what became of the claim.
func (c *claim) result() Result {
	var r Result
	if c.refused != nil {
		r.Errs = append(r.Errs, c.refused)
	}
	for _, e := range c.lacking {
		r.Errs = append(r.Errs, e)
	}
	for real, view := range c.views {
		r.Views = append(r.Views, View{real, view})
	}
	slices.SortFunc(r.Views, View.compare)
	for real, lost := range c.lost {
		lost.Now = c.views[real]
		r.Changes = append(r.Changes, lost)
	}
	slices.SortFunc(r.Changes, func(a, b Change) int { return View{a.Real, a.Was}.compare(View{b.Real, b.Was}) })
	return r
}
