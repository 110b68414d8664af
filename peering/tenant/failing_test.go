package tenant

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// keptOnes makes mapped namespaces that are kept, with a Secret in each, and has them emptied of it.
func (b *bench) keptOnes(count int) []string {
	b.t.Helper()
	b.empty = func(ctx context.Context, n *corev1.Namespace) error {
		return client.IgnoreNotFound(b.c.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: n.Name, Name: "theirs"}}))
	}
	return b.spaces(count, func(name string) {
		b.claim(name)
		if err := b.c.Create(b.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "theirs"}}); err != nil {
			b.t.Error(err)
		}
	})
}

// wantHandedOver checks that namespaces are nobody's, and empty.
func (b *bench) wantHandedOver(names []string) {
	b.t.Helper()
	for _, name := range names {
		if n := get(b, "", name, &corev1.Namespace{}); n == nil || n.DeletionTimestamp != nil || n.Labels[v1alpha1.LabelTenant] != "" {
			b.t.Errorf("%s is not handed over", name)
		}
		if get(b, name, "theirs", &corev1.Secret{}) != nil {
			b.t.Errorf("a Secret is left in %s", name)
		}
	}
}

// TestEndHiccupEmptying: a namespace in which something fails once is not handed over with what is in it, however long
// the end has lasted.
func TestEndHiccupEmptying(t *testing.T) {
	t.Parallel()
	b := peered(t)
	names := b.keptOnes(3)
	failed, empty := map[string]int{}, b.empty
	b.empty = func(ctx context.Context, n *corev1.Namespace) error {
		if failed[n.Name]++; n.Name == names[1] && failed[n.Name] == 1 {
			return errors.New("the API server ends")
		}
		return empty(ctx, n)
	}
	b.identityGoodbye()
	b.reconcile()
	b.step(2 * time.Minute)
	b.looks(3)
	b.wantHandedOver(names)
}

// TestEndHiccupStep: the end does not go on without a step that has failed once, nor if it did so before, with success
// between.
func TestEndHiccupStep(t *testing.T) {
	t.Parallel()
	b := peered(t)
	var refused atomic.Bool // lists of volume claims
	b.restart(interceptor.NewClient(b.c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if _, ok := list.(*corev1.PersistentVolumeClaimList); ok && refused.Load() {
				return errors.New("the API server ends")
			}
			return c.List(ctx, list, o...)
		},
	}))
	names := b.keptOnes(2)
	failing := errors.New("not yet")
	drains := &drainer{}
	b.drainers = []Drainer{drains}
	b.identityGoodbye()
	b.reconcile()
	for _, now := range []struct {
		drains error
		lists  bool
	}{{failing, true}, {nil, false}, {failing, true}} {
		drains.err = now.drains
		refused.Store(!now.lists)
		if _, err := b.Reconcile(t.Context(), request(b.name)); err == nil || b.tenant() == nil || b.said("LeftBehind") {
			t.Fatalf("%v: what fails once is given up", err)
		}
		b.step(giveUpAfter - time.Second)
	}
	drains.err = nil
	b.looks(3)
	b.wantHandedOver(names)
}

// TestEndStuckNamespace: a namespace that does not go leaves the manager no rights in those that are handed over.
func TestEndStuckNamespace(t *testing.T) {
	t.Parallel()
	b := peered(t)
	var names []string
	b.restart(interceptor.NewClient(b.c, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
			if obj.GetName() == names[0] {
				return errors.New("denied by a webhook")
			}
			return c.Delete(ctx, obj, o...)
		},
	}))
	names = b.spaces(3, b.arm)
	for _, name := range names[1:] {
		b.claim(name)
	}
	b.identityGoodbye()
	b.reconcile()
	b.reconcile() // brings it further
	if _, err := b.Reconcile(t.Context(), request(b.name)); err == nil || b.tenant() == nil {
		t.Fatalf("%v: the end goes on", err)
	}
	b.step(giveUpAfter)
	b.reconcile()
	if !b.said("LeftBehind could not remove its namespaces") || b.tenant() != nil {
		t.Error("it does not end, or nobody is told")
	}
	if n := get(b, "", names[0], &corev1.Namespace{}); n.DeletionTimestamp != nil || n.Labels[v1alpha1.LabelTenant] == "" || !b.armed(n.Name) {
		t.Errorf("%v: the one that is left has been changed", n.Labels)
	}
	for _, name := range names[1:] {
		if get(b, "", name, &corev1.Namespace{}).Labels[v1alpha1.LabelTenant] != "" || b.armed(name) {
			t.Errorf("%s is not handed over, or the manager keeps its rights", name)
		}
	}
}

// TestFailing holds since when a step fails: not since before a success, nor since a later time, nor since another
// tenant of the name failed.
func TestFailing(t *testing.T) {
	t.Parallel()
	m, rome, start := newMemory(), rome(), time.Now()
	rome.UID = "1"
	since := func(step string, now, want time.Duration) {
		t.Helper()
		if got := m.failing(rome, step, start.Add(now)).Sub(start); got != want {
			t.Errorf("%s fails since %v, want %v", step, got, want)
		}
	}
	m.succeeded(rome, "a")
	if len(m.tenants) > 0 {
		t.Error("what never failed is remembered")
	}
	since("a", 10*time.Second, 10*time.Second)
	since("a", 30*time.Second, 10*time.Second)
	since("b", 30*time.Second, 30*time.Second)
	m.succeeded(rome, "a")
	since("a", 40*time.Second, 40*time.Second)
	since("b", 40*time.Second, 30*time.Second)
	since("b", 20*time.Second, 20*time.Second) // the clock was set back
	rome.UID = "2"
	since("b", 50*time.Second, 50*time.Second)
	m.forget(rome.Name)
	since("b", time.Hour, time.Hour)
}

// TestRetries: what fails is looked at again in the minute in which it may.
func TestRetries(t *testing.T) {
	t.Parallel()
	limiter, wait := retries(), time.Duration(0)
	for range 100 {
		wait = limiter.When(ctrl.Request{})
	}
	if wait != retryMax || wait >= giveUpAfter {
		t.Errorf("the wait grows to %v", wait)
	}
}
