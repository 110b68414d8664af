package namespace

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func request(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// offloadingOf is the request for the NamespaceOffloading of a namespace.
func offloadingOf(namespace string) reconcile.Request {
	return request(namespace, v1alpha1.OffloadingName)
}

// mapOfTenant is the request for the NamespaceMap of a tenant.
func mapOfTenant(tenant string) reconcile.Request {
	return request(v1alpha1.TenantNamespace(tenant), v1alpha1.NamespaceMapName)
}

func inPeeringNamespace(obj client.Object) bool {
	return strings.HasPrefix(obj.GetNamespace(), v1alpha1.PeeringNamespacePrefix)
}

func inTenantNamespace(obj client.Object) bool {
	return strings.HasPrefix(obj.GetNamespace(), v1alpha1.TenantNamespacePrefix)
}

// each is a handler that asks for the same of every object.
func each(f func(obj client.Object) []reconcile.Request) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request { return f(obj) })
}

func toNamespace() handler.EventHandler {
	return each(func(obj client.Object) []reconcile.Request {
		return []reconcile.Request{request("", obj.GetNamespace())}
	})
}

func ofNamespace() handler.EventHandler {
	return each(func(obj client.Object) []reconcile.Request { return []reconcile.Request{offloadingOf(obj.GetName())} })
}

// changedOrEnding passes changes of spec, of finalizers and the beginning of the end.
func changedOrEnding() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers())
		},
	})
}

// labelledOrEnding passes namespaces that have or had something to do with offloading.
func labelledOrEnding() predicate.Predicate {
	marked := func(o client.Object) bool {
		l := o.GetLabels()
		return l[v1alpha1.LabelOffloaded] != "" || l[v1alpha1.LabelTenant] != ""
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return marked(e.Object) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			was, is := e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()
			for _, key := range append([]string{v1alpha1.LabelOffloaded, v1alpha1.LabelTenant, v1alpha1.LabelManagedBy, v1alpha1.LabelHomeNamespace}, entryLabels...) {
				if was[key] != is[key] {
					return true
				}
			}
			return marked(e.ObjectNew) && (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
		},
	}
}

// specOrFeatures passes peerings of which the spec changes, or what their provider knows.
func specOrFeatures() predicate.Predicate {
	features := func(obj client.Object) []string {
		if p, ok := obj.(*v1alpha1.Peering); ok && p.Status.Remote != nil {
			return p.Status.Remote.Features
		}
		return nil
	}
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return !slices.Equal(features(e.ObjectOld), features(e.ObjectNew)) },
	})
}

// virtualNodes passes nodes that are or were virtual.
func virtualNodes() predicate.Predicate {
	virtual := func(o client.Object) bool { return o.GetLabels()[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return virtual(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return virtual(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return virtual(e.ObjectOld) || virtual(e.ObjectNew) },
	}
}

// toAll asks for all NamespaceOffloadings.
func toAll(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		list := &v1alpha1.NamespaceOffloadingList{}
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return nil
		}
		all := make([]reconcile.Request, 0, len(list.Items))
		for i := range list.Items {
			all = append(all, offloadingOf(list.Items[i].Namespace))
		}
		return all
	})
}

// entriesChanged asks for the offloadings of which a NamespaceMap says something new,
// so that an answer about one of many namespaces is looked at once.
func entriesChanged() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	add := func(q queue, was, is client.Object) {
		for name := range changedEntries(was, is) {
			q.Add(offloadingOf(name))
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { add(q, nil, e.Object) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { add(q, e.Object, nil) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { add(q, e.ObjectOld, e.ObjectNew) },
	}
}

// changedEntries names what two states of a NamespaceMap say different things of.
func changedEntries(was, is client.Object) map[string]bool {
	before, _ := was.(*v1alpha1.NamespaceMap)
	after, _ := is.(*v1alpha1.NamespaceMap)
	if before == nil {
		before = &v1alpha1.NamespaceMap{}
	}
	if after == nil {
		after = &v1alpha1.NamespaceMap{}
	}
	found := map[string]bool{}
	differ(found, before.Spec.Namespaces, after.Spec.Namespaces)
	differ(found, before.Status.Namespaces, after.Status.Namespaces)
	if readyMessage(before) != readyMessage(after) {
		for name := range after.Spec.Namespaces {
			if after.Status.Namespaces[name].Phase != v1alpha1.MappingReady {
				found[name] = true
			}
		}
	}
	return found
}

func differ[V comparable](found map[string]bool, a, b map[string]V) {
	for name, value := range a {
		if other, ok := b[name]; !ok || other != value {
			found[name] = true
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			found[name] = true
		}
	}
}

func readyMessage(m *v1alpha1.NamespaceMap) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Message
	}
	return ""
}

// mapOfPeer and mapOfPeerObject are what changes of a provider are about.
func mapOfPeer(peering string) []reconcile.Request {
	return []reconcile.Request{request(v1alpha1.PeeringNamespace(peering), v1alpha1.NamespaceMapName)}
}

func mapOfPeerObject(peering string, obj client.Object) []reconcile.Request {
	if obj.GetName() != v1alpha1.NamespaceMapName {
		return nil
	}
	return mapOfPeer(peering)
}

func ofTenant() handler.EventHandler {
	return each(func(obj client.Object) []reconcile.Request { return []reconcile.Request{mapOfTenant(obj.GetName())} })
}

// ofBinding asks for the tenant of a RoleBinding that gives it rights.
func ofBinding() handler.EventHandler {
	return each(func(obj client.Object) []reconcile.Request {
		if _, ok := obj.(*rbacv1.RoleBinding); !ok {
			return nil
		}
		switch name := obj.GetName(); {
		case (name == v1alpha1.ConsumerPodsRole || name == managerBinding) && obj.GetLabels()[v1alpha1.LabelTenant] != "":
			return []reconcile.Request{mapOfTenant(obj.GetLabels()[v1alpha1.LabelTenant])}
		case name == v1alpha1.ConsumerRole && inTenantNamespace(obj):
			return []reconcile.Request{request(obj.GetNamespace(), v1alpha1.NamespaceMapName)}
		}
		return nil
	})
}

// ofHomeBinding asks for the offloading of a namespace in which the manager's own rights
// change.
func ofHomeBinding() handler.EventHandler {
	return each(func(obj client.Object) []reconcile.Request {
		if name := obj.GetName(); name != managerBinding && name != managerTokensRole || obj.GetLabels()[v1alpha1.LabelManagedBy] != component || obj.GetLabels()[v1alpha1.LabelTenant] != "" {
			return nil
		}
		return []reconcile.Request{offloadingOf(obj.GetNamespace())}
	})
}

// mapsOfNamespace asks for the tenant whose namespace changes and, when one goes or
// becomes somebody else's, for all tenants that wait for a name.
func mapsOfNamespace(c client.Reader) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	own := func(q queue, obj client.Object) {
		n, ok := obj.(*corev1.Namespace)
		if !ok {
			return
		}
		if tenant, ok := strings.CutPrefix(n.Name, v1alpha1.TenantNamespacePrefix); ok {
			q.Add(mapOfTenant(tenant))
		} else if tenant := n.Labels[v1alpha1.LabelTenant]; tenant != "" {
			q.Add(mapOfTenant(tenant))
		}
	}
	waiting := func(ctx context.Context, q queue) {
		list := &v1alpha1.NamespaceMapList{}
		if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return
		}
		for i := range list.Items {
			if m := &list.Items[i]; inTenantNamespace(m) && waitsForName(m) {
				q.Add(request(m.Namespace, m.Name))
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { own(q, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			own(q, e.ObjectOld)
			own(q, e.ObjectNew)
			if (predicate.LabelChangedPredicate{}).Update(e) {
				waiting(ctx, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			own(q, e.Object)
			waiting(ctx, q)
		},
	}
}

// tenantsOfEntries asks for the tenants of whose namespaces the NamespaceMap of a provider
// of this cluster's has an entry more, or one less.
func tenantsOfEntries(c client.Reader) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	entries := func(obj client.Object) map[string]v1alpha1.NamespaceMapping {
		if m, ok := obj.(*v1alpha1.NamespaceMap); ok {
			return m.Spec.Namespaces
		}
		return nil
	}
	ask := func(ctx context.Context, q queue, one, other map[string]v1alpha1.NamespaceMapping) {
		for name := range one {
			if _, both := other[name]; both {
				continue
			}
			n := &corev1.Namespace{}
			if err := c.Get(ctx, client.ObjectKey{Name: name}, n); err != nil {
				continue // its going asks for the tenant too
			}
			if tenant := n.Labels[v1alpha1.LabelTenant]; tenant != "" {
				q.Add(mapOfTenant(tenant))
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { ask(ctx, q, entries(e.Object), nil) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			ask(ctx, q, entries(e.ObjectOld), entries(e.ObjectNew))
			ask(ctx, q, entries(e.ObjectNew), entries(e.ObjectOld))
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { ask(ctx, q, entries(e.Object), nil) },
	}
}

func waitsForName(m *v1alpha1.NamespaceMap) bool {
	for _, n := range m.Status.Namespaces {
		if n.Reason == v1alpha1.ReasonNameTaken {
			return true
		}
	}
	return false
}
