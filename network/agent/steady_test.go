package agent

import (
	"maps"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/health"
	"github.com/pelago-dev/pelago/network/holder"
)

func TestSteady(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(1000+int64(seconds), 0) }
	type look struct {
		of   health.Report
		at   int
		want bool
		then int // 0 is never
	}
	alive := func(since int) health.Report { return health.Report{Known: true, Alive: true, Since: at(since)} }
	dead := func(since int) health.Report { return health.Report{Known: true, Since: at(since)} }
	for _, c := range []struct {
		reason string
		looks  []look
	}{
		{"nothing is known", []look{{health.Report{}, 1, false, 0}, {health.Report{Alive: true}, 2, false, 0}}},
		{"the first time at once", []look{{health.Report{}, 1, false, 0}, {alive(2), 2, true, 0}, {alive(2), 100, true, 0}}},
		{"one that did not begin well has not died", []look{{dead(1), 1, false, 0}, {alive(2), 2, true, 0}}},
		{"once it has died it has to live for a while", []look{
			{alive(1), 1, true, 0}, {dead(10), 10, false, 0}, {alive(20), 20, false, 25}, {alive(20), 24, false, 25}, {alive(20), 25, true, 0}, {alive(20), 90, true, 0},
		}},
		{"also if nobody looked meanwhile", []look{{alive(1), 1, true, 0}, {alive(20), 21, false, 25}, {alive(20), 25, true, 0}}},
		{"a break begins anew", []look{{alive(1), 1, true, 0}, {dead(10), 10, false, 0}, {alive(20), 20, false, 25}, {alive(23), 24, false, 28}, {alive(23), 28, true, 0}}},
		{"and dies again", []look{{alive(1), 1, true, 0}, {dead(10), 10, false, 0}, {alive(20), 30, true, 0}, {dead(31), 31, false, 0}, {alive(32), 33, false, 37}}},
		{"its probes began anew", []look{{alive(1), 1, true, 0}, {health.Report{}, 10, false, 0}, {alive(11), 11, false, 16}, {alive(11), 16, true, 0}}},
	} {
		var s steady
		for i, l := range c.looks {
			s = s.next(l.of)
			is, then := s.carries(at(l.at))
			if wanted := (l.then != 0); is != l.want || wanted != !then.IsZero() || wanted && !then.Equal(at(l.then)) {
				t.Errorf("%s: look %d: carries %t, then %v", c.reason, i, is, then)
			}
		}
	}
}

// TestCarrying holds that only tunnels that are here are told of, that the next to be told is the
// first one, and that what was is forgotten with the paths alone.
func TestCarrying(t *testing.T) {
	ts := newTunnels(Options{Log: logr.Discard()}, nil, nil, nil, nil)
	paths := map[string]bool{"tenant-a.1": true, "tenant-a.2": true, "tenant-a.3": true, "tenant-a.4": true}
	now := time.Unix(1000, 0)
	if all, then := ts.carrying(paths, now); len(all) != 0 || !then.IsZero() || len(ts.steady) != 0 {
		t.Errorf("of other nodes' tunnels %v carry, then %v, and %v is known", all, then, ts.steady)
	}
	ts.running["tenant-a.1"] = &running{} // which nobody probes yet
	ts.steady["tenant-a.2"] = steady{since: now, alive: true}
	if all, _ := ts.carrying(paths, now); len(all) != 0 || len(ts.steady) != 2 || !ts.steady["tenant-a.2"].fell {
		t.Errorf("a tunnel that was shut carries, or did not die: %v, %v", all, ts.steady)
	}
	if ts.carrying(map[string]bool{"tenant-a.1": true}, now); len(ts.steady) != 1 {
		t.Errorf("what is no path any more is remembered: %v", ts.steady)
	}
}

// TestForget holds that a consumer who makes one path after another leaves nothing behind, nor does a peering or an
// invitation that has ended, and that what is known of those that are there stays.
func TestForget(t *testing.T) {
	at := netip.MustParseAddrPort("198.51.100.7:7100")
	k := lasts{}
	ts := newTunnels(Options{Log: logr.Discard(), Keeper: k}, nil, nil, nil, func() {})
	for _, key := range []string{
		"peering-milan", "peering-gone", "tenant-turin", "tenant-turin.1", "tenant-turin.2", "tenant-turin.3", "tenant-gone", "tenant-gone.1",
		"invitation-x.y", "invitation-gone", "introduction-gone",
	} {
		ts.remember(key, at)
	}
	ts.running["tenant-turin.3"] = &running{} // which still ends
	f := facts{namespace: v1alpha1.NetworkNamespace}
	for _, c := range [][2]string{
		{v1alpha1.PeeringNamespace("milan"), v1alpha1.NetworkConsumer}, {v1alpha1.TenantNamespacePrefix + "turin", v1alpha1.NetworkProvider},
		{v1alpha1.NetworkNamespace, "invitation-x.y"},
	} {
		f.configs = append(f.configs, v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: c[0], Name: c[1]}})
	}
	ts.forget(f.tunnelKeys(map[string]bool{"tenant-turin.1": true}))
	if got, want := slices.Sorted(maps.Keys(ts.moved)), []string{"invitation-x.y", "peering-milan", "tenant-turin", "tenant-turin.1"}; !slices.Equal(got, want) {
		t.Errorf("of %v it is remembered when they moved, want %v", got, want)
	}
	want := lasts{"peering-milan": at, "tenant-turin": at, "tenant-turin.1": at, "tenant-turin.3": at, "invitation-x.y": at}
	for what, got := range map[string]map[string]netip.AddrPort{"here": ts.last, "by the keeper": k} {
		if d := cmp.Diff(map[string]netip.AddrPort(want), got, cmpopts.EquateComparable(netip.AddrPort{})); d != "" {
			t.Errorf("remembered %s (-want +got):\n%s", what, d)
		}
	}
}

// lasts keeps where others were, as the holder does.
type lasts map[string]netip.AddrPort

func (l lasts) Hold(holder.Kind, string, *os.File) error { return nil }
func (l lasts) Drop(holder.Kind, string) error           { return nil }
func (l lasts) Last(name string, at netip.AddrPort) error {
	if l[name] = at; !at.IsValid() {
		delete(l, name)
	}
	return nil
}

// TestStirred holds that what becomes of a path makes a plan at once, and that of a peering only
// what the Lease says.
func TestStirred(t *testing.T) {
	for key, plans := range map[string]int{pathKey: 1, "tenant-turin": 0, "peering-milan": 0} {
		a := &Agent{work: make(chan struct{}, 1), renewal: make(chan struct{}, 1)}
		if a.stirred(key); len(a.work) != plans || len(a.renewal) != 1 {
			t.Errorf("%s: %d plans and %d renewals", key, len(a.work), len(a.renewal))
		}
	}
}

func TestSooner(t *testing.T) {
	none, one, two := time.Time{}, time.Unix(1, 0), time.Unix(2, 0)
	for _, c := range []struct{ a, b, want time.Time }{{none, none, none}, {one, none, one}, {none, one, one}, {one, two, one}, {two, one, one}} {
		if got := sooner(c.a, c.b); !got.Equal(c.want) {
			t.Errorf("of %v and %v %v is sooner", c.a, c.b, got)
		}
	}
}

// TestWait holds that what was due before an agent came to wait for it is not waited for.
func TestWait(t *testing.T) {
	now := time.Unix(1800000000, 0)
	for _, c := range []struct {
		reason string
		again  time.Time
		want   time.Duration
	}{
		{"nothing is due", time.Time{}, paceMost},
		{"later than it is looked anyway", now.Add(time.Hour), paceMost},
		{"soon", now.Add(time.Second), time.Second + time.Millisecond},
		{"it was due while a plan was applied", now.Add(-time.Second), time.Millisecond},
	} {
		k := known{again: c.again}
		if got := k.wait(paceMost, now); got != c.want {
			t.Errorf("%s: it waits for %s, want %s", c.reason, got, c.want)
		}
	}
}
