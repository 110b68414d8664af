package network

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/policy"
)

// ofAll is after a peering's name in what was told of all namespaces together. No name of a peering has it.
const ofAll = "/all"

// beyond tells of the namespaces whose rules gateways leave out, as those of all namespaces of the peering are more
// than they take. More rules of one may be what another one is left out for, so each look tells of all. Its
// result is how soon to tell again.
func (r *ruler) beyond(ctx context.Context, peering string, of map[string]policy.Amount) (again time.Duration) {
	left := policy.Beyond(of)
	for _, namespace := range left {
		text := fmt.Sprintf("the NetworkPolicies of all namespaces at %s are more than %d rules, or about more than %d pods and addresses, and gateways leave out those of %s: nothing passes to or from its pods through the tunnel; write fewer entries, or ports as ranges; namespaces before it by name come first",
			peering, v1alpha1.MaxNetworkPeeringRules, v1alpha1.MaxNetworkPeeringElements, namespace)
		result := r.tell(ctx, types.NamespacedName{Namespace: namespace, Name: peering + ofAll}, []string{text})
		if again == 0 || result.RequeueAfter < again {
			again = result.RequeueAfter
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.told, func(at types.NamespacedName, _ said) bool {
		return at.Name == peering+ofAll && !slices.Contains(left, at.Namespace)
	})
	return again
}
