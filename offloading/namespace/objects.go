package namespace

import (
	"cmp"
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// fieldOwner is who owns the fields that this package applies.
const fieldOwner = client.FieldOwner("pelago-namespace")

// mappedNamespace is the namespace of a tenant for one of its namespaces at home, as its
// entry asks for it.
func mappedNamespace(name, home string, entry v1alpha1.NamespaceMapping, tenant *v1alpha1.Tenant) *corev1.Namespace {
	level := string(cmp.Or(tenant.Spec.PodSecurity, v1alpha1.PodSecurityBaseline))
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		v1alpha1.LabelManagedBy:                      component,
		v1alpha1.LabelTenant:                         tenant.Name,
		v1alpha1.LabelHomeNamespace:                  home,
		"pod-security.kubernetes.io/enforce":         level,
		"pod-security.kubernetes.io/enforce-version": "latest",
		"pod-security.kubernetes.io/warn":            level,
		"pod-security.kubernetes.io/warn-version":    "latest",
	}}}
	maps.Copy(n.Labels, labelsOf(entry))
	return n
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

// What the manager itself may do with Secrets, only in namespaces that are offloaded or
// mapped: it binds itself there to these ClusterRoles, and nowhere else.
const (
	managerBinding    = "pelago-manager"
	managerHomeRole   = "pelago-manager-home"
	managerMappedRole = "pelago-manager-mapped"
	// managerTokensRole is the ClusterRole, and the RoleBinding to it, where tokens of
	// service accounts travel.
	managerTokensRole = "pelago-manager-tokens"
)

// +kubebuilder:rbac:groups=rbac.authorization.k8s.io,resources=clusterroles,resourceNames=pelago-manager-home;pelago-manager-mapped;pelago-manager-tokens,verbs=bind

// ownBinding gives the manager of the namespace system a role in another namespace.
func ownBinding(namespace, role, system string, labels map[string]string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: managerBinding, Labels: labels},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: system, Name: "pelago-manager"}},
	}
}

// homeBinding lets the manager read and list Secrets of a namespace that is offloaded.
func homeBinding(namespace, system string) *rbacv1.RoleBinding {
	return ownBinding(namespace, managerHomeRole, system, map[string]string{v1alpha1.LabelManagedBy: component})
}

// tokensBinding lets the manager mint tokens of the service accounts of a namespace.
func tokensBinding(namespace, system string) *rbacv1.RoleBinding {
	b := homeBinding(namespace, system)
	b.Name, b.RoleRef.Name = managerTokensRole, managerTokensRole
	return b
}

// own says whether a RoleBinding is one that the manager has given itself at home.
func own(b *rbacv1.RoleBinding) bool {
	return b != nil && b.Labels[v1alpha1.LabelManagedBy] == component && b.Labels[v1alpha1.LabelTenant] == ""
}

// mappedBinding lets the manager make the Secrets of a tenant in a mapped namespace.
func mappedBinding(namespace string, tenant *v1alpha1.Tenant, system string) *rbacv1.RoleBinding {
	return ownBinding(namespace, managerMappedRole, system,
		map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: tenant.Name})
}

// isAs says whether a RoleBinding gives what another one does.
func isAs(have, want *rbacv1.RoleBinding) bool {
	return have != nil && have.RoleRef == want.RoleRef && equality.Semantic.DeepEqual(have.Subjects, want.Subjects) && contains(have.Labels, want.Labels)
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
		return fmt.Errorf("giving rights in %s: %w", b.Namespace, err)
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
