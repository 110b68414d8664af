package namespace

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// fieldOwner is who owns the fields that this package applies.
const fieldOwner = client.FieldOwner("pelago-namespace")

// mappedNamespace is the namespace of a tenant for one of its namespaces at home.
func mappedNamespace(name, home string, tenant *v1alpha1.Tenant) *corev1.Namespace {
	level := string(cmp.Or(tenant.Spec.PodSecurity, v1alpha1.PodSecurityBaseline))
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1alpha1.LabelManagedBy:                      component,
		v1alpha1.LabelTenant:                         tenant.Name,
		v1alpha1.LabelHomeNamespace:                  home,
		"pod-security.kubernetes.io/enforce":         level,
		"pod-security.kubernetes.io/enforce-version": "latest",
		"pod-security.kubernetes.io/warn":            level,
		"pod-security.kubernetes.io/warn-version":    "latest",
	}}}
}

// podsBinding lets a tenant see its pods' logs in a mapped namespace, and little more.
func podsBinding(namespace string, tenant *v1alpha1.Tenant, who rbacv1.Subject) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ConsumerPodsRole,
			Labels: map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: tenant.Name}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: v1alpha1.ConsumerPodsRole},
		Subjects: []rbacv1.Subject{who},
	}
}

// apply makes a RoleBinding as it is given, whoever made one of its name.
func apply(ctx context.Context, c client.Client, b *rbacv1.RoleBinding) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	if err != nil {
		return fmt.Errorf("applying role binding %s: %w", b.Name, err)
	}
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("RoleBinding"))
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("giving the tenant its rights in %s: %w", b.Namespace, err)
	}
	return nil
}

// contains reports whether all of want is in have.
func contains(have, want map[string]string) bool {
	for key, value := range want {
		if have[key] != value {
			return false
		}
	}
	return true
}
