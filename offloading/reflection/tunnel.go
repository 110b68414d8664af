package reflection

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// What is behind a dead tunnel is not ready for whoever is before it. Each side decides that by
// its own end of the tunnel: the other one may not be able to say so.

// Tunnels says what is reached through the network. It may be asked at any time, by many at
// once.
type Tunnels interface {
	// Alive says whether the tunnel to the provider of a peering carries packets both ways,
	// TenantAlive of that to a tenant. It is not known while nobody has said so, nor where there
	// is no network.
	Alive(peering string) (alive, known bool)
	TenantAlive(tenant string) (alive, known bool)
	// TunnelSource tells of the peerings of which Alive says something else, and
	// TenantTunnelSource of the tenants of which TenantAlive does.
	TunnelSource(mapper func(peering string) []reconcile.Request) source.Source
	TenantTunnelSource(mapper func(tenant string) []reconcile.Request) source.Source
}

// cut says whether a tunnel is known to be dead. Of one that is not known nothing is changed.
func cut(alive, known bool) bool { return known && !alive }

// ofTenant asks for the ShadowObjects of a tenant that are of some kinds, as far as they
// were looked at: all others will be. It is this cluster that asks, so no tenant is paced.
func ofTenant(of *notes[made], kinds ...string) func(tenant string) []reconcile.Request {
	return func(tenant string) []reconcile.Request {
		namespace := v1alpha1.TenantNamespace(tenant)
		var all []reconcile.Request
		for _, key := range of.find(func(m made) bool { return slices.Contains(kinds, m.kind) }) {
			if key.Namespace == namespace {
				all = append(all, reconcile.Request{NamespacedName: key})
			}
		}
		return all
	}
}
