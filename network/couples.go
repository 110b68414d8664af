package network

import (
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// A consumer's part of direct paths: couples are its providers that may have one between them,
// paths when they have, and the pather arranges it at both.

// couple is two providers of this cluster, or a tenant and a provider, between which there may be a
// direct path.
type couple struct {
	// name is that of the path, at both.
	name string
	// peerings are the names of both Peerings, and prefixes what each is told of the other, in the
	// same order. A tenant's end is named as tenantEnd has it.
	peerings [2]string
	prefixes [2][]string
	// owner is the word by which the provider knows the tenant's pods, "" between two providers.
	owner string
	// talks says that pods at both exchange much by way of this cluster.
	talks bool
	// unsure says that it is not known whether both know direct paths: what there is stays then.
	unsure bool
}

// knowsPaths says whether a cluster knows direct paths, or those behind another cluster, by the feature.
func knowsPaths(c *v1alpha1.ClusterInfo, feature string) ability {
	switch {
	case c == nil:
		return unknown
	case slices.Contains(c.Features, feature):
		return yes
	}
	return no
}

// join finds the couples, by name.
func (d *decision) join(f *facts) {
	for i, a := range f.pairs {
		for _, b := range f.pairs[i+1:] {
			if !direct(a) || !direct(b) || !shares(a, b) || f.passedOn(a) || f.passedOn(b) {
				continue
			}
			toA, toB := d.told(a, b), d.told(b, a)
			if len(toA) == 0 || len(toB) == 0 {
				continue
			}
			d.couples = append(d.couples, couple{
				name: pathName(f.id, string(a.uid), string(b.uid)), peerings: [2]string{a.peering, b.peering}, prefixes: [2][]string{texts(toA), texts(toB)},
				talks: talks(f.agents, a.key, b.key), unsure: a.able == unknown || b.able == unknown,
			})
		}
	}
	d.joinBehind(f)
	slices.SortFunc(d.couples, func(a, b couple) int { return strings.Compare(a.name, b.name) })
}

// direct says whether a pair may be of a couple, as far as this cluster is to say.
func direct(p *pair) bool {
	return p.consumes && p.wanted && p.direct && p.able != no && p.reach != v1alpha1.ReachNone && !p.shut
}

// closed are the namespaces that let none of their pods be reached. Providers are not told of it: what
// goes by this cluster's gateways is held there, and what went from provider to provider would be held by nobody.
func closed(offloaded []v1alpha1.NamespaceOffloading) map[string]bool {
	all := map[string]bool{}
	for i := range offloaded {
		if o := &offloaded[i]; o.Name == v1alpha1.OffloadingName && o.Spec.Reachability == v1alpha1.ReachNone {
			all[o.Namespace] = true
		}
	}
	return all
}

// passedOn says whether pods of tenants of this cluster's may run at a provider, beside its own.
// Its gateways keep these apart, and providers do not know one from the other.
func (f *facts) passedOn(p *pair) bool {
	return slices.ContainsFunc(f.pairs, func(other *pair) bool { return between(other, p) })
}

// told are the views of one provider that another one is told.
func (d *decision) told(to, of *pair) (all []netip.Prefix) {
	for _, view := range d.podViews(of) {
		if slices.Contains(d.transit[to], view) && len(all) < v1alpha1.MaxNetworkPathPrefixes {
			all = append(all, view)
		}
	}
	return all
}

// talks says whether an agent has seen much go between two providers lately. Their gateways may be on
// different nodes, and one of both is enough.
func talks(agents []agent, a, b string) bool {
	return slices.ContainsFunc(agents, func(x agent) bool {
		return x.alive && (slices.Contains(x.reports[a].Through, b) || slices.Contains(x.reports[b].Through, a))
	})
}

// pathName is the name of the path between two providers. It says nothing to whoever does not know
// the UIDs of both Peerings, and is the same whichever comes first.
func pathName(id, a, b string) string {
	sum := sha256.Sum256([]byte(id + "\n" + min(a, b) + "\n" + max(a, b)))
	return hex.EncodeToString(sum[:8])
}
