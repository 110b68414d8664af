package tenant

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// usageDelay gathers changes of many pods into one look at their tenant.
const usageDelay = time.Second

// toTenant maps what belongs to a tenant to it: by label, or by the name of the
// tenant namespace for what consumers write and for namespaces that are not ours.
func toTenant() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		name := tenantOf(obj)
		if name == "" {
			return nil
		}
		return []reconcile.Request{request(name)}
	})
}

// tenantOf names the tenant that an object belongs to, "" if none. The name of a tenant
// namespace is what counts: consumers write labels too. Only cluster-scoped objects,
// which they cannot write, are told by their label.
func tenantOf(obj client.Object) string {
	namespace := obj.GetNamespace()
	if _, ok := obj.(*corev1.Namespace); ok {
		namespace = obj.GetName()
	}
	if name, found := strings.CutPrefix(namespace, v1alpha1.TenantNamespacePrefix); found {
		return name
	}
	if obj.GetNamespace() == "" {
		return obj.GetLabels()[v1alpha1.LabelTenant]
	}
	return ""
}

func request(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

// peeringToTenant maps a Peering to the tenants of its cluster, and to the one of its
// name, which may wait for that name.
func peeringToTenant(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		requests := []reconcile.Request{request(obj.GetName())}
		p, ok := obj.(*v1alpha1.Peering)
		if !ok {
			return requests
		}
		tenants := &v1alpha1.TenantList{}
		if err := c.List(ctx, tenants); err != nil {
			return requests
		}
		for _, t := range tenants.Items {
			if t.Spec.ClusterID == p.Spec.ClusterID && t.Name != p.Name {
				requests = append(requests, request(t.Name))
			}
		}
		return requests
	})
}

// toInvitations maps a tenant to the invitations that it came of.
func toInvitations(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		list := &v1alpha1.InvitationList{}
		if err := c.List(ctx, list); err != nil {
			return nil
		}
		var requests []reconcile.Request
		for _, i := range list.Items {
			if i.Status.TenantUID != "" && i.Status.TenantUID == string(obj.GetUID()) {
				requests = append(requests, request(i.Name))
			}
		}
		return requests
	})
}

// quotaObserved passes the update in which a quota gets its first status. Later ones
// only count objects.
func quotaObserved() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.ResourceQuota)
		after, ok2 := e.ObjectNew.(*corev1.ResourceQuota)
		return ok && ok2 && len(before.Status.Hard) != len(after.Status.Hard)
	}}
}

// usageSource feeds pods and namespaces of the cache to the accounting, and asks for
// a look at tenants whose sums change.
func usageSource(informers cache.Cache, u *Usage) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		u.notify(func(tenant string) { queue.AddAfter(request(tenant), usageDelay) })
		pods, err := informers.GetInformer(ctx, &corev1.Pod{})
		if err != nil {
			return err
		}
		namespaces, err := informers.GetInformer(ctx, &corev1.Namespace{})
		if err != nil {
			return err
		}
		u.podsOf(func(namespace string) ([]*corev1.Pod, error) {
			list := &corev1.PodList{}
			if err := informers.List(ctx, list, &client.ListOptions{Namespace: namespace, LabelSelector: labels.Everything()}); err != nil {
				return nil, err
			}
			found := make([]*corev1.Pod, len(list.Items))
			for i := range list.Items {
				found[i] = &list.Items[i]
			}
			return found, nil
		})
		podsFed, err := pods.AddEventHandler(podHandler(u))
		if err != nil {
			return err
		}
		namespacesFed, err := namespaces.AddEventHandler(namespaceHandler(u))
		if err != nil {
			return err
		}
		// Sums are told to nobody before both have been read once.
		go func() {
			if toolscache.WaitForCacheSync(ctx.Done(), podsFed.HasSynced, namespacesFed.HasSynced) {
				u.Complete()
			}
		}()
		return nil
	})
}

func podHandler(u *Usage) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { withObject(obj, u.SetPod) },
		UpdateFunc: func(_, obj any) { withObject(obj, u.SetPod) },
		DeleteFunc: func(obj any) { withObject(obj, u.DeletePod) },
	}
}

func namespaceHandler(u *Usage) toolscache.ResourceEventHandler {
	set := func(n *corev1.Namespace) { u.SetNamespace(n.Name, n.Labels[v1alpha1.LabelTenant]) }
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { withObject(obj, set) },
		UpdateFunc: func(_, obj any) { withObject(obj, set) },
		DeleteFunc: func(obj any) {
			withObject(obj, func(n *corev1.Namespace) { u.SetNamespace(n.Name, "") })
		},
	}
}

// withObject calls f with the object of an informer's event, which may be the last
// state known of an object that is gone.
func withObject[T any](obj any, f func(T)) {
	if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	if typed, ok := obj.(T); ok {
		f(typed)
	}
}
