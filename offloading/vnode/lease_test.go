package vnode

import (
	"context"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	testingclock "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestRenewalsGrow holds that a Lease's renewTime grows when the clock is set back, when a
// replica with a slower clock goes on, and when the Lease is made anew, and that only the
// first renewal of a replica reads it.
func TestRenewalsGrow(t *testing.T) {
	w := newWorld(t)
	w.offer(w.key("default"))
	w.settle("default")
	reads := 0
	counted := interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, is := obj.(*coordinationv1.Lease); is {
				reads++
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	replica := func(ahead time.Duration) (*leases, *testingclock.FakePassiveClock) {
		clock := testingclock.NewFakePassiveClock(w.clock.Now().Add(ahead))
		return &leases{client: w.client, live: counted, clock: clock}, clock
	}
	first, clock := replica(time.Minute)
	second, slower := replica(-time.Minute)
	third, later := replica(time.Hour)
	last := w.lease("default").Spec.RenewTime.Time
	for _, c := range []struct {
		reason string
		by     *leases
		before func()
		now    bool // it is renewed by the replica's clock
	}{
		{"one replica", first, func() {}, true},
		{"ten seconds later", first, func() { clock.SetTime(clock.Now().Add(renewEvery)) }, true},
		{"its clock is set back", first, func() { clock.SetTime(clock.Now().Add(-2 * time.Minute)) }, false},
		{"and goes on", first, func() { clock.SetTime(clock.Now().Add(renewEvery)) }, false},
		{"a replica with a slower clock", second, func() {}, false},
		{"again", second, func() { slower.SetTime(slower.Now().Add(renewEvery)) }, false},
		{"the lease is made anew", second, func() { _ = w.client.Delete(ctx, w.lease("default")) }, false},
		{"a replica with a good clock", third, func() {}, true},
		{"less than a microsecond later", third, func() { later.SetTime(later.Now().Add(time.Nanosecond)) }, false},
	} {
		c.before()
		if _, err := c.by.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: w.name}}); err != nil {
			t.Fatal(err)
		}
		renewed := w.lease("default").Spec.RenewTime.Time
		if !renewed.After(last) || c.now != renewed.Equal(c.by.clock.Now()) {
			t.Errorf("%s: renewed at %s, before at %s, the clock says %s", c.reason, renewed, last, c.by.clock.Now())
		}
		last = renewed
	}
	if reads != 3 {
		t.Errorf("leases were read %d times by three replicas", reads)
	}
	if err := w.client.Delete(ctx, &corev1.Node{ObjectMeta: w.node("default").ObjectMeta}); err != nil {
		t.Fatal(err)
	}
	if _, err := third.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: w.name}}); err != nil {
		t.Fatal(err)
	}
	if _, kept := third.times.Load(w.name); kept {
		t.Error("a node that is gone is remembered")
	}
}
