package provider

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// podIndex finds pods by tenant and home UID.
	podIndex = "pelago.dev/pod-of"
	// homeIndex finds ShadowPods by namespace and name at home, and by namespace alone.
	homeIndex = "pelago.dev/home"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// index lets the cache find pods and ShadowPods without looking at all of them.
func index(i client.FieldIndexer) error {
	err := i.IndexField(context.Background(), &corev1.Pod{}, podIndex, func(obj client.Object) []string {
		if key, err := keyOf(obj); err == nil {
			return []string{key.String()}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("indexing pods: %w", err)
	}
	err = i.IndexField(context.Background(), &v1alpha1.ShadowPod{}, homeIndex, func(obj client.Object) []string {
		s, ok := obj.(*v1alpha1.ShadowPod)
		if !ok {
			return nil
		}
		return []string{s.Spec.Home.Namespace, s.Spec.Home.Namespace + "/" + s.Spec.Home.Name}
	})
	if err != nil {
		return fmt.Errorf("indexing shadow pods: %w", err)
	}
	return nil
}

// indexedPods finds pods by the index.
func indexedPods(c client.Reader) podFinder {
	return func(ctx context.Context, tenant, uid string) ([]corev1.Pod, error) {
		list := &corev1.PodList{}
		err := c.List(ctx, list, client.MatchingFields{podIndex: v1alpha1.TenantNamespace(tenant) + "/" + uid})
		return list.Items, err
	}
}

// watcher turns events into ShadowPods to look at.
type watcher struct {
	client client.Reader // the cache
	pace   pace
	budget *buckets // of events
}

func request(obj client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}
}

// shadowPods is what consumers cause: each tenant at its pace. Our own writes of the
// status ask for nothing.
func (w *watcher) shadowPods() handler.EventHandler {
	add := func(obj client.Object, q queue) {
		tenant := tenantName(obj.GetNamespace())
		if tenant == "" {
			return
		}
		if wait := w.pace.delay(tenant); wait > 0 {
			q.AddAfter(request(obj), wait)
			return
		}
		q.Add(request(obj))
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			a, b := e.ObjectOld, e.ObjectNew
			if a.GetGeneration() == b.GetGeneration() && a.GetUID() == b.GetUID() && a.GetResourceVersion() != b.GetResourceVersion() &&
				(a.GetDeletionTimestamp() == nil) == (b.GetDeletionTimestamp() == nil) && slices.Equal(a.GetFinalizers(), b.GetFinalizers()) {
				return
			}
			add(b, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(e.Object, q) },
	}
}

// pods is what this cluster does with pods. The end of one may be what another of the
// same name waits for.
func (w *watcher) pods() handler.EventHandler {
	add := func(obj client.Object, q queue) {
		if key, err := keyOf(obj); err == nil {
			q.Add(reconcile.Request{NamespacedName: key})
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(e.Object, q) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			add(e.ObjectNew, q)
			if before, err := keyOf(e.ObjectOld); err == nil && before.String() != keyText(e.ObjectNew) {
				q.Add(reconcile.Request{NamespacedName: before})
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			add(e.Object, q)
			w.waiting(ctx, e.Object, q)
		},
	}
}

func keyText(obj client.Object) string {
	key, err := keyOf(obj)
	if err != nil {
		return ""
	}
	return key.String()
}

// wakes is how many ShadowPods that want one name are looked at when it is free. There is one, or two of a StatefulSet;
// only who means harm has many, of which each would ask the API server.
const wakes = 4

// waiting asks for a look at the ShadowPods that want the name of a pod that is gone: those that have waited longest.
func (w *watcher) waiting(ctx context.Context, pod client.Object, q queue) {
	n := &corev1.Namespace{}
	if w.client.Get(ctx, client.ObjectKey{Name: pod.GetNamespace()}, n) != nil || n.Labels[v1alpha1.LabelHomeNamespace] == "" {
		return
	}
	all := w.of(ctx, n.Labels[v1alpha1.LabelTenant], client.MatchingFields{homeIndex: n.Labels[v1alpha1.LabelHomeNamespace] + "/" + pod.GetName()})
	for _, s := range first(all) {
		q.Add(request(&s))
	}
}

// first are those of ShadowPods that want a pod and have waited longest.
func first(all []v1alpha1.ShadowPod) []v1alpha1.ShadowPod {
	wait := slices.DeleteFunc(all, func(s v1alpha1.ShadowPod) bool { return s.DeletionTimestamp != nil || final(&s) })
	slices.SortFunc(wait, func(a, b v1alpha1.ShadowPod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	return wait[:min(wakes, len(wait))]
}

// list asks for a look at ShadowPods of a tenant.
func (w *watcher) list(ctx context.Context, q queue, tenant string, which ...client.ListOption) {
	all := w.of(ctx, tenant, which...)
	for i := range all {
		q.Add(request(&all[i]))
	}
}

// of lists ShadowPods of a tenant, which are the cache's.
func (w *watcher) of(ctx context.Context, tenant string, which ...client.ListOption) []v1alpha1.ShadowPod {
	if tenant == "" {
		return nil
	}
	list := &v1alpha1.ShadowPodList{}
	if err := w.client.List(ctx, list, append(which, client.InNamespace(v1alpha1.TenantNamespace(tenant)), client.UnsafeDisableDeepCopy)...); err != nil {
		return nil // the cache is not there yet: its first events come
	}
	return list.Items
}

// maps asks for a look at the ShadowPods of a namespace whose mapping has changed.
func (w *watcher) maps() handler.EventHandler {
	changed := func(ctx context.Context, namespace string, before, after map[string]v1alpha1.MappedNamespace, q queue) {
		for home := range maps.All(after) {
			if before[home] != after[home] {
				w.list(ctx, q, tenantName(namespace), client.MatchingFields{homeIndex: home})
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if m, ok := e.Object.(*v1alpha1.NamespaceMap); ok {
				changed(ctx, m.Namespace, nil, m.Status.Namespaces, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			a, ok := e.ObjectOld.(*v1alpha1.NamespaceMap)
			b, ok2 := e.ObjectNew.(*v1alpha1.NamespaceMap)
			if ok && ok2 {
				changed(ctx, b.Namespace, a.Status.Namespaces, b.Status.Namespaces, q)
			}
		},
	}
}

// namespaces asks for a look at the ShadowPods of a mapped namespace that comes or goes, or is
// taken away from its tenant.
func (w *watcher) namespaces() handler.EventHandler {
	add := func(ctx context.Context, n client.Object, q queue) {
		if home := n.GetLabels()[v1alpha1.LabelHomeNamespace]; home != "" {
			w.list(ctx, q, n.GetLabels()[v1alpha1.LabelTenant], client.MatchingFields{homeIndex: home})
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			a, b := e.ObjectOld, e.ObjectNew
			if maps.Equal(a.GetLabels(), b.GetLabels()) && (a.GetDeletionTimestamp() == nil) == (b.GetDeletionTimestamp() == nil) {
				return
			}
			add(ctx, b, q)
			for _, key := range []string{v1alpha1.LabelTenant, v1alpha1.LabelHomeNamespace} {
				if a.GetLabels()[key] != b.GetLabels()[key] {
					add(ctx, a, q)
					return
				}
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, e.Object, q) },
	}
}

// tenants asks for a look at everything of a tenant whose terms have changed.
func (w *watcher) tenants() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { w.list(ctx, q, e.Object.GetName()) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			a, ok := e.ObjectOld.(*v1alpha1.Tenant)
			b, ok2 := e.ObjectNew.(*v1alpha1.Tenant)
			if ok && ok2 && (!equality.Semantic.DeepEqual(a.Spec, b.Spec) || a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero()) {
				w.list(ctx, q, b.Name)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			w.pace.forget(e.Object.GetName())
			w.budget.forget(e.Object.GetName())
			w.list(ctx, q, e.Object.GetName())
		},
	}
}
