package namespace

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// unnamed has the provider's writes refused as the policy pelago-manager-security does where
// the chart's values name no tenant: no namespace becomes privileged.
func (w *world) unnamed() {
	const enforce = "pod-security.kubernetes.io/enforce"
	refused := func(obj client.Object) error {
		n, ok := obj.(*corev1.Namespace)
		if !ok || n.Labels[enforce] != "privileged" {
			return nil
		}
		if have, err := read(ctx, w.raw, "", n.Name, &corev1.Namespace{}); err != nil || have != nil && have.Labels[enforce] == "privileged" {
			return err
		}
		return apierrors.NewForbidden(corev1.Resource("namespaces"), n.Name, context.Canceled)
	}
	w.provider.client = interceptor.NewClient(w.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if err := refused(obj); err != nil {
				return err
			}
			return c.Create(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := refused(obj); err != nil {
				return err
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
	})
}

// TestLevelRefused: a tenant that is privileged in its Tenant alone keeps the namespaces that
// it has, and gets rid of them; of the new ones that it does not get it is said why.
func TestLevelRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	w.knows(milan, v1alpha1.FeatureOnward)
	w.offload(v1alpha1.NamespaceOffloadingSpec{Onward: v1alpha1.OnwardAllow})
	w.settle()
	w.unnamed()
	w.patch(w.tenant(milan), "spec", map[string]any{"podSecurity": "privileged"})
	n := w.remote(milan)
	before := n.DeepCopy()
	n.Labels[v1alpha1.LabelOriginNamespace] = "not-asked-for"
	if err := w.raw.Patch(ctx, n, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	looks := func() {
		for range 6 {
			_ = w.look() // what fails is said
		}
	}
	looks()
	says := func() v1alpha1.MappedNamespace {
		m := get(w, v1alpha1.TenantNamespace(milan), v1alpha1.NamespaceMapName, &v1alpha1.NamespaceMap{})
		return m.Status.Namespaces[w.home]
	}
	if said := says(); said.Phase != v1alpha1.MappingReady || !strings.Contains(said.Message, "tenants.privileged") || len(said.Message) > maxMessage {
		t.Errorf("the provider says %+v", said)
	}
	if l := w.remote(milan).Labels; l["pod-security.kubernetes.io/enforce"] != "baseline" || l[v1alpha1.LabelOriginNamespace] != "" {
		t.Errorf("the namespace has the labels %v", l)
	}
	if w.says()["phase"] != "Ready" {
		t.Errorf("at home: %v", w.says())
	}
	if w.remote(milan).Labels[v1alpha1.LabelOnward] == "" {
		t.Error("there is no leave to take away")
	}
	w.patch(w.tenant(milan), "spec", map[string]any{"state": "Drained"})
	looks()
	if there(w.remote(milan)) || get(w, n.Name, v1alpha1.ConsumerPodsRole, &rbacv1.RoleBinding{}) != nil {
		t.Error("a namespace that is not wanted stays, or the rights in it")
	}
	w.end(n.Name)
	w.patch(w.tenant(milan), "spec", map[string]any{"state": nil})
	looks()
	if said := says(); said.Phase != v1alpha1.MappingPending || !strings.Contains(said.Message, "tenants.privileged") {
		t.Errorf("of a new one the provider says %+v", said)
	}
}
