package network

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/ipam"
)

// Two peers of this cluster reach each other through it: to each of them it publishes, beside its
// own ranges, its views of the other one's pods. They are two providers at which pods of one namespace
// may run, or a tenant and a provider at which a namespace that is here for the tenant may run; never two
// tenants. Only what peers say of themselves goes on, and not what they have from others, which they say is
// transit, so that nothing goes round in circles. Views are looked for among those that are stored: agents see
// that a prefix is a view before they see it published, and never take it for pods of this cluster.
//
// A tenant and a provider know nothing of each other, and are to learn nothing: between them only
// those views go on that are not the ranges themselves.

// maxPublished is how many ranges of both families a peer takes; see network/ipam.
const maxPublished = 16

// through decides which views are published to whom. The oldest peerings go first.
func (d *decision) through(f *facts) {
	d.transit, d.untold, d.bare = map[*pair][]netip.Prefix{}, map[*pair][]string{}, map[*pair][]string{}
	for _, to := range f.pairs {
		room := maxPublished - len(f.property.Pods) - len(f.property.External)
		for _, of := range f.pairs {
			middle := between(to, of)
			if to == of || !to.wanted || !of.wanted || !shares(to, of) && !middle {
				continue
			}
			views := d.podViews(of)
			if middle {
				hidden := slices.DeleteFunc(slices.Clone(views), d.shows(of))
				if len(hidden) < len(views) {
					d.bare[to] = append(d.bare[to], of.peer)
				}
				views = hidden
			}
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
	return overlap(a.spaces, b.spaces)
}

// overlap says whether two sets have something in common.
func overlap(a, b map[string]bool) bool {
	for name := range a {
		if b[name] {
			return true
		}
	}
	return false
}

// between says whether this cluster lies between two: one is a tenant, and the other a provider at which
// a namespace may run that is here for the tenant.
func between(a, b *pair) bool {
	if a.consumes == b.consumes {
		return false
	}
	tenant, provider := a, b
	if a.consumes {
		tenant, provider = b, a
	}
	return overlap(tenant.hosts, provider.spaces)
}

// shows says of views of a peer whether they are its ranges themselves.
func (d *decision) shows(of *pair) func(netip.Prefix) bool {
	return func(view netip.Prefix) bool {
		return slices.ContainsFunc(d.results[of.key].Views, func(v ipam.View) bool { return v.View == view && v.Real == view })
	}
}

// podViews are the views of a peer's own pods, in order, as far as they are stored and stay.
func (d *decision) podViews(p *pair) (views []netip.Prefix) {
	theirs := p.theirs()
	if theirs == nil {
		return nil
	}
	pods, others := prefixes(theirs.Spec.Pods), prefixes(slices.Concat(theirs.Spec.External, theirs.Spec.Transit))
	stored := parsed(theirs.Status.Views)
	for _, v := range d.results[p.key].Views {
		if slices.Contains(pods, v.Real) && !slices.Contains(others, v.Real) && slices.Contains(stored, v) {
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

// hosted are the namespaces that are here for tenants, by tenant.
func hosted(namespaces []corev1.Namespace) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	for i := range namespaces {
		n := &namespaces[i]
		tenant := n.Labels[v1alpha1.LabelTenant]
		if all[tenant] == nil {
			all[tenant] = map[string]bool{}
		}
		all[tenant][n.Name] = true
	}
	return all
}

// guarded are, of those namespaces, the ones for which their tenants have NetworkRules.
func guarded(namespaces []corev1.Namespace, rules []v1alpha1.NetworkRules) map[string]map[string]bool {
	ruled := map[string]bool{}
	for i := range rules {
		ruled[rules[i].Namespace+"/"+namespaceOf(&rules[i])] = true
	}
	all := map[string]map[string]bool{}
	for i := range namespaces {
		n := &namespaces[i]
		tenant := n.Labels[v1alpha1.LabelTenant]
		if !ruled[v1alpha1.TenantNamespace(tenant)+"/"+n.Labels[v1alpha1.LabelHomeNamespace]] {
			continue
		}
		if all[tenant] == nil {
			all[tenant] = map[string]bool{}
		}
		all[tenant][n.Name] = true
	}
	return all
}
