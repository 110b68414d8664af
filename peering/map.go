package peering

import (
	"context"
	"maps"
	"slices"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// relevant leaves out changes of a Peering's status, which only this controller writes.
func relevant() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld, e.ObjectNew
		return a.GetGeneration() != b.GetGeneration() ||
			!maps.Equal(a.GetAnnotations(), b.GetAnnotations()) ||
			!slices.Equal(a.GetFinalizers(), b.GetFinalizers()) ||
			(a.GetDeletionTimestamp() == nil) != (b.GetDeletionTimestamp() == nil)
	}}
}

// all maps to every Peering.
func (r *reconciler) all(ctx context.Context, _ client.Object) []ctrl.Request {
	return r.where(ctx, func(*v1alpha1.Peering) bool { return true })
}

// ofTenant maps a Tenant to the Peerings with its cluster.
func (r *reconciler) ofTenant(ctx context.Context, obj client.Object) []ctrl.Request {
	t, ok := obj.(*v1alpha1.Tenant)
	if !ok {
		return nil
	}
	return r.where(ctx, func(p *v1alpha1.Peering) bool {
		return p.Spec.ClusterID == t.Spec.ClusterID || p.Spec.Provide != nil && p.Spec.Provide.Tenant == t.Name
	})
}

// ofSecret maps a Secret to the Peering it belongs to, and a token to those that name it.
func (r *reconciler) ofSecret(ctx context.Context, obj client.Object) []ctrl.Request {
	if obj.GetNamespace() != r.namespace {
		return nil
	}
	return r.where(ctx, func(p *v1alpha1.Peering) bool {
		return obj.GetName() == v1alpha1.CredentialSecret(p.Name) || p.Spec.Consume != nil && p.Spec.Consume.TokenSecret == obj.GetName()
	})
}

// ofLabel maps an object to the Peering its label names, or its namespace's name.
func ofLabel(_ context.Context, obj client.Object) []ctrl.Request {
	name := obj.GetLabels()[v1alpha1.LabelPeering]
	if name == "" {
		prefix := v1alpha1.PeeringNamespacePrefix
		if ns := obj.GetNamespace(); len(ns) > len(prefix) && ns[:len(prefix)] == prefix {
			name = ns[len(prefix):]
		}
	}
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: client.ObjectKey{Name: name}}}
}

func (r *reconciler) where(ctx context.Context, keep func(*v1alpha1.Peering) bool) []ctrl.Request {
	list := &v1alpha1.PeeringList{}
	if err := r.client.List(ctx, list); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "peerings not listed")
		return nil
	}
	var requests []ctrl.Request
	for i := range list.Items {
		if keep(&list.Items[i]) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKey{Name: list.Items[i].Name}})
		}
	}
	return requests
}
