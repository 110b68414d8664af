package network

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
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

// whole is the one request of the decider: a look at all there is.
var whole = reconcile.Request{NamespacedName: types.NamespacedName{Name: "network"}}

func toAll() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{whole} })
}

// rationed asks for a look because of what is in namespaces of peerings, as often as each may
// cause one: the other side says when it changes.
func (r *decider) rationed() handler.EventHandler {
	ask := func(o client.Object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		r.rations.Ask(o.GetNamespace(), r.clock.Now(), func() { q.Add(whole) })
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			ask(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			ask(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			ask(e.Object, q)
		},
	}
}

// ofPeer is the request of the carrier for a peering.
func ofPeer(peering string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: peering}}}
}

func ofPeerObject(peering string, _ client.Object) []reconcile.Request { return ofPeer(peering) }

// toPeering asks for the peering that a NetworkConfig here is carried for.
func toPeering() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		if peering, ok := strings.CutPrefix(obj.GetNamespace(), v1alpha1.PeeringNamespacePrefix); ok {
			return ofPeer(peering)
		}
		return nil
	})
}

// ours passes the namespaces of peerings and tenants, and those that are here for tenants.
func ours() predicate.Predicate {
	is := func(o client.Object) bool {
		return o.GetLabels()[v1alpha1.LabelHomeNamespace] != "" || strings.HasPrefix(o.GetName(), v1alpha1.PeeringNamespacePrefix) || strings.HasPrefix(o.GetName(), v1alpha1.TenantNamespacePrefix)
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return is(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return is(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return is(e.ObjectNew) && (e.ObjectOld.GetDeletionTimestamp() == nil) != (e.ObjectNew.GetDeletionTimestamp() == nil)
		},
	}
}

// tenantChanged passes what is looked at of Tenants, and not how much they use.
func tenantChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*v1alpha1.Tenant)
		is, ok2 := e.ObjectNew.(*v1alpha1.Tenant)
		return !ok || !ok2 || (was.DeletionTimestamp == nil) != (is.DeletionTimestamp == nil) || was.Spec.Reachability != is.Spec.Reachability || was.Spec.DirectPaths != is.Spec.DirectPaths || was.Spec.Translate != is.Spec.Translate ||
			!equality.Semantic.DeepEqual(was.Spec.Callers, is.Spec.Callers) ||
			!equality.Semantic.DeepEqual(was.Status.Cluster, is.Status.Cluster) || !equality.Semantic.DeepEqual(was.Status.Conditions, is.Status.Conditions)
	}}
}

// nodeChanged passes what is looked at of nodes, and not their heartbeats.
func nodeChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		was, ok := e.ObjectOld.(*corev1.Node)
		is, ok2 := e.ObjectNew.(*corev1.Node)
		return !ok || !ok2 || was.Labels[v1alpha1.LabelType] != is.Labels[v1alpha1.LabelType] ||
			!slices.Equal(was.Spec.PodCIDRs, is.Spec.PodCIDRs) || was.Spec.PodCIDR != is.Spec.PodCIDR || !slices.Equal(was.Status.Addresses, is.Status.Addresses)
	}}
}

// come passes that a tenant's objects come and go, and nothing of what they say.
func come() predicate.Predicate {
	is := func(o client.Object) bool { return strings.HasPrefix(o.GetNamespace(), v1alpha1.TenantNamespacePrefix) }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return is(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return is(e.Object) },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
	}
}
