package agent

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/health"
)

// TestAppliedApart holds that of a gateway with which something is wrong no more is said than before, neither
// to home's manager nor to the peer, and of the others all.
func TestAppliedApart(t *testing.T) {
	const whole, broken, tenant, guest = "peering-milan", "peering-oslo", "tenant-turin", "turin"
	a := &Agent{
		renewal: make(chan struct{}, 1), cluster: &cluster{changed: func() {}},
		tunnels: &tunnels{running: map[string]*running{whole: {}, broken: {}}},
	}
	recent := func(n int) map[string]health.Recent {
		return map[string]health.Recent{tenant: {UpTo: uint64(n)}}
	}
	apply := func(n int, failed ...string) {
		wrong := dataplane.GatewaysError{}
		for _, key := range failed {
			wrong[key] = errors.New("busy")
		}
		for _, s := range []stream{{node: "milan"}, {node: "oslo"}, {tenant: guest}} {
			a.cluster.versions.hear(s, int64(n), true)
		}
		f := facts{away: map[string][]corev1.Pod{"milan": nil, "oslo": nil}}
		read := f.progress(a.cluster.versions.begin())
		k := known{read: read, recent: recent(n)}
		k.away, k.hosts = map[string][]string{whole: {"milan"}, broken: {"oslo"}}, map[string]string{tenant: guest}
		a.knows(k)
		a.applied(k, wrong)
	}
	want := func(when string, milan, oslo, turin int64) {
		t.Helper()
		var all map[string]v1alpha1.AppliedPods
		if err := json.Unmarshal([]byte(a.appliedText()), &all); err != nil {
			t.Fatal(err)
		}
		told := a.tunnels.told[tenant]
		if all[whole].Away["milan"] != milan || all[broken].Away["oslo"] != oslo || told.number != turin || told.recent.UpTo != uint64(turin) {
			t.Errorf("%s: it is said %+v, and told %+v", when, all, told)
		}
	}
	apply(5)
	want("all is right", 5, 5, 5)
	for _, n := range []int{6, 7} {
		apply(n, broken, tenant)
		want("two are not", int64(n), 5, 5)
	}
	<-a.renewal
	apply(7, tenant)
	want("one of them is again", 7, 7, 5)
	if len(a.renewal) == 0 {
		t.Error("the Lease is not renewed")
	}
	apply(8)
	want("all are", 8, 8, 8)
}

// TestTunnelsApart holds that a gateway with which something is wrong gets no tunnel, and says why, and that
// the others get theirs.
func TestTunnelsApart(t *testing.T) {
	ts := newTunnels(Options{Log: logr.Discard()}, nil, nil, nil, nil)
	want := map[string]wanted{"milan": {}, "oslo": {}}
	got := ts.leave(want, dataplane.GatewaysError{"oslo": errors.New("busy"), "turin": errors.New("no tunnel here")})
	if _, is := got["milan"]; !is || len(got) != 1 || len(want) != 2 {
		t.Errorf("of %v it makes %v", want, got)
	}
	if len(ts.wrong) != 1 || ts.wrong["oslo"] != "busy" {
		t.Errorf("it is said %v", ts.wrong)
	}
	if all := ts.leave(want, nil); len(all) != 2 {
		t.Errorf("with nothing wrong it makes %v", all)
	}
}
