package reflection

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestWithoutNotice: who takes metadata away, or holds a ShadowObject for ever, gets
// no Secret by it.
func TestWithoutNotice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	make := func() {
		s := shadowOf(w.of("registry"), text(jsonType, jsonKey, login("s3cret")))
		s.Namespace, s.Finalizers = w.TenantNamespace(), []string{"example.org/held"}
		w.create(s)
		w.take("registry")
		if w.made("registry") == nil {
			t.Fatal("not made")
		}
	}
	let := func() {
		s := w.shadow("registry")
		s.Finalizers = nil
		if err := w.raw.Update(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	make()
	if err := w.raw.Delete(ctx, w.shadow("registry")); err != nil {
		t.Fatal(err)
	}
	w.restart()
	w.take("registry")
	if w.made("registry") != nil {
		t.Error("held by a finalizer")
	}
	let()
	w.take("registry")
	make()
	if err := w.raw.Delete(ctx, w.shadow("registry")); err != nil {
		t.Fatal(err)
	}
	let()
	w.restart() // gone while nobody looked
	w.take("registry")
	foreign := pullSecret(w.remote, "foreign", "x")
	w.create(foreign)
	own := w.made("registry").DeepCopy() // the owner wants one like that, and takes all of it but the name
	own.ObjectMeta = metav1.ObjectMeta{Namespace: w.remote, Name: "own", Labels: own.Labels, Annotations: own.Annotations}
	w.create(own)
	w.sweep()
	if w.made("registry") != nil || w.made("foreign") == nil || w.made("own") == nil {
		t.Error("the sweeper leaves what is ours, or takes what is not")
	}
}

// TestForgotten: a ShadowObject that goes when a process has begun, which has not looked at
// it yet, is swept for soon, and a tenant has no more sweeps by that however many go.
func TestForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := shadowOf(w.of("registry"), text(jsonType, jsonKey, login("s3cret")))
	s.Namespace = w.TenantNamespace()
	w.create(s)
	w.take("registry")
	if w.made("registry") == nil {
		t.Fatal("not made")
	}
	late := clocktesting.NewFakeClock(time.Now())
	q := workqueue.NewTypedRateLimitingQueueWithConfig(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request](), workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Clock: late})
	defer q.ShutDown()
	asked := 0
	watched := func() handler.EventHandler {
		return (&watcher{client: w.raw, pace: newPacer(w.clock), sweep: func(ctx context.Context, r reconcile.Request) {
			asked++
			sweepLater.Generic(ctx, event.TypedGenericEvent[reconcile.Request]{Object: r}, q)
		}}).shadows(w.provider.notes)
	}
	other := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer other.ShutDown()
	watched().Delete(ctx, event.DeleteEvent{Object: s}, other)
	if asked != 0 {
		t.Error("one that is remembered is swept for")
	}
	w.restart()
	if err := w.raw.Delete(ctx, w.shadow("registry")); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		watched().Delete(ctx, event.DeleteEvent{Object: s}, other)
	}
	w.take("registry")
	if asked != 100 || w.made("registry") == nil {
		t.Fatalf("asked %d times", asked)
	}
	late.Step(sweepSoon)
	r, _ := q.Get()
	if _, err := w.sweeper.Reconcile(ctx, r); err != nil {
		t.Fatal(err)
	}
	if q.Done(r); q.Len() > 0 || w.made("registry") != nil {
		t.Errorf("%d sweeps more; it is there: %t", q.Len(), w.made("registry") != nil)
	}
	late.Step(sweepSoon)
	if q.Len() > 0 {
		t.Error("swept again for what went before")
	}
}
