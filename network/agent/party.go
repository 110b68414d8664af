package agent

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/plan"
)

// Pods of a tenant here may run at a provider of this cluster, beside those of this cluster itself
// and of other tenants. What they speak with there and back is their own tenant's alone.

// parties are, of a provider, the pods there of each tenant with such, and of each that it is told of.
func (k *known) parties(f facts, object string, p *pair, within, real func(netip.Addr) (netip.Addr, bool)) (all []dataplane.Party) {
	if p.role != plan.Consumer {
		return nil
	}
	there, ranges, tenants := map[string][]string{}, map[string][]netip.Prefix{}, map[string]bool{}
	for _, pod := range beyond(f, p) {
		tenant := pod.Labels[v1alpha1.LabelTenant]
		there[tenant], tenants[tenant] = append(there[tenant], podAddresses(pod)...), true
	}
	for _, r := range k.transit[p.namespace] {
		if tenant, is := strings.CutPrefix(k.via[r], v1alpha1.TenantNamespacePrefix); is {
			ranges[tenant], tenants[tenant] = append(ranges[tenant], r), true
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		var here []string
		for _, pod := range f.hostedOf(tenant) {
			here = append(here, podAddresses(pod)...)
		}
		all = append(all, dataplane.Party{
			There: k.reached(object, there[tenant], real), Ranges: ranges[tenant], With: k.reached(object, here, within),
		})
	}
	return all
}

// beyond are the pods of tenants on the virtual nodes of a provider.
func beyond(f facts, p *pair) (pods []*corev1.Pod) {
	for i := range f.nodes {
		peering, is := virtual(&f.nodes[i])
		if !is || v1alpha1.PeeringNamespace(peering) != p.namespace {
			continue
		}
		away := f.away[f.nodes[i].Name]
		for j := range away {
			if away[j].Labels[v1alpha1.LabelTenant] != "" {
				pods = append(pods, &away[j])
			}
		}
	}
	return pods
}

// givenBeyond are the addresses that tenants have given their Services in those of their namespaces
// here that a provider has part in.
func givenBeyond(f facts, p *pair) (addrs []string) {
	spaces, in := f.spaces(), map[string]bool{}
	for i := range f.maps {
		for namespace := range f.maps[i].Spec.Namespaces {
			in[namespace] = in[namespace] || f.maps[i].Namespace == p.namespace
		}
	}
	for i := range f.given {
		if s := &f.given[i]; in[s.Namespace] && spaces[s.Namespace] != v1alpha1.ReachNone {
			addrs = append(addrs, sliceAddresses(s)...)
		}
	}
	return addrs
}
