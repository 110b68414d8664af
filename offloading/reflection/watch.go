package reflection

import (
	"context"
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// mappedFor is the tenant that a namespace was made for, "" if for none.
func mappedFor(n client.Object) string {
	l := n.GetLabels()
	if l[v1alpha1.LabelManagedBy] != component || l[v1alpha1.LabelHomeNamespace] == "" {
		return ""
	}
	return l[v1alpha1.LabelTenant]
}

// mappedHere passes mapped namespaces that appear.
func mappedHere() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return mappedFor(e.Object) != "" },
		UpdateFunc: func(e event.UpdateEvent) bool { return mappedFor(e.ObjectOld) != mappedFor(e.ObjectNew) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// watcher turns what consumers do into requests, each consumer's at its pace.
type watcher struct {
	client client.Reader // the cache, which holds metadata only
	pace   *pacer
	// sweep asks for all namespaces of a tenant to be swept, named by its own.
	sweep func(context.Context, reconcile.Request)
}

// add asks for a ShadowObject that its consumer has caused to be looked at.
func (w *watcher) add(obj client.Object, q queue) { w.ask(obj, false, 0, q) }

// ask asks for a ShadowObject at the pace of its consumer, or of what this cluster looks at again, and not before a
// time has passed.
func (w *watcher) ask(obj client.Object, again bool, after time.Duration, q queue) {
	tenant, ok := strings.CutPrefix(obj.GetNamespace(), v1alpha1.TenantNamespacePrefix)
	if _, number := v1alpha1.ShadowObjectOf(obj.GetName()); !ok || number > 0 { // a part is read with the first one, which is written after it
		return
	}
	r := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}
	if wait := max(w.pace.delay(paceOf(tenant, again), 1), after); wait > 0 {
		q.AddAfter(r, wait)
		return
	}
	q.Add(r)
}

// shadows asks for ShadowObjects that change, and for those that wait for a part which comes. Our own writes of the
// status ask for nothing.
func (w *watcher) shadows(of *notes[made]) handler.EventHandler {
	part := func(obj client.Object, q queue) {
		whole, number := v1alpha1.ShadowObjectOf(obj.GetName())
		if number > 0 && of.get(types.NamespacedName{Namespace: obj.GetNamespace(), Name: whole}).broken > 0 {
			w.add(&v1alpha1.ShadowObject{ObjectMeta: objectMeta(obj.GetNamespace(), whole)}, q)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			w.ask(e.Object, e.IsInInitialList, 0, q)
			part(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			a, b := e.ObjectOld, e.ObjectNew
			if a.GetUID() != b.GetUID() || a.GetGeneration() != b.GetGeneration() || (a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil) {
				w.add(b, q)
				part(b, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if of.get(client.ObjectKeyFromObject(e.Object)).kind == "" {
				w.forgotten(ctx, e.Object)
			}
			w.add(e.Object, q)
		},
	}
}

// forgotten has the namespaces of a tenant swept of whose ShadowObject, which has gone,
// nobody remembers what was made for it: this program has begun a moment ago.
func (w *watcher) forgotten(ctx context.Context, s client.Object) {
	if _, number := v1alpha1.ShadowObjectOf(s.GetName()); number == 0 {
		w.sweep(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: s.GetNamespace()}})
	}
}

// pods asks for the tokens of ShadowPods that come or are gone.
func (w *watcher) pods() handler.EventHandler {
	add := func(obj client.Object, again bool, after time.Duration, q queue) {
		for _, r := range ofShadowPod("", obj) {
			_, home, _ := split(r)
			w.ask(&v1alpha1.ShadowObject{ObjectMeta: objectMeta(obj.GetNamespace(), v1alpha1.ShadowObjectName(home))}, again, after, q)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, e.IsInInitialList, 0, q) },
		// Consumers take the tokens back in the same moment, as a rule.
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(e.Object, false, 2*soon, q) },
	}
}

// all asks for all ShadowObjects in a tenant namespace again: Services and NetworkPolicies name other namespaces than their
// own.
func (w *watcher) all(ctx context.Context, namespace string, q queue) {
	if !strings.HasPrefix(namespace, v1alpha1.TenantNamespacePrefix) {
		return
	}
	list := metadataList(v1alpha1.GroupVersion.WithKind("ShadowObjectList"))
	if err := w.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return // the cache is not there yet: its first events come
	}
	for i := range list.Items {
		w.ask(&list.Items[i], true, 0, q)
	}
}

// tenants asks for all ShadowObjects of a tenant whose terms have changed.
func (w *watcher) tenants() handler.EventHandler {
	return handler.Funcs{UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
		if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() {
			w.all(ctx, v1alpha1.TenantNamespace(e.ObjectNew.GetName()), q)
		}
	}}
}

// maps asks for all ShadowObjects of a tenant whose namespaces have changed.
func (w *watcher) maps() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { w.all(ctx, e.Object.GetNamespace(), q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			a, ok := e.ObjectOld.(*v1alpha1.NamespaceMap)
			b, ok2 := e.ObjectNew.(*v1alpha1.NamespaceMap)
			if ok && ok2 && (!maps.Equal(a.Status.Namespaces, b.Status.Namespaces) || a.Status.ObservedGeneration != b.Status.ObservedGeneration) {
				w.all(ctx, b.Namespace, q)
			}
		},
	}
}
