package network

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Pods of two providers of this cluster reach each other through it: to each of them it publishes,
// beside its own ranges, its views of the other one's pods. Only what providers say of
// themselves goes on, and only to providers; these have published no views, so that nothing goes
// round in circles. They are looked for among the views that are stored: agents see that a
// prefix is a view before they see it published, and never take it for pods of this cluster.

// maxPublished is how many ranges of both families a peer takes; see network/ipam.
const maxPublished = 16

// through decides which views are published to whom. The oldest peerings go first.
func (d *decision) through(f *facts) {
	d.transit, d.untold = map[*pair][]netip.Prefix{}, map[*pair][]string{}
	for _, to := range f.pairs {
		room := maxPublished - len(f.property.Pods) - len(f.property.External)
		for _, of := range f.pairs {
			if to == of || !to.wanted || !of.wanted || !shares(to, of) {
				continue
			}
			views := d.podViews(of)
			fit := min(len(views), max(room, 0))
			room -= fit
			d.transit[to] = append(d.transit[to], views[:fit]...)
			if fit < len(views) {
				d.untold[to] = append(d.untold[to], of.peer)
			}
		}
	}
}

// shares says whether pods of one namespace may run at both of two providers.
func shares(a, b *pair) bool {
	if !a.consumes || !b.consumes {
		return false
	}
	for namespace := range a.spaces {
		if b.spaces[namespace] {
			return true
		}
	}
	return false
}

// podViews are the views of a provider's pods, in order, as far as they are stored and stay.
func (d *decision) podViews(p *pair) (views []netip.Prefix) {
	theirs := p.theirs()
	if theirs == nil {
		return nil
	}
	pods, external := prefixes(theirs.Spec.Pods), prefixes(theirs.Spec.External)
	stored := parsed(theirs.Status.Views)
	for _, v := range d.results[p.key].Views {
		if slices.Contains(pods, v.Real) && !slices.Contains(external, v.Real) && slices.Contains(stored, v) {
			views = append(views, v.View)
		}
	}
	slices.SortFunc(views, func(a, b netip.Prefix) int { return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits()) })
	return views
}

// mapped are the namespaces that may run at providers, by the namespaces of these peerings.
func mapped(maps []v1alpha1.NamespaceMap) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for i := range maps {
		m := &maps[i]
		if all[m.Namespace] == nil {
			all[m.Namespace] = map[string]bool{}
		}
		for namespace := range m.Spec.Namespaces {
			all[m.Namespace][namespace] = true
		}
	}
	return all
}
