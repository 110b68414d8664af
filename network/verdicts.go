package network

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/mapping"
)

// verdicts are what followed from the ground for each mapping when it was looked at last, so that a change of the
// ground wakes those for which something else follows: each node that comes or goes is one. The zero value has none.
type verdicts struct {
	mu sync.Mutex
	of map[types.NamespacedName]verdict
}

// verdict is what follows for a mapping from the ground alone.
type verdict struct {
	refusal  string
	external []netip.Prefix
}

func verdictOf(g mapping.Ground, address string) verdict {
	a, _ := netip.ParseAddr(address)
	return verdict{mapping.Refuse(g, a), g.External}
}

// forget is called before a look takes the ground: until set is called any ground is another one.
func (v *verdicts) forget(name types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.of, name)
}

func (v *verdicts) set(name types.NamespacedName, is verdict) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.of == nil {
		v.of = map[types.NamespacedName]verdict{}
	}
	v.of[name] = is
}

func (v *verdicts) same(name types.NamespacedName, now verdict) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	was, known := v.of[name]
	return known && was.refusal == now.refusal && slices.Equal(was.external, now.external)
}

// moved are the mappings for which something else follows from the ground than when they were looked at.
func (m *mapper) moved(ctx context.Context) (all []reconcile.Request) {
	list := &v1alpha1.IPMappingList{}
	if err := m.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache is not there yet: its first events come
	}
	g := m.network.look().ground
	for i := range list.Items {
		if name := client.ObjectKeyFromObject(&list.Items[i]); !m.verdicts.same(name, verdictOf(g, list.Items[i].Spec.Address)) {
			all = append(all, reconcile.Request{NamespacedName: name})
		}
	}
	return all
}
