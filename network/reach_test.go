package network

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestReachability lets both owners say what of their pods may be reached: each side's agents are
// told of their own, at once, and neither side is told of the other's.
func TestReachability(t *testing.T) {
	w := newWorld(t)
	w.settle()
	peering, tenant := &v1alpha1.Peering{}, &v1alpha1.Tenant{}
	said := func() [4]v1alpha1.Reachability {
		return [4]v1alpha1.Reachability{
			w.rome.pair(v1alpha1.NetworkConsumer).Spec.Reachability, w.milan.pair(v1alpha1.NetworkConsumer).Spec.Reachability,
			w.rome.pair(v1alpha1.NetworkProvider).Spec.Reachability, w.milan.pair(v1alpha1.NetworkProvider).Spec.Reachability,
		}
	}
	for _, c := range []struct{ home, provider v1alpha1.Reachability }{
		{"", ""}, {v1alpha1.ReachNone, ""}, {v1alpha1.ReachFull, v1alpha1.ReachNone}, {"", v1alpha1.ReachFull}, {v1alpha1.ReachOffloadedOnly, v1alpha1.ReachOffloadedOnly},
	} {
		for name, o := range map[string]client.Object{w.rome.peer: peering, w.milan.peer: tenant} {
			if err := w.raw.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
				t.Fatal(err)
			}
		}
		before := tenant.DeepCopy()
		peering.Spec.Reachability, tenant.Spec.Reachability = c.home, c.provider
		for _, o := range []client.Object{peering, tenant} {
			if err := w.raw.Update(ctx, o); err != nil {
				t.Fatal(err)
			}
		}
		if changed := before.Spec.Reachability != c.provider; tenantChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: tenant}) != changed {
			t.Errorf("the provider says %q: seen is not %t", c.provider, changed)
		}
		w.settle()
		if got, want := said(), [4]v1alpha1.Reachability{c.home, "", "", c.provider}; got != want {
			t.Errorf("home says %q and the provider %q: at home, of home at the provider, of the provider at home, at the provider: %q", c.home, c.provider, got)
		}
	}
	if near := w.rome.pair(v1alpha1.NetworkConsumer); near.Status.ObservedGeneration != near.Generation {
		t.Errorf("the answer is of %d, want %d", near.Status.ObservedGeneration, near.Generation)
	}
}

// TestReachabilityRefused asks the API server for words that mean nothing, and for one at the wrong
// side.
func TestReachabilityRefused(t *testing.T) {
	w := newWorld(t)
	peering, provide, tenant := &v1alpha1.Peering{}, &v1alpha1.Peering{}, &v1alpha1.Tenant{}
	for name, list := range map[string][]client.Object{w.rome.peer: {peering}, w.milan.peer: {provide, tenant}} {
		for _, o := range list {
			if err := w.raw.Get(ctx, client.ObjectKey{Name: name}, o); err != nil {
				t.Fatal(err)
			}
		}
	}
	offloading := &v1alpha1.NamespaceOffloading{}
	offloading.Namespace, offloading.Name = w.rome.namespace, v1alpha1.OffloadingName
	offloading.Spec.Reachability = "some"
	peering.Spec.Reachability, tenant.Spec.Reachability, provide.Spec.Reachability = "some", "all", v1alpha1.ReachFull
	for _, c := range []struct {
		object client.Object
		want   []string
	}{
		{peering, []string{"spec.reachability", "offloaded-only"}},
		{tenant, []string{"spec.reachability", "offloaded-only"}},
		{provide, []string{"spec.reachability: is for a provider", "Tenant"}},
		{offloading, []string{"spec.reachability", "offloaded-only"}},
	} {
		var err error
		if c.object == offloading {
			err = w.raw.Create(ctx, c.object)
		} else {
			err = w.raw.Update(ctx, c.object)
		}
		for _, part := range c.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%T %s: %v, want %s", c.object, c.object.GetName(), err, part)
			}
		}
	}
	for _, r := range v1alpha1.Reachabilities() {
		next := offloading.DeepCopy()
		next.Spec.Reachability = r
		if err := w.raw.Create(ctx, next); err != nil {
			t.Errorf("%s: %v", r, err)
		} else if err := w.raw.Delete(ctx, next); err != nil {
			t.Fatal(err)
		}
	}
}
