package ipam

import (
	"net/netip"
	"slices"
)

// Table translates addresses of peers between what they are there and how they are
// viewed here. It never changes.
type Table struct {
	real map[string][]pair // by key of the peering, sorted
	view []pair            // of all, sorted
}

// pair maps the prefix from onto the prefix to, of peering key.
type pair struct {
	from, to netip.Prefix
	key      string
}

// NewTable makes the table of what Allocate returned. Of a view that it cannot have
// returned, the table knows nothing.
func NewTable(results map[string]Result) *Table {
	t := &Table{real: make(map[string][]pair, len(results))}
	for key, r := range results {
		pairs := make([]pair, 0, len(r.Views))
		for _, v := range r.Views {
			if v.sound() {
				pairs = append(pairs, pair{v.Real, v.View, key})
				t.view = append(t.view, pair{v.View, v.Real, key})
			}
		}
		slices.SortFunc(pairs, pair.compare)
		t.real[key] = pairs
	}
	slices.SortFunc(t.view, pair.compare)
	return t
}

func (p pair) compare(o pair) int { return p.from.Addr().Compare(o.from.Addr()) }

// View returns how an address at a peer is viewed here. It reports false of an address
// in no range of that peer: nobody here can reach it.
func (t *Table) View(key string, real netip.Addr) (netip.Addr, bool) {
	p, ok := find(t.real[key], real)
	return p.translate(real), ok
}

// Views are the prefixes by which a peer is viewed here, in order.
func (t *Table) Views(key string) (all []netip.Prefix) {
	for _, p := range t.real[key] {
		all = append(all, p.to)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return all
}

// Has says whether anything of a family at a peer is viewed here: IPv4, or IPv6.
func (t *Table) Has(key string, ipv4 bool) bool {
	return slices.ContainsFunc(t.real[key], func(p pair) bool { return p.from.Addr().Is4() == ipv4 })
}

// Real returns the peering to which a view belongs, and what the address is there.
func (t *Table) Real(view netip.Addr) (key string, real netip.Addr, ok bool) {
	p, ok := find(t.view, view)
	return p.key, p.translate(view), ok
}

// find returns the pair whose from holds an address; sorted, and none overlaps another.
func find(pairs []pair, a netip.Addr) (pair, bool) {
	after, exact := slices.BinarySearchFunc(pairs, a, func(p pair, a netip.Addr) int { return p.from.Addr().Compare(a) })
	if exact {
		after++
	}
	if after == 0 || !pairs[after-1].from.Contains(a) { // contains neither zones nor IPv4 as IPv6
		return pair{}, false
	}
	return pairs[after-1], true
}

// translate gives an address the bits of to and keeps those after.
func (p pair) translate(a netip.Addr) netip.Addr {
	if !p.to.IsValid() {
		return netip.Addr{}
	}
	hi, lo := words(a)
	toHi, toLo := words(p.to.Addr())
	maskHi, maskLo := mask(p.to.Bits())
	return address(hi&^maskHi|toHi, lo&^maskLo|toLo, a.Is4())
}
