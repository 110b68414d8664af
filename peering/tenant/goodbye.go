package tenant

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// goodbye lets go of Identities that are being deleted and whose Tenant will not do
// it: because it is gone, or because it is another peering's.
type goodbye struct {
	client client.Client
	live   client.Reader // reads past the cache
}

// Reconcile looks at one Identity.
func (g *goodbye) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileLimit)
	defer cancel()
	i, err := read(ctx, g.client, req.Namespace, req.Name, &v1alpha1.Identity{})
	if err != nil || i == nil || i.DeletionTimestamp == nil {
		return ctrl.Result{}, err
	}
	name := tenantOf(i)
	if name == "" {
		return ctrl.Result{}, nil // not in a tenant namespace, so not of ours
	}
	// Past the cache: it may not have heard of the Tenant yet.
	t, err := read(ctx, g.live, "", name, &v1alpha1.Tenant{})
	if err != nil {
		return ctrl.Result{}, err
	}
	if t != nil && t.Spec.PeeringUID == i.Spec.PeeringUID {
		return ctrl.Result{}, nil
	}
	n, err := read(ctx, g.live, "", i.Namespace, &corev1.Namespace{})
	if err != nil {
		return ctrl.Result{}, err
	}
	pick := ourFinalizer
	if n != nil && contains(n.Labels, map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: name}) {
		pick = anyFinalizer
	}
	if err := unhold(ctx, g.client, i, pick); err != nil {
		return again(err)
	}
	return ctrl.Result{}, nil
}
