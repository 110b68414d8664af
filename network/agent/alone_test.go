package agent

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/plan"
)

// TestInputWithoutPods: what is behind Services of an offloaded namespace is followed and may be called
// also while none of its pods is at the provider, and at the provider while it has none of the tenant.
func TestInputWithoutPods(t *testing.T) {
	for _, c := range []struct {
		reach v1alpha1.Reachability
		want  []plan.Peering // with milan, with turin
	}{
		{"", []plan.Peering{{Limited: true, Here: addrs("10.42.1.5")}, {Limited: true, There: addrs("10.50.1.1")}}},
		{v1alpha1.ReachFull, []plan.Peering{{Here: addrs("10.42.1.5")}, {There: addrs("10.50.1.1")}}},
	} {
		f := someFacts()
		f.away, f.hosted = nil, nil
		f.configs[0].Spec.Reachability, f.configs[2].Spec.Reachability = c.reach, c.reach
		if !f.subjects()[subject{namespace: "shop"}] {
			t.Errorf("reachability %q: the slices of shop are not followed", c.reach)
		}
		for i, got := range input(f).input.Peerings {
			got = plan.Peering{Limited: got.Limited, Closed: got.Closed, Here: got.Here, There: got.There, ShutHere: got.ShutHere, ShutThere: got.ShutThere}
			if d := cmp.Diff(c.want[i], got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); d != "" {
				t.Errorf("reachability %q, peering %d (-want +got):\n%s", c.reach, i, d)
			}
		}
	}
}
