package ipam

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

// dice gives a number from 0 to below n: of chance, or of what a fuzzer wants.
type dice func(n int) int

// world is a small universe, in which prefixes meet often and pools run out.
type world struct {
	own      Own
	peerings []Peering
}

var universes = []netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/20"), netip.MustParsePrefix("fd00::/116"),
	netip.MustParsePrefix("198.51.96.0/20"), netip.MustParsePrefix("2001:db8::/116"), // not private
	netip.MustParsePrefix("127.0.0.0/20"), // special
}

// prefix is one in the first n universes, of its length plus 2 to 8.
func (d dice) prefix(n int) netip.Prefix {
	u := universes[d(n)]
	b := blockOf(u)
	at := uint64(d(1 << 12))
	if u.Addr().Is4() {
		b.hi |= at << 32
	} else {
		b.lo |= at
	}
	return b.first(u.Bits() + 2 + d(7)).prefix(u.Addr().Is4())
}

func (d dice) prefixes(most, universes int) (all []netip.Prefix) {
	for range d(most + 1) {
		all = append(all, d.prefix(universes))
	}
	return all
}

// ranges are as a peer may write them: mostly in order, now and then not.
func (d dice) ranges() (texts []string) {
	for range d(5) {
		var p netip.Prefix
		switch d(20) {
		case 0:
			p = d.prefix(5)
		default:
			p = d.prefix(4)
		}
		if d(40) > 0 && slices.ContainsFunc(texts, func(s string) bool { return netip.MustParsePrefix(s).Overlaps(p) }) {
			continue
		}
		texts = append(texts, p.String())
	}
	return texts
}

func (d dice) own() Own {
	o := Own{Pods: d.prefixes(2, 4), Services: d.prefixes(2, 4), External: d.prefixes(1, 4), Nodes: d.prefixes(2, 4), Reached: d.prefixes(1, 4), Reserved: d.prefixes(1, 5)}
	if d(2) == 0 {
		o.Mappable = d.prefixes(2, 4)
		for _, p := range o.Mappable {
			o.Mapped = append(o.Mapped, netip.PrefixFrom(p.Addr(), p.Addr().BitLen()))
		}
	}
	for _, u := range universes[:4] {
		if d(3) > 0 {
			o.Pools = append(o.Pools, blockOf(u).first(u.Bits()+d(3)).prefix(u.Addr().Is4()))
		}
	}
	o.Pools = append(o.Pools, d.prefixes(1, 5)...)
	if d(3) == 0 {
		o.AsIs = append(o.AsIs, universes[2+d(2)])
	}
	return o
}

// step changes the world as it may change between two allocations.
func (w *world) step(d dice, next *int) {
	switch d(8) {
	case 0:
		w.own = d.own()
	case 1:
		w.own.Pods = append(slices.Clone(w.own.Pods), d.prefix(4))
	case 2:
		w.own.Pools = d.own().Pools
	case 3:
		if len(w.peerings) > 0 {
			w.peerings = slices.Delete(w.peerings, 0, 1)
		}
	case 4:
		if n := len(w.peerings); n > 0 {
			p := &w.peerings[d(n)]
			p.Ranges, p.Translate = d.ranges(), d(4) == 0
		}
	default:
		*next++
		w.peerings = append(w.peerings, Peering{Key: fmt.Sprint("p", *next), Since: time.Unix(int64(d(4)), 0), Ranges: d.ranges(), Translate: d(4) == 0})
	}
}

func (w *world) remember(results map[string]Result) {
	for i := range w.peerings {
		w.peerings[i].Before = results[w.peerings[i].Key].Views
	}
}

// shuffled is the same world in another order.
func (w world) shuffled(d dice) world {
	w.peerings = mixed(d, w.peerings)
	for i, p := range w.peerings {
		w.peerings[i].Ranges, w.peerings[i].Before = mixed(d, p.Ranges), mixed(d, p.Before)
	}
	o := &w.own
	for _, list := range []*[]netip.Prefix{&o.Pods, &o.Services, &o.External, &o.Nodes, &o.Reached, &o.Reserved, &o.AsIs} {
		*list = mixed(d, *list)
	}
	return w
}

func mixed[T any](d dice, list []T) []T {
	list = slices.Clone(list)
	for i := len(list) - 1; i > 0; i-- {
		j := d(i + 1)
		list[i], list[j] = list[j], list[i]
	}
	return list
}

// forbidden is all that no view may overlap, found without the code under test.
func (o Own) forbidden() []netip.Prefix {
	all := slices.Concat(o.Pods, o.Services, o.External, o.Nodes, o.Reached, o.Reserved)
	for _, s := range []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "::/96", "fe80::/10", "ff00::/8"} {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

// permitted are the prefixes in which views may be.
func (o Own) permitted() []netip.Prefix {
	all := slices.Concat(o.Pools, o.AsIs)
	for _, s := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"} {
		all = append(all, netip.MustParsePrefix(s))
	}
	return all
}

func meets(p netip.Prefix, others []netip.Prefix) bool {
	return slices.ContainsFunc(others, p.Overlaps)
}

func inside(p netip.Prefix, others []netip.Prefix) bool {
	return slices.ContainsFunc(others, func(q netip.Prefix) bool { return p.Overlaps(q) && q.Bits() <= p.Bits() })
}

// check holds a result against everything that is always so.
func (w world) check(t *testing.T, results map[string]Result) {
	t.Helper()
	if len(results) != len(w.peerings) {
		t.Fatalf("%d results of %d peerings", len(results), len(w.peerings))
	}
	var views []netip.Prefix
	for _, p := range w.peerings {
		r := results[p.Key]
		for _, v := range r.Views {
			switch {
			case v.Real.Bits() != v.View.Bits() || v.Real.Addr().Is4() != v.View.Addr().Is4():
				t.Fatalf("%s: %v is viewed as %v, of another size", p.Key, v.Real, v.View)
			case v.Real.Masked() != v.Real || v.View.Masked() != v.View:
				t.Fatalf("%s: %v is viewed as %v, with bits of hosts", p.Key, v.Real, v.View)
			case meets(v.View, w.own.forbidden()):
				t.Fatalf("%s: the view %v overlaps what is taken here", p.Key, v.View)
			case meets(v.View, w.own.Mapped) && !slices.Contains(p.Before, v):
				t.Fatalf("%s: the view %v is new, and overlaps what is mapped", p.Key, v.View)
			case v.View == v.Real && meets(v.View, w.own.Mappable) && !slices.Contains(p.Before, v) && !inside(v.View, w.own.Pools):
				t.Fatalf("%s: %v is viewed as it is, and overlaps what may be mapped", p.Key, v.View)
			case meets(v.View, views):
				t.Fatalf("%s: the view %v overlaps another view", p.Key, v.View)
			case !inside(v.View, w.own.permitted()):
				t.Fatalf("%s: the view %v is outside of where views may be", p.Key, v.View)
			}
			views = append(views, v.View)
		}
	}
	for _, p := range w.peerings {
		w.checkRanges(t, p, results[p.Key], views)
		w.checkKept(t, p, results[p.Key])
	}
	w.checkTable(t, results)
}

// checkRanges: every range of a list that is not refused has a view, or an error that is true.
func (w world) checkRanges(t *testing.T, p Peering, r Result, views []netip.Prefix) {
	t.Helper()
	var refused *RangeError
	lacking := map[netip.Prefix]*PoolError{}
	for _, err := range r.Errs {
		var none *PoolError
		if errors.As(err, &none) {
			lacking[none.Range] = none
		} else if !errors.As(err, &refused) {
			t.Fatalf("%s: an error of no known type: %v", p.Key, err)
		}
	}
	for _, v := range r.Views {
		if refused == nil && !slices.Contains(p.Ranges, v.Real.String()) {
			t.Fatalf("%s: %v has a view and is no range of it", p.Key, v.Real)
		}
		if refused != nil && !slices.ContainsFunc(p.Before, func(b View) bool { return b.Real == v.Real }) {
			t.Fatalf("%s: the list is refused, and %v has a view that it had not", p.Key, v.Real)
		}
		if p.Translate && v.Real == v.View {
			t.Fatalf("%s: %v is viewed as it is, and is to be translated", p.Key, v.Real)
		}
		others := slices.DeleteFunc(slices.Clone(views), func(o netip.Prefix) bool { return o == v.View })
		remembered := slices.Contains(p.Before, v)
		if v.Real != v.View && !p.Translate && !remembered && inside(v.Real, w.own.permitted()) && !meets(v.Real, others) && !meets(v.Real, slices.Concat(w.own.forbidden(), w.own.Mapped, w.own.Mappable)) && !v.Real.Overlaps(v.View) {
			t.Fatalf("%s: %v is viewed as %v, although it is disjoint from all", p.Key, v.Real, v.View)
		}
	}
	if refused != nil {
		return
	}
	if len(r.Views)+len(lacking) != len(p.Ranges) {
		t.Fatalf("%s: %d ranges, %d views, %d errors", p.Key, len(p.Ranges), len(r.Views), len(lacking))
	}
	busy := slices.Concat(views, w.own.forbidden(), w.own.Mapped)
	for real := range lacking {
		busy := busy
		if p.Translate {
			busy = append(slices.Clone(busy), real)
		}
		for _, pool := range w.own.Pools {
			if free, ok := slowFree(pool, real.Bits(), busy); ok && pool.Addr().Is4() == real.Addr().Is4() {
				t.Fatalf("%s: no view for %v, and %v of the pool %v is free", p.Key, real, free, pool)
			}
		}
	}
}

// checkKept: what was right from before is as it was, what was not is reported.
func (w world) checkKept(t *testing.T, p Peering, r Result) {
	t.Helper()
	refused := slices.ContainsFunc(r.Errs, func(err error) bool { return errors.As(err, new(*RangeError)) })
	for _, b := range p.Before {
		has := slices.ContainsFunc(r.Views, func(v View) bool { return v.Real == b.Real })
		reported := slices.ContainsFunc(r.Changes, func(c Change) bool {
			return c.Real == b.Real && c.Was == b.View && c.Why != "" && c.Now.IsValid() == has
		})
		right := !meets(b.View, w.own.forbidden()) && inside(b.View, w.own.permitted()) && !(p.Translate && b.View == b.Real)
		wanted := slices.Contains(p.Ranges, b.Real.String()) || refused // nothing changes then
		switch {
		case wanted && right && (!slices.Contains(r.Views, b) || reported):
			t.Fatalf("%s: %v was viewed as %v, which is still right, and is not kept: %+v", p.Key, b.Real, b.View, r)
		case wanted && !right && !reported:
			t.Fatalf("%s: %v was viewed as %v, which is wrong now, and no change is reported: %+v", p.Key, b.Real, b.View, r)
		}
	}
}

// checkTable: an address has one owner, and goes there and back.
func (w world) checkTable(t *testing.T, results map[string]Result) {
	t.Helper()
	table := NewTable(results)
	for key, r := range results {
		for _, v := range r.Views {
			for _, a := range []netip.Addr{v.Real.Addr(), blockOf(v.Real).last(v.Real.Addr().BitLen()).prefix(v.Real.Addr().Is4()).Addr()} {
				view, ok := table.View(key, a)
				if !ok || !v.View.Contains(view) {
					t.Fatalf("%s: %v is viewed as %v, not in %v", key, a, view, v.View)
				}
				if owner, real, ok := table.Real(view); !ok || owner != key || real != a {
					t.Fatalf("%s: %v is viewed as %v, and that is %v of %q", key, a, view, real, owner)
				}
			}
		}
	}
	for _, p := range w.own.forbidden() {
		if owner, _, ok := table.Real(p.Addr()); ok {
			t.Fatalf("%v is ours and a view of %s", p.Addr(), owner)
		}
	}
}

// slowFree looks at every prefix of a length in a pool, from the highest down.
func slowFree(pool netip.Prefix, length int, busy []netip.Prefix) (netip.Prefix, bool) {
	if length < pool.Bits() {
		return netip.Prefix{}, false
	}
	is4, b := pool.Addr().Is4(), blockOf(pool).last(length)
	for {
		p := b.prefix(is4)
		if !meets(p, busy) {
			return p, true
		}
		if b.first(length) == blockOf(netip.PrefixFrom(pool.Addr(), length)) {
			return netip.Prefix{}, false
		}
		a := p.Addr().Prev()
		b = blockOf(netip.PrefixFrom(a, length).Masked())
	}
}

// live lets a world go on for some steps, and holds all of it against check.
func live(t *testing.T, d dice, steps int) (seen census) {
	var next int
	w := &world{own: d.own()}
	for range steps {
		w.step(d, &next)
		results := Allocate(w.own, w.peerings)
		w.check(t, results)
		seen.count(results)
		other := w.shuffled(d)
		if again := Allocate(other.own, other.peerings); said(again) != said(results) {
			t.Fatalf("in another order:\n%s\nnot\n%s", said(again), said(results))
		}
		w.remember(results)
		again := Allocate(w.own, w.peerings)
		for key, r := range again {
			if !reflect.DeepEqual(r.Views, results[key].Views) || len(r.Changes) > 0 {
				t.Fatalf("%s: after a restart %+v, before it %+v", key, r, results[key])
			}
		}
	}
	return seen
}

// census counts what worlds have seen, so that no test passes for want of it.
type census struct{ same, translated, changed, refused, lacking int }

func (c *census) count(results map[string]Result) {
	for _, r := range results {
		for _, v := range r.Views {
			if v.Real == v.View {
				c.same++
			} else {
				c.translated++
			}
		}
		c.changed += len(r.Changes)
		for _, err := range r.Errs {
			if none := new(PoolError); errors.As(err, &none) {
				c.lacking++
			} else {
				c.refused++
			}
		}
	}
}

// said is a result as text; errors are compared by what they say.
func said(results map[string]Result) string { return fmt.Sprint(results) }

func TestWorlds(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var all census
	least := func() int { return min(all.same, all.translated, all.changed, all.refused, all.lacking) }
	worlds := 0
	for ; worlds < 100 || least() < 100 && worlds < 1000; worlds++ { // the dice may show little of something
		seen := live(t, r.IntN, 25)
		all.same, all.translated, all.changed = all.same+seen.same, all.translated+seen.translated, all.changed+seen.changed
		all.refused, all.lacking = all.refused+seen.refused, all.lacking+seen.lacking
	}
	if t.Logf("%d worlds: %+v", worlds, all); least() < 100 {
		t.Errorf("too little happened in %d worlds: %+v", worlds, all)
	}
}

// FuzzAllocate lets the fuzzer throw the dice.
func FuzzAllocate(f *testing.F) {
	f.Add([]byte("a world of some peers"))
	f.Fuzz(func(t *testing.T, throws []byte) {
		live(t, func(n int) int {
			if len(throws) < 2 {
				return 0
			}
			v := int(throws[0])<<8 | int(throws[1])
			throws = throws[2:]
			return v % n
		}, min(len(throws)/20, 20))
	})
}
