package tenant

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// What becomes of the namespaces that were mapped for a tenant when it ends.

// endNamespaces removes the namespaces mapped for the tenant. One that holds volume
// claims is never deleted: it is handed over to the cluster's owner, so that no later
// tenant of this name gets it.
func (r *reconciler) endNamespaces(ctx context.Context, t *v1alpha1.Tenant, f *facts) error {
	for i := range f.others {
		n := &f.others[i]
		// A label is easily written; these are never a tenant's.
		if n.Name == r.namespace || n.Name == "default" || strings.HasPrefix(n.Name, "kube-") || strings.HasPrefix(n.Name, "openshift-") {
			continue
		}
		if n.DeletionTimestamp != nil {
			continue
		}
		claims := &corev1.PersistentVolumeClaimList{}
		if err := r.live.List(ctx, claims, client.InNamespace(n.Name), client.Limit(1)); err != nil {
			return fmt.Errorf("listing volume claims in %s: %w", n.Name, err)
		}
		if len(claims.Items) == 0 {
			if err := remove(ctx, r.client, n); err != nil {
				return err
			}
			continue
		}
		if err := r.handOver(ctx, t, n); err != nil {
			return err
		}
	}
	return r.disarm(ctx, t)
}

// handOver makes a namespace nobody's. Pods that are still ending in it are let go of
// first: nobody looks after them any more.
func (r *reconciler) handOver(ctx context.Context, t *v1alpha1.Tenant, n *corev1.Namespace) error {
	if err := r.letGo(ctx, t, n.Name); err != nil {
		return err
	}
	before := n.DeepCopy()
	delete(n.Labels, v1alpha1.LabelTenant)
	delete(n.Labels, v1alpha1.LabelManagedBy)
	err := r.client.Patch(ctx, n, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("handing over namespace %s: %w", n.Name, err)
	}
	if err == nil {
		r.warn(t, v1alpha1.ReasonVolumesKept, "Remove", "namespace "+n.Name+" holds volume claims and is kept; to delete it with them: kubectl delete namespace "+n.Name)
	}
	return nil
}

// letGo takes Pelago's finalizers off the tenant's pods in a namespace.
func (r *reconciler) letGo(ctx context.Context, t *v1alpha1.Tenant, namespace string) error {
	list := &corev1.PodList{}
	for more := true; more; more = list.Continue != "" {
		err := r.live.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{v1alpha1.LabelTenant: t.Name},
			client.Limit(pageSize), client.Continue(list.Continue))
		if err != nil {
			return fmt.Errorf("listing the tenant's pods in %s: %w", namespace, err)
		}
		for i := range list.Items {
			if err := unhold(ctx, r.client, &list.Items[i], ourFinalizer); err != nil {
				return err
			}
		}
	}
	return nil
}

// managerBinding is the RoleBinding by which the manager may make objects in a mapped namespace.
const managerBinding = "pelago-manager"

// disarm takes the manager's own rights in namespaces that stay and are the tenant's no more. That is
// last: by these rights what was made there for the tenant has been removed. They are found by what they are
// themselves, so that none is left if the process dies when its namespace has been handed over.
func (r *reconciler) disarm(ctx context.Context, t *v1alpha1.Tenant) error {
	list := &rbacv1.RoleBindingList{}
	if err := r.live.List(ctx, list, client.MatchingLabels(childLabels(t))); err != nil {
		return fmt.Errorf("listing role bindings: %w", err)
	}
	for i := range list.Items {
		b := &list.Items[i]
		if b.Name != managerBinding {
			continue
		}
		n, err := read(ctx, r.live, "", b.Namespace, &corev1.Namespace{})
		if err != nil {
			return err
		}
		if n == nil || n.DeletionTimestamp != nil {
			continue // it goes with its namespace
		}
		if err := remove(ctx, r.client, b); err != nil {
			return err
		}
	}
	return nil
}
