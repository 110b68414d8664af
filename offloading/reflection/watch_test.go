package reflection

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// crowd is a cache with so many ShadowObjects in each namespace.
type crowd struct {
	client.Reader
	names int
}

func (c crowd) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for i := range c.names {
		m := metav1.PartialObjectMetadata{ObjectMeta: objectMeta(v1alpha1.TenantNamespace("rome"), fmt.Sprintf("secret-%d", i))}
		list.(*metav1.PartialObjectMetadataList).Items = append(list.(*metav1.PartialObjectMetadataList).Items, m)
	}
	return nil
}

// delays is a queue that remembers when each is looked at, at the soonest, after how long.
type delays struct {
	queue
	of map[string]time.Duration
}

func (d delays) Add(r reconcile.Request) { d.of[r.Name] = 0 }

func (d delays) AddAfter(r reconcile.Request, after time.Duration) {
	if was, is := d.of[r.Name]; !is || after < was {
		d.of[r.Name] = after
	}
}

// within is how many are looked at before so long.
func (d delays) within(limit time.Duration) (n int) {
	for _, after := range d.of {
		if after <= limit {
			n++
		}
	}
	return n
}

// TestPaces: what this cluster looks at again, as a namespace of a tenant is mapped, its terms change or a process begins,
// does not hold up what the tenant sends, and has a bound itself, however often the tenant causes that.
func TestPaces(t *testing.T) {
	const many = 1000
	ctx, none := context.Background(), newNotes[made]()
	mapping := func(generation int64) *v1alpha1.NamespaceMap {
		m := &v1alpha1.NamespaceMap{ObjectMeta: objectMeta(v1alpha1.TenantNamespace("rome"), v1alpha1.NamespaceMapName)}
		m.Status.ObservedGeneration = generation
		return m
	}
	tenant := func(generation int64) *v1alpha1.Tenant {
		return &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome", Generation: generation}}
	}
	shadow := func(name string) *v1alpha1.ShadowObject {
		return &v1alpha1.ShadowObject{ObjectMeta: objectMeta(v1alpha1.TenantNamespace("rome"), name)}
	}
	for _, c := range []struct {
		reason string
		before func(*watcher, queue)
	}{
		{"a namespace is mapped", func(w *watcher, q queue) {
			for i := range int64(2) {
				w.maps().Update(ctx, event.UpdateEvent{ObjectOld: mapping(i), ObjectNew: mapping(i + 1)}, q)
			}
		}},
		{"the terms change", func(w *watcher, q queue) {
			for i := range int64(2) {
				w.tenants().Update(ctx, event.UpdateEvent{ObjectOld: tenant(i), ObjectNew: tenant(i + 1)}, q)
			}
		}},
		{"a process begins", func(w *watcher, q queue) {
			for i := range many {
				w.shadows(none).Create(ctx, event.CreateEvent{Object: shadow(fmt.Sprintf("secret-%d", i)), IsInInitialList: true}, q)
			}
			w.maps().Create(ctx, event.CreateEvent{Object: mapping(1), IsInInitialList: true}, q)
		}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			w := &watcher{client: crowd{names: many}, pace: newPacer(testingclock.NewFakeClock(time.Now()))}
			q := delays{of: map[string]time.Duration{}}
			c.before(w, q)
			if n := q.within(0); len(q.of) != many || n > tenantBurst || q.within(tenantLag) != many {
				t.Errorf("%d are looked at again, %d at once, %d within a minute", len(q.of), n, q.within(tenantLag))
			}
			w.shadows(none).Create(ctx, event.CreateEvent{Object: shadow("new")}, q)
			if after, is := q.of["new"]; !is || after > 3*time.Second {
				t.Errorf("a new one is looked at after %s", after)
			}
			for i := range many {
				w.shadows(none).Update(ctx, event.UpdateEvent{ObjectOld: shadow("old"), ObjectNew: &v1alpha1.ShadowObject{ObjectMeta: metav1.ObjectMeta{
					Namespace: v1alpha1.TenantNamespace("rome"), Name: fmt.Sprintf("more-%d", i), Generation: 2}}}, q)
			}
			if n := q.within(0); n > 2*tenantBurst {
				t.Errorf("%d of the tenant's are looked at at once", n)
			}
		})
	}
}
