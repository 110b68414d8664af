package tenant

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// drains is a Drainer that does what it is told when a tenant ends.
type drains func()

func (d drains) Drain(_ context.Context, t *v1alpha1.Tenant) error {
	if t.DeletionTimestamp != nil {
		d()
	}
	return nil
}

// arm gives the manager its rights in a mapped namespace, and armed says whether it has them.
func (b *bench) arm(namespace string) {
	b.t.Helper()
	own := binding(b.tenant(), managerBinding, "pelago-manager-mapped", rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.SystemNamespace, Name: "pelago-manager"})
	own.Namespace = namespace
	if err := b.c.Create(b.t.Context(), own); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) armed(namespace string) bool {
	b.t.Helper()
	return get(b, namespace, managerBinding, &rbacv1.RoleBinding{}) != nil
}

// claim makes a volume claim in a mapped namespace.
func (b *bench) claim(namespace string) {
	b.t.Helper()
	err := b.c.Create(b.t.Context(), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}})
	if err != nil {
		b.t.Fatal(err)
	}
}

// TestDisarmAfterCrash: the manager's rights go though it dies when it has handed the namespace over.
func TestDisarmAfterCrash(t *testing.T) {
	t.Parallel()
	b := peered(t)
	space := "shop-" + b.name
	b.claim(space)
	b.arm(space)
	dead := errors.New("the process has died")
	b.restart(interceptor.NewClient(b.c, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.DeleteOption) error {
			if obj.GetName() == managerBinding {
				return dead
			}
			return c.Delete(ctx, obj, o...)
		},
	}))
	b.identityGoodbye()
	b.reconcile()
	if _, err := b.Reconcile(t.Context(), request(b.name)); !errors.Is(err, dead) {
		t.Fatal(err)
	}
	if n := get(b, "", space, &corev1.Namespace{}); n.Labels[v1alpha1.LabelTenant] != "" || !b.armed(space) {
		t.Fatalf("%v: it has not died where it should", n.Labels)
	}
	b.restart(b.c)
	b.reconcile()
	if b.armed(space) {
		t.Error("the manager keeps its rights for ever")
	}
}

// tardy is a Drainer that has more to do than there is time for, so many times.
type tardy struct{ looks int }

func (d *tardy) Drain(ctx context.Context, _ *v1alpha1.Tenant) error {
	if d.looks--; d.looks < 0 {
		return nil
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestDrainersTakeTheirTime: who has much to remove is not given up for that, and holds up nobody who has something
// to remove as well.
func TestDrainersTakeTheirTime(t *testing.T) {
	t.Parallel()
	b := peered(t)
	next := 0
	b.drainers = []Drainer{&tardy{looks: 1}, drains(func() { next++ })}
	b.identityGoodbye()
	b.reconcile()
	b.step(giveUpAfter + time.Minute)
	if _, err := b.Reconcile(t.Context(), request(b.name)); err == nil || b.tenant() == nil || b.said("LeftBehind") {
		t.Fatalf("%v: it is given up though each look brings it on", err)
	}
	if next != 1 {
		t.Error("the next one waits for the first")
	}
	b.reconcile()
	if b.said("LeftBehind") {
		t.Error("something is said to be left")
	}
	b.wantNothingLeft()
}
