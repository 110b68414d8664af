package tenant

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// facts are the objects of a tenant as they were read; nil is what is not there.
type facts struct {
	namespace *corev1.Namespace
	quota     *corev1.ResourceQuota
	lease     *coordinationv1.Lease
	account   *corev1.ServiceAccount
	bindings  []rbacv1.RoleBinding
	flow      *flowcontrolv1.FlowSchema
	identity  *v1alpha1.Identity
	// peerings are all Peerings of the tenant's cluster, and the one of its name.
	peerings []v1alpha1.Peering
	// others are the tenant's namespaces beside the tenant namespace.
	others []corev1.Namespace
}

// gather reads the facts of a tenant.
func gather(ctx context.Context, c client.Reader, t *v1alpha1.Tenant) (*facts, error) {
	space := v1alpha1.TenantNamespace(t.Name)
	f := &facts{}
	var err error
	if f.namespace, err = read(ctx, c, "", space, &corev1.Namespace{}); err != nil {
		return nil, err
	}
	if f.quota, err = read(ctx, c, space, quotaName, &corev1.ResourceQuota{}); err != nil {
		return nil, err
	}
	if f.lease, err = read(ctx, c, space, v1alpha1.IdentityName, &coordinationv1.Lease{}); err != nil {
		return nil, err
	}
	if f.account, err = read(ctx, c, space, v1alpha1.IdentityName, &corev1.ServiceAccount{}); err != nil {
		return nil, err
	}
	if f.flow, err = read(ctx, c, "", flowName(t.Name), &flowcontrolv1.FlowSchema{}); err != nil {
		return nil, err
	}
	if f.identity, err = identity(ctx, c, t); err != nil {
		return nil, err
	}
	if f.bindings, err = ourBindings(ctx, c, t); err != nil {
		return nil, err
	}
	if f.others, err = ourNamespaces(ctx, c, t); err != nil {
		return nil, err
	}
	peerings := &v1alpha1.PeeringList{}
	if err := c.List(ctx, peerings); err != nil {
		return nil, fmt.Errorf("listing peerings: %w", err)
	}
	for _, p := range peerings.Items {
		if p.Name == t.Name || p.Spec.ClusterID == t.Spec.ClusterID {
			f.peerings = append(f.peerings, p)
		}
	}
	return f, nil
}

// identity reads the Identity of a tenant. One of another peering, which an earlier
// tenant of the same name may have left, is not it.
func identity(ctx context.Context, c client.Reader, t *v1alpha1.Tenant) (*v1alpha1.Identity, error) {
	found, err := read(ctx, c, v1alpha1.TenantNamespace(t.Name), v1alpha1.IdentityName, &v1alpha1.Identity{})
	if err != nil || found == nil || found.Spec.PeeringUID != t.Spec.PeeringUID {
		return nil, err
	}
	return found, nil
}

func ourBindings(ctx context.Context, c client.Reader, t *v1alpha1.Tenant) ([]rbacv1.RoleBinding, error) {
	list := &rbacv1.RoleBindingList{}
	err := c.List(ctx, list, client.InNamespace(v1alpha1.TenantNamespace(t.Name)), client.MatchingLabels(childLabels(t)))
	if err != nil {
		return nil, fmt.Errorf("listing role bindings: %w", err)
	}
	return list.Items, nil
}

// ourNamespaces lists the namespaces that Pelago made for a tenant beside its tenant
// namespace.
func ourNamespaces(ctx context.Context, c client.Reader, t *v1alpha1.Tenant) ([]corev1.Namespace, error) {
	list := &corev1.NamespaceList{}
	if err := c.List(ctx, list, client.MatchingLabels{v1alpha1.LabelTenant: t.Name}, client.HasLabels{v1alpha1.LabelManagedBy}); err != nil {
		return nil, fmt.Errorf("listing namespaces of the tenant: %w", err)
	}
	var found []corev1.Namespace
	for _, n := range list.Items {
		if n.Name != v1alpha1.TenantNamespace(t.Name) {
			found = append(found, n)
		}
	}
	return found, nil
}

// read gets one object; nil if it is not there.
func read[T client.Object](ctx context.Context, c client.Reader, namespace, name string, into T) (T, error) {
	var none T
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, into)
	switch {
	case apierrors.IsNotFound(err):
		return none, nil
	case err != nil:
		return none, fmt.Errorf("reading %T %s: %w", into, name, err)
	}
	return into, nil
}
