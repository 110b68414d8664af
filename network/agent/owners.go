package agent

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// owners are the addresses of pods of this cluster, also of those that run elsewhere, as this
// cluster sees them, with their namespaces: pods of tenants have those that they have here. Of pods
// that agents do not follow, those are known that home's NetworkRules name, or Services in namespaces
// that are offloaded. Slices can be written by users, so they say nothing of what is known
// otherwise, nor of what is in no range of pods.
func owners(f facts, pods []netip.Prefix) map[netip.Addr]string {
	all := map[netip.Addr]string{}
	is := func(a netip.Addr, namespace string) {
		if _, known := all[a.Unmap()]; !known {
			all[a.Unmap()] = namespace
		}
	}
	of := func(list []corev1.Pod) {
		for i := range list {
			for _, text := range podAddresses(&list[i]) {
				if a, err := netip.ParseAddr(text); err == nil {
					is(a, list[i].Namespace)
				}
			}
		}
	}
	of(f.hosted)
	for _, lists := range []map[string][]corev1.Pod{f.inside, f.away, f.labelled} {
		for _, key := range slices.Sorted(maps.Keys(lists)) {
			of(lists[key])
		}
	}
	for key, set := range f.rules {
		if !strings.HasPrefix(key.peering, v1alpha1.PeeringNamespacePrefix) {
			continue // of addresses and namespaces at the consumer
		}
		for i := range set.pods {
			for _, a := range set.pods[i].addresses {
				is(a, key.home)
			}
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(f.home)) {
		for i := range f.home[namespace] {
			for _, text := range sliceAddresses(&f.home[namespace][i]) {
				if a, err := netip.ParseAddr(text); err == nil && prefixIn(pods, a.Unmap()) {
					is(a, namespace)
				}
			}
		}
	}
	return all
}
