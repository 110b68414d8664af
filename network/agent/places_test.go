package agent

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/pelago-dev/pelago/network/holder"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
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

// TestProblems holds that what is wrong with a peer's name is a problem while nothing comes through its tunnel, and
// none of one that works.
func TestProblems(t *testing.T) {
	const key, here, nowhere = "tenant-turin", "127.0.0.1:7077", "127.0.0.1:7078"
	space := netnstest.New(t)
	netnstest.Up(t, space, "lo", true)
	private, err := tunnel.NewSecret()
	if err != nil {
		t.Fatal(err)
	}
	device, err := tunnel.New(tunnel.Options{
		Namespace: space, Host: space, Userspace: true, Log: logr.Discard(), Refuse: func(netip.Addr) string { return "is here" },
		Resolve: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	if err := device.Set(tunnel.Config{Name: "pelago-x", MTU: 1420, PrivateKey: private, Peer: tunnel.PublicKey{1}, Endpoints: []string{"turin.example.org:5"}}); err != nil {
		t.Fatal(err)
	}
	netnstest.Await(t, "the refusal", time.Minute, func() bool { return len(device.Problems()) > 0 })
	ts := newTunnels(Options{Log: logr.Discard()}, nil, nil, func(string) {}, nil)
	r := &running{space: space, device: device}
	ts.running[key] = r
	for _, c := range []struct {
		reason, peer string
		problems     int
	}{{"it works", here, 0}, {"nothing comes", nowhere, 1}} {
		if got := ts.problems(); len(got) > 0 {
			t.Errorf("before anything is known of it: %v", got)
		}
		r.probing, err = ts.begin(t.Context(), r, plan.Probe{Peering: key, At: netip.MustParseAddrPort(here), Peer: netip.MustParseAddrPort(c.peer)})
		if err != nil {
			t.Fatal(err)
		}
		netnstest.Await(t, c.reason, time.Minute, func() bool {
			h := r.prober.Report()
			return h.Known && h.Alive == (c.problems == 0)
		})
		got, said := ts.problems(), ts.reports()[key].Problem
		if len(got) != c.problems || (said != "") != (c.problems > 0) {
			t.Errorf("%s: problems are %v, reported is %q", c.reason, got, said)
		}
		ts.quiet(r)
	}
}
