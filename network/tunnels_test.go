package network

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/throttle"
)

// Reports of a tunnel.
var (
	lives  = v1alpha1.TunnelReport{Alive: true, Since: &metav1.Time{Time: noon}}
	dead   = v1alpha1.TunnelReport{Since: &metav1.Time{Time: noon}}
	begins = v1alpha1.TunnelReport{}
	none   = v1alpha1.TunnelReport{Problem: "no port"}
)

// reporter is an agent that says something of the tunnel to milan.
func reporter(alive bool, r v1alpha1.TunnelReport) agent {
	return agent{alive: alive, reports: map[string]v1alpha1.TunnelReport{"peering-milan": r}}
}

// TestHeard is what is known of a tunnel by what agents say.
func TestHeard(t *testing.T) {
	for _, c := range []struct {
		reason string
		agents []agent
		want   string
	}{
		{"there are none", nil, "unknown"},
		{"none has it", []agent{{alive: true}}, "unknown"},
		{"it lives", []agent{reporter(true, lives)}, "alive"},
		{"it is dead", []agent{reporter(true, dead)}, "dead"},
		{"its gateway has just begun", []agent{reporter(true, begins)}, "unknown"},
		{"its gateway cannot make it", []agent{reporter(true, none)}, "dead"},
		{"who says so is gone", []agent{reporter(false, lives)}, "unknown"},
		{"who said that it lives is gone", []agent{reporter(false, lives), reporter(true, dead)}, "dead"},
		{"who said that it is dead is gone", []agent{reporter(false, dead), reporter(true, begins)}, "unknown"},
		{"it moves, and the old gateway has it", []agent{reporter(true, lives), reporter(true, dead)}, "alive"},
		{"it moves, and the new gateway has it", []agent{reporter(true, dead), reporter(true, lives)}, "alive"},
	} {
		got := "unknown"
		if alive, known := heard(c.agents)["peering-milan"]; alive {
			got = "alive"
		} else if known {
			got = "dead"
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.reason, got, c.want)
		}
	}
}

// TestTunnels is what is remembered of tunnels, and who is told of it when.
func TestTunnels(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	n := New(Options{})
	n.learn(&picture{views: nothing.views, there: nothing.there})
	queue := func() workqueue.TypedRateLimitingInterface[ctrl.Request] {
		q := workqueue.NewTypedRateLimitingQueue[ctrl.Request](&throttle.Rests{})
		context.AfterFunc(ctx, q.ShutDown)
		return q
	}
	peerings, tenants := queue(), queue()
	if err := n.TunnelSource(ofPeer).Start(ctx, peerings); err != nil {
		t.Fatal(err)
	}
	if err := n.TenantTunnelSource(ofPeer).Start(ctx, tenants); err != nil {
		t.Fatal(err)
	}
	both := func(r v1alpha1.TunnelReport) func() []agent {
		return func() []agent {
			return []agent{{alive: true, reports: map[string]v1alpha1.TunnelReport{"peering-milan": r, "tenant-rome": r, "tenant-gone": r}}}
		}
	}
	wanted := map[string]bool{"peering-milan": true, "tenant-rome": true}
	for _, c := range []struct {
		reason string
		do     func()
		told   bool
		want   string
	}{
		{"it is reported, and there is no such peering", func() { n.tunnels.hear(both(lives)) }, false, "unknown"},
		{"there is", func() { n.tunnels.want(wanted) }, true, "alive"},

		{"it is reported again", func() { n.tunnels.hear(both(lives)) }, false, "alive"},
		{"it dies", func() { n.tunnels.hear(both(dead)) }, true, "dead"},
		{"a look changes nothing", func() { n.tunnels.want(wanted) }, false, "dead"},
		{"it lives", func() { n.tunnels.hear(both(lives)) }, true, "alive"},
		{"its gateway moves", func() { n.tunnels.hear(both(begins)) }, false, "alive"},
		{"nobody says anything", func() { n.tunnels.hear(func() []agent { return nil }) }, false, "alive"},
		{"the peering ends", func() { n.tunnels.want(nil) }, true, "unknown"},
		{"it is there again", func() { n.tunnels.want(wanted) }, false, "unknown"},
	} {
		c.do()
		for name, q := range map[string]workqueue.TypedRateLimitingInterface[ctrl.Request]{"milan": peerings, "rome": tenants} {
			var alive, known bool
			if alive, known = n.Alive(name); name == "rome" {
				alive, known = n.TenantAlive(name)
			}
			if alive != (c.want == "alive") || known != (c.want != "unknown") {
				t.Errorf("%s: of %s is known %t: %t, want %s", c.reason, name, known, alive, c.want)
			}
			if c.told {
				r, _ := q.Get()
				if q.Done(r); r.Name != name {
					t.Errorf("%s: %q is told, want %s", c.reason, r.Name, name)
				}
			}
		}
	}
	if peerings.Len()+tenants.Len() > 0 {
		t.Error("more is told than has changed")
	}
	// Who does not listen any more is forgotten.
	cancel()
	within(t, "nobody listens", func() bool {
		n.tunnels.listeners.mu.Lock()
		defer n.tunnels.listeners.mu.Unlock()
		return len(n.tunnels.listeners.all) == 0
	})
}

// TestChanges is of which tunnels is told.
func TestChanges(t *testing.T) {
	before := map[string]bool{"peering-a": true, "peering-b": true, "peering-c": false, "peering-gone": true, "tenant-d": true}
	now := map[string]bool{"peering-a": true, "peering-b": false, "peering-c": true, "peering-new": false, "tenant-d": false}
	if d := cmp.Diff([]string{"b", "c", "gone", "new"}, changes(before, now, "peering-")); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{}, changes(now, now, "peering-"), cmpopts.EquateEmpty()); d != "" {
		t.Error(d)
	}
}

// created is the event of a Lease.
func created(text string, renewed time.Time) event.CreateEvent {
	at := metav1.NewMicroTime(renewed)
	return event.CreateEvent{Object: &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{v1alpha1.AnnotationTunnels: text}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("n"), LeaseDurationSeconds: new(int32(2)), RenewTime: &at},
	}}
}

// TestWake holds that what agents say is known at once, though nobody can look now.
func TestWake(t *testing.T) {
	n := New(Options{})
	r := newDecider(n, nil, nil, nil)
	n.learn(&picture{views: nothing.views, there: nothing.there, tunnels: map[string]bool{"peering-milan": true}})
	text := `{"peering-milan":{"alive":false,"since":"2026-11-22T12:00:00Z"}}`
	r.agents.handler().Create(t.Context(), created(text, time.Now()), workqueue.NewTypedRateLimitingQueue[ctrl.Request](&throttle.Rests{}))
	if alive, known := n.Alive("milan"); alive || !known {
		t.Errorf("a Lease says that the tunnel is dead: alive %t, known %t", alive, known)
	}
}

// TestInvitationAlive holds that the tunnel of an invitation in band is known by the name of its object.
func TestInvitationAlive(t *testing.T) {
	n := New(Options{})
	n.learn(&picture{views: nothing.views, there: nothing.there, tunnels: map[string]bool{"invitation-first": true}})
	n.tunnels.hear(func() []agent {
		return []agent{{alive: true, reports: map[string]v1alpha1.TunnelReport{"invitation-first": lives, "invitation-gone": lives}}}
	})
	for name, want := range map[string]bool{"first": true, "gone": false, "rome": false} {
		if alive, known := n.InvitationAlive(name); alive != want || known != want {
			t.Errorf("of the invitation %s is known %t: %t, want %t", name, known, alive, want)
		}
	}
}
