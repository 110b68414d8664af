package tenant

import (
	"context"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestElder: two Tenants of one cluster, or of one user, were made at the same time, and
// the cache shows the Peering of neither. The older one has rights; the other one none,
// until the older one has gone.
func TestElder(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(b, a *v1alpha1.TenantSpec){
		"cluster": func(b, a *v1alpha1.TenantSpec) { b.ClusterID = a.ClusterID },
		"user":    func(b, a *v1alpha1.TenantSpec) { b.PeeringUID = a.PeeringUID },
	} {
		a := newBench(t)
		first := a.tenant()
		b := newBench(t, func(t *v1alpha1.Tenant) {
			change(&t.Spec, &first.Spec)
			t.Name = "z" + t.Name // the second one also where both are of one second
			t.Annotations = map[string]string{v1alpha1.AnnotationInvitation: "i-1"}
		})
		b.name = "z" + b.name
		for _, one := range []*bench{b, a} {
			one.reconciler.client = interceptor.NewClient(one.c, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
					if _, is := list.(*v1alpha1.PeeringList); is {
						return nil // it has not heard of any
					}
					return c.List(ctx, list, o...)
				},
			})
			one.reconcile()
			one.reconcile()
		}
		if get(a, a.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{}) == nil {
			t.Errorf("%s: the older tenant has no rights", what)
		}
		if get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{}) != nil || get(b, "", b.name, &v1alpha1.Peering{}) != nil {
			t.Errorf("%s: the second tenant has rights, or a Peering", what)
		}
		b.want(v1alpha1.ConditionRightsReady, metav1.ConditionFalse, v1alpha1.ReasonNameRefused)
		if what == "user" {
			a.drop(first)
			a.reconcile()
			if a.tenant() != nil {
				t.Fatal("the older tenant does not go")
			}
			b.restart(b.c)
			b.settle()
			b.want(v1alpha1.ConditionRightsReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
			continue
		}
		b.step(refusedFor + time.Minute)
		b.reconcile()
		if b.tenant().DeletionTimestamp == nil {
			t.Errorf("%s: the second tenant is not turned away", what)
		}
	}
}

// TestElderHasRights holds that of two Tenants of one second the one that has rights keeps
// them alone, also where the name of the other one comes first.
func TestElderHasRights(t *testing.T) {
	t.Parallel()
	z := newBench(t, func(t *v1alpha1.Tenant) { t.Name = "z" + t.Name })
	z.name = "z" + z.name
	z.settle()
	z.want(v1alpha1.ConditionRightsReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
	first := z.tenant()
	a := newBench(t, func(t *v1alpha1.Tenant) { t.Spec.PeeringUID = first.Spec.PeeringUID })
	a.reconciler.live = interceptor.NewClient(a.c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			err := c.List(ctx, list, o...)
			if all, is := list.(*v1alpha1.TenantList); is { // both were made in one second
				for i := range all.Items {
					all.Items[i].CreationTimestamp = a.tenant().CreationTimestamp
				}
			}
			return err
		},
	})
	a.reconcile()
	a.reconcile()
	if get(a, a.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{}) != nil {
		t.Error("two tenants of one user have rights")
	}
	a.want(v1alpha1.ConditionRightsReady, metav1.ConditionFalse, v1alpha1.ReasonNameRefused)
	z.settle()
	z.want(v1alpha1.ConditionRightsReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}
