package agent

import (
	"net/netip"
	"testing"

	"github.com/go-logr/logr"

	"github.com/pelago-dev/pelago/network/holder"
	"github.com/pelago-dev/pelago/network/plan"
)

// TestRefuser holds that no name is followed before it is known where it must not lead, but to where a peering's peer
// was, that peerings' names and those of paths are looked at then, and that what is known later counts at once.
func TestRefuser(t *testing.T) {
	was := netip.MustParseAddrPort("198.51.100.9:40000")
	ts := newTunnels(Options{Log: logr.Discard(), Left: holder.Left{Last: map[string]netip.AddrPort{"tenant-turin": was, pathKey: was}}}, nil, nil, nil, nil)
	peering, path := ts.refuser("tenant-turin"), ts.refuser(pathKey)
	refuses := func(reason, address string, byPeering, byPath bool) {
		t.Helper()
		a := netip.MustParseAddr(address)
		if got, got2 := peering(a), path(a); (got != "") != byPeering || (got2 != "") != byPath {
			t.Errorf("%s: of a peering %s %q, of a path %q", reason, address, got, got2)
		}
	}
	refuses("nothing is known yet", "198.51.100.7", true, true)
	refuses("nothing is known yet but where the peer was", "198.51.100.9", false, true)
	f := pathFacts()
	f.configs[2].Spec.External = []string{"10.43.0.0/24"}
	f.nodes[1].Spec.PodCIDRs = []string{"10.44.2.0/24"}
	k := input(f)
	ts.avoid(plan.Compute(k.input).Places)
	refuses("a peer", "198.51.100.7", false, false)
	refuses("a view", "10.61.0.9", true, true)
	refuses("a view", "10.81.0.9", true, true)
	refuses("a pod", "10.42.0.1", true, true)
	refuses("in the range of a node", "10.44.2.5", true, true)
	refuses("an external address", "10.43.0.1", true, true)
	refuses("a node", "::ffff:192.168.0.1", false, true)
	refuses("a node, for others", "203.0.113.1", false, true)
	refuses("this machine", "127.0.0.1", true, true)

	refuses("not a view yet", "10.99.0.1", false, false)
	f.configs[1].Status.Views[0].View = "10.99.0.0/16"
	k = input(f)
	ts.avoid(plan.Compute(k.input).Places)
	refuses("a view now", "10.99.0.1", true, true)
	refuses("and none any more", "10.81.0.9", false, false)
}
