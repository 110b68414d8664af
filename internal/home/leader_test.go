package home

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// A program that does not lead tells peers what the leading manager knows: not before that has said it, not
// what itself knows, and what was said last while one leads who says nothing.
func TestLeader(t *testing.T) {
	p := newPlace(t, full)
	manager, err := New(t.Context(), p.options)
	if err != nil {
		t.Fatal(err)
	}
	other := p.options
	clock := clocktesting.NewFakeClock(time.Now())
	other.Leads, other.Version, other.Clock = false, "v9.9.9", clock
	door, err := New(t.Context(), other)
	if err != nil {
		t.Fatal(err)
	}
	p.follow(t, door)
	var told atomic.Int32
	door.Subscribe(func() { told.Add(1) })

	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: v1alpha1.ManagerLease}}
	lease.Spec.HolderIdentity = ptr.To("before_1")
	if err := p.client.Create(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
	if err := manager.say(t.Context(), "after"); err == nil || !strings.Contains(err.Error(), `"before_1" leads`) {
		t.Errorf("who does not lead has said which build does: %v", err)
	}
	if info := door.Info(); len(info.Features) > 0 || info.Version != "" || info.Name != manager.Info().Name || door.led(nil) == nil {
		t.Errorf("before anybody has said which build leads: %+v, ready: %v", info, door.led(nil))
	}
	clock.Step(ledWait)
	if err := door.led(nil); err != nil || len(door.Info().Features) > 0 {
		t.Errorf("after a while without a leader: %v, and it tells %v", err, door.Info().Features)
	}
	clock.Step(-ledWait)
	p.leads(t, "after_1")
	if err := manager.say(t.Context(), "after"); err != nil {
		t.Fatal(err)
	}
	within(t, "the door tells what the leading manager knows", func() bool {
		info := door.Info()
		return info.Version == p.options.Version && slices.Equal(info.Features, manager.Info().Features) && door.led(nil) == nil
	})
	within(t, "it has told of it", func() bool { return told.Load() == 1 })
	before := p.lease(t).ResourceVersion
	if err := manager.say(t.Context(), "after"); err != nil || p.lease(t).ResourceVersion != before {
		t.Errorf("it is said again, as Lease %s (%s before): %v", p.lease(t).ResourceVersion, before, err)
	}

	p.leads(t, "before_2") // which leaves the words of the one before on it
	p.leads(t, "later_1")
	later := p.options
	later.Version, later.Network = "v0.0.2", true
	newer, err := New(t.Context(), later)
	if err != nil {
		t.Fatal(err)
	}
	if err := newer.say(t.Context(), "later"); err != nil {
		t.Fatal(err)
	}
	within(t, "the door tells what the next one knows", func() bool {
		info := door.Info()
		return info.Version == "v0.0.2" && slices.Contains(info.Features, v1alpha1.FeatureNetwork)
	})
	within(t, "it has told of that too, and of nothing between", func() bool { return told.Load() == 2 })
}

// What is on a Lease counts only as its holder's word.
func TestBuildOf(t *testing.T) {
	for _, c := range []struct{ name, holder, said string }{
		{"nothing", "a_1", ""},
		{"no JSON", "a_1", "v0.0.1"},
		{"of who led before", "b_1", `{"holder":"a_1","version":"v0.0.1","features":["peering/v1"]}`},
		{"of nobody, who let go", "", `{"holder":"a_1","version":"v0.0.1","features":["peering/v1"]}`},
		{"nobody's", "", `{"holder":"","version":"v0.0.1","features":["peering/v1"]}`},
		{"that knows nothing", "a_1", `{"holder":"a_1","version":"v0.0.1"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.AnnotationBuild: c.said}}}
			lease.Spec.HolderIdentity = ptr.To(c.holder)
			if got := buildOf(lease); got != nil {
				t.Errorf("counts as %+v", got)
			}
		})
	}
}

// follow runs what a program that does not lead follows.
func (p place) follow(t *testing.T, h *Home) {
	t.Helper()
	mgr, err := ctrl.NewManager(p.options.Config, ctrl.Options{
		Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{p.namespace: {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Register(mgr); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(t.Context()) }()
	t.Cleanup(func() {
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (p place) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := p.client.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: v1alpha1.ManagerLease}, lease); err != nil {
		t.Fatal(err)
	}
	return lease
}

// leads gives the Lease to somebody.
func (p place) leads(t *testing.T, holder string) {
	t.Helper()
	lease := p.lease(t)
	lease.Spec.HolderIdentity = ptr.To(holder)
	if err := p.client.Update(t.Context(), lease); err != nil {
		t.Fatal(err)
	}
}
