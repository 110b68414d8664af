package bench

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/netnstest"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// The size for which the limits are: planMost is how long a plan may take, planShare which part of
// the time for all of it what is new of one pod may take to be applied.
const (
	planNodes, planPeers, planPods = 100, 100, 30_000
	planMost                       = 100 * time.Millisecond
	planShare                      = 0.25
)

// TestNetworkPlan measures the plan of a node and what it takes to apply it, all and when one pod has
// gone. What counts is the time of processors.
func TestNetworkPlan(t *testing.T) {
	netnstest.Root(t)
	in := planned()
	var took []time.Duration
	var all plan.Plan
	most := ""
	for _, n := range in.Nodes { // of the node with most gateways
		in.Node = n.Name
		if p := plan.Compute(in); len(p.Config.Gateways) > len(all.Config.Gateways) {
			most, all = n.Name, p
		}
	}
	in.Node = most
	for range 20 {
		took = append(took, worked(t, func() { all = plan.Compute(in) }))
	}
	if len(all.Problems) > 0 || len(all.Config.Others) != planNodes-1 || len(all.Config.Gateways) == 0 {
		t.Fatalf("%d gateways, %d other nodes, %v", len(all.Config.Gateways), len(all.Config.Others), all.Problems)
	}
	slices.Sort(took)
	usual := took[len(took)/2]
	t.Logf("limit: a plan of %d nodes, %d peers and %d pods: %.1f ms, at most %.0f; %d gateways are here", planNodes, planPeers, planPods, milli(usual), milli(planMost), len(all.Config.Gateways))
	if usual > planMost {
		t.Errorf("a plan takes %s", usual)
	}

	host, held := netnstest.NewPlace(t, "host"), &netns.Held{}
	self := slices.IndexFunc(in.Nodes, func(n plan.Node) bool { return n.Name == most })
	host.Address("lo", in.Nodes[self].Addresses[0].String()+"/32")
	plane, err := dataplane.New(dataplane.Options{Host: host.File, Namespaces: held})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		plane.Close()
		names, _ := held.List()
		for _, name := range names {
			_ = held.Remove(name)
		}
	})
	apply := func(c dataplane.Config) time.Duration {
		return worked(t, func() {
			if err := plane.Set(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		})
	}
	whole := apply(all.Config)
	took = nil
	for i := range 10 { // pods of peers whose gateways are here
		p := &in.Peerings[slices.IndexFunc(in.Peerings, func(p plan.Peering) bool { return p.Key == all.Config.Gateways[0].Peering })]
		p.Here, p.There = slices.Clone(p.Here[1:]), slices.Clone(p.There[1:])
		next := plan.Compute(in)
		if i > 0 { // the first time it is read what there is
			took = append(took, apply(next.Config))
		} else {
			apply(next.Config)
		}
	}
	slices.Sort(took)
	usual = took[len(took)/2]
	t.Logf("limit: to apply it: %.1f ms, and %.1f when one pod has gone, at most %.1f", milli(whole), milli(usual), planShare*milli(whole))
	if usual.Seconds() > planShare*whole.Seconds() {
		t.Errorf("what one pod changes takes %s, and all of it %s", usual, whole)
	}
}

func milli(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// worked is how long processors work for this process while something is done.
func worked(t *testing.T, do func()) time.Duration {
	t.Helper()
	now := func() time.Duration {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
			t.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := now()
	do()
	return now() - before
}

// planned is a cluster whose pods are anywhere in its range, so that each is an element, of
// which all may be reached by one of its peers.
func planned() plan.Input {
	pods := netip.MustParsePrefix("10.0.0.0/16")
	in := plan.Input{Pods: []netip.Prefix{pods}}
	for i := range planNodes {
		in.Nodes = append(in.Nodes, plan.Node{
			Name: fmt.Sprintf("node-%d", i), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, 0, byte(i)})}, Alive: true, MTU: 1500,
		})
	}
	for i := range planPeers {
		in.Peerings = append(in.Peerings, plan.Peering{
			Key: fmt.Sprintf("peer-%d", i), Role: plan.Consumer, Limited: true,
			Views: []ipam.View{{Real: pods, View: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i + 2), 0, 0}), 16)}},
			Peer:  tunnel.PublicKey{1}, ListenPort: uint16(51000 + i), Endpoints: []string{"198.51.100.7:51820"},
		})
	}
	for i := range planPods {
		a := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		n, p := &in.Nodes[i%planNodes], &in.Peerings[(i/planNodes)%planPeers]
		n.Pods, p.Here, p.There = append(n.Pods, a), append(p.Here, a), append(p.There, a)
	}
	return in
}
