package offer

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func inTenantNamespace(obj client.Object) bool {
	return strings.HasPrefix(obj.GetNamespace(), v1alpha1.TenantNamespacePrefix)
}

func inPeeringNamespace(obj client.Object) bool {
	return strings.HasPrefix(obj.GetNamespace(), v1alpha1.PeeringNamespacePrefix)
}

// sameName maps an offer to its request.
func sameName() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(obj)}}
	})
}

// siblings maps a request to the requests of its tenant: they share.
func siblings(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return eldestIn(ctx, c, obj.GetNamespace())
	})
}

// ofTenant maps a Tenant to its requests. A tenant that is gone is forgotten by the
// readers as well.
func ofTenant(c client.Reader, reader ResourceReader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		if t, ok := obj.(*v1alpha1.Tenant); ok && !t.DeletionTimestamp.IsZero() {
			reader.Remove(t.Spec.ClusterID)
		}
		return eldestIn(ctx, c, v1alpha1.TenantNamespace(obj.GetName()))
	})
}

// tenantMatters passes what changes offers: the terms, labels, by which an external reader
// may tell tenants apart, and what is used of a limit.
func tenantMatters() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			old, ok1 := e.ObjectOld.(*v1alpha1.Tenant)
			now, ok2 := e.ObjectNew.(*v1alpha1.Tenant)
			return ok1 && ok2 && now.Spec.Limits != nil && !equality.Semantic.DeepEqual(old.Status.Used, now.Status.Used)
		},
	})
}

// ofPeering maps a Peering to the requests to it.
func ofPeering(c client.Reader) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, obj client.Object) []reconcile.Request {
		return requestsIn(ctx, c, v1alpha1.PeeringNamespace(obj.GetName()))
	})
}

// requestsOf is the same for a change of the connection.
func requestsOf(c client.Reader) func(peering string) []reconcile.Request {
	return func(peering string) []reconcile.Request {
		return requestsIn(context.Background(), c, v1alpha1.PeeringNamespace(peering))
	}
}

// atHome maps an object at a provider to the request here.
func atHome(peering string, obj client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{
		Namespace: v1alpha1.PeeringNamespace(peering), Name: obj.GetName(),
	}}}
}

func requestsIn(ctx context.Context, c client.Reader, namespace string) []reconcile.Request {
	list := &v1alpha1.ResourceRequestList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil // from the cache: it fails only while the program ends
	}
	out := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// eldestIn lists the requests of a tenant namespace that matter: those that are looked
// at, and the next one, which was until an older one came.
func eldestIn(ctx context.Context, c client.Reader, namespace string) []reconcile.Request {
	list := &v1alpha1.ResourceRequestList{}
	if err := c.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // from the cache: it fails only while the program ends
	}
	return keysOf(oldest(list.Items, maxRequests+1))
}

// oldest returns at most so many of the requests that stay, oldest first.
func oldest(requests []v1alpha1.ResourceRequest, most int) []*v1alpha1.ResourceRequest {
	out := make([]*v1alpha1.ResourceRequest, 0, len(requests))
	for i := range requests {
		if requests[i].DeletionTimestamp.IsZero() {
			out = append(out, &requests[i])
		}
	}
	slices.SortFunc(out, func(a, b *v1alpha1.ResourceRequest) int {
		return cmp.Or(a.CreationTimestamp.Time.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return out[:min(len(out), most)]
}

func keysOf(requests []*v1alpha1.ResourceRequest) []reconcile.Request {
	out := make([]reconcile.Request, len(requests))
	for i, r := range requests {
		out[i].NamespacedName = client.ObjectKeyFromObject(r)
	}
	return out
}

// limiter spreads retries: exponential from 200 ms to 30 s, half of it by chance.
type limiter struct {
	workqueue.TypedRateLimiter[reconcile.Request]
}

func newLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return limiter{workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](200*time.Millisecond, 30*time.Second)}
}

// When says how long to wait before the next attempt.
func (l limiter) When(r reconcile.Request) time.Duration {
	d := l.TypedRateLimiter.When(r)
	return d/2 + rand.N(d/2)
}

// requestsOfConsumers lists the requests in tenant namespaces, of some consumers or,
// if ids has the empty string, of all.
func requestsOfConsumers(ctx context.Context, c client.Reader, ids map[string]struct{}) []reconcile.Request {
	if _, all := ids[""]; !all {
		var out []reconcile.Request
		tenants := &v1alpha1.TenantList{}
		if err := c.List(ctx, tenants); err != nil {
			return nil
		}
		for _, t := range tenants.Items {
			if _, meant := ids[t.Spec.ClusterID]; meant {
				out = append(out, eldestIn(ctx, c, v1alpha1.TenantNamespace(t.Name))...)
			}
		}
		return out
	}
	list := &v1alpha1.ResourceRequestList{}
	if err := c.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return nil
	}
	byNamespace := map[string][]v1alpha1.ResourceRequest{}
	for _, r := range list.Items {
		if inTenantNamespace(&r) {
			byNamespace[r.Namespace] = append(byNamespace[r.Namespace], r)
		}
	}
	var out []reconcile.Request
	for _, requests := range byNamespace {
		out = append(out, keysOf(oldest(requests, maxRequests+1))...)
	}
	return out
}
