package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// What becomes of the namespaces that were mapped for a tenant when it ends.

// errFurther says that a look has ended some namespaces of the tenant and others not: it was not in vain.
var errFurther = errors.New("there are more namespaces to end")

// endNamespaces removes the namespaces mapped for the tenant, each by itself: what is done is not done again, and one
// that does not end holds up no other.
func (r *reconciler) endNamespaces(ctx context.Context, t *v1alpha1.Tenant, f *facts) error {
	var failed []error
	further := false
	for i := range f.others {
		n := &f.others[i]
		if r.never(n.Name) || n.DeletionTimestamp != nil {
			continue
		}
		err := r.endNamespace(ctx, t, n)
		if err == nil {
			further = true
			continue
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	if further && len(failed) > 0 {
		return errFurther
	}
	return errors.Join(failed...)
}

// never says whether a namespace is never a tenant's, whatever labels it has: these are easily written.
func (r *reconciler) never(name string) bool {
	return name == r.namespace || name == "default" || strings.HasPrefix(name, "kube-") || strings.HasPrefix(name, "openshift-")
}

// endNamespace removes one. If it holds volume claims it is never deleted: it is emptied and handed over to the
// cluster's owner, so that no later tenant of this name gets it.
func (r *reconciler) endNamespace(ctx context.Context, t *v1alpha1.Tenant, n *corev1.Namespace) error {
	claims := &corev1.PersistentVolumeClaimList{}
	if err := r.live.List(ctx, claims, client.InNamespace(n.Name), client.Limit(1)); err != nil {
		return fmt.Errorf("listing volume claims in %s: %w", n.Name, err)
	}
	if len(claims.Items) == 0 {
		return remove(ctx, r.client, n)
	}
	if err := r.emptied(ctx, t, n); err != nil {
		return err
	}
	return r.handOver(ctx, t, n)
}

// emptied removes what was made for the tenant in a namespace that is kept: nobody would find it there once that is
// handed over. It is given up like a step of the end.
func (r *reconciler) emptied(ctx context.Context, t *v1alpha1.Tenant, n *corev1.Namespace) error {
	if r.empty == nil {
		return nil
	}
	bounded, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	err := r.empty(bounded, n)
	part := "what was made for it in namespace " + n.Name
	switch {
	case err == nil:
		r.memory.succeeded(t, part)
		return nil
	case ctx.Err() != nil:
		return err
	case bounded.Err() != nil && !r.slow(t):
		r.memory.succeeded(t, part)
		return fmt.Errorf("%w: %w", errUnfinished, err)
	case !r.giveUp(ctx, t, part, err):
		return err
	}
	r.warn(t, "LeftBehind", "Remove", "could not remove all that was made for the tenant in namespace "+n.Name+", which is kept; look there for objects labelled "+v1alpha1.LabelTenant+"="+t.Name)
	return nil
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
// themselves, so that none is left if the process dies when its namespace has been handed over, nor where the end
// went on without another namespace.
func (r *reconciler) disarm(ctx context.Context, t *v1alpha1.Tenant, _ *facts) error {
	list := &rbacv1.RoleBindingList{}
	if err := r.live.List(ctx, list, client.MatchingLabels(childLabels(t))); err != nil {
		return fmt.Errorf("listing role bindings: %w", err)
	}
	still, err := ourNamespaces(ctx, r.live, t)
	if err != nil {
		return err
	}
	var failed []error
	for i := range list.Items {
		b := &list.Items[i]
		if b.Name != managerBinding || slices.ContainsFunc(still, func(n corev1.Namespace) bool { return n.Name == b.Namespace && !r.never(n.Name) }) {
			continue // another one, or it goes with its namespace, or has not been removed with that
		}
		failed = append(failed, remove(ctx, r.client, b))
	}
	return errors.Join(failed...)
}
