package tenant

import (
	"context"
	"errors"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/uuid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/internal/status"
)

// TestManager runs the controllers as a program does, with watches and a cache. The
// cache is kept to this test's tenant: others use the same server.
func TestManager(t *testing.T) {
	b := newManaged(t)
	ctx := t.Context()
	b.eventually("the tenant is ready", func() bool {
		tenant := b.tenant()
		return tenant != nil && status.IsTrue(tenant.Status.Conditions, v1alpha1.ConditionReady)
	})
	b.drop(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: b.space(), Name: v1alpha1.ConsumerRole}})
	b.eventually("the rights are back", func() bool {
		return get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{}) != nil
	})
	b.introduce()
	b.eventually("the consumer is known", func() bool { return b.tenant().Status.Cluster != nil })
	b.renew(time.Now())
	b.eventually("the heartbeat is seen", func() bool { return b.tenant().Status.LastContact != nil })

	shop := b.server.Namespace(t)
	mark := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop}}
	p := running(shop, "web", "", "250m")
	p.Spec.Containers[0].Image = "web"
	if err := b.c.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	if err := apply(ctx, b.c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shop, Labels: childLabels(b.tenant())}}); err != nil {
		t.Fatal(err)
	}
	b.eventually("the pod counts", func() bool { return sameList(b.tenant().Status.Used, amounts("cpu", "250m", "pods", "1")) })

	begin := time.Now()
	b.identityGoodbye()
	b.eventually("the tenant is gone", func() bool { return b.tenant() == nil })
	t.Logf("gone %v after the goodbye", time.Since(begin).Round(time.Millisecond))
	if got := get(b, "", mark.Name, &corev1.Namespace{}); got != nil && got.DeletionTimestamp == nil {
		t.Error("its namespace stays")
	}
}

func newManaged(t *testing.T) *bench {
	t.Helper()
	server := kubetest.Server(t)
	b := &bench{t: t, server: server, c: server.Client(t), name: server.Name(t, "rome")}
	named := func(name string) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name)}
	}
	objects := maps.Clone(Cache())
	objects[&v1alpha1.Tenant{}] = named(b.name)
	objects[&v1alpha1.Invitation{}] = named(b.name)
	objects[&v1alpha1.Identity{}] = cache.ByObject{Namespaces: map[string]cache.Config{b.space(): {}}}
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: kubetest.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cache.Options{ByObject: objects},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Register(mgr, Options{QuotaGrace: -time.Hour}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("the manager: %v", err)
		}
		b.clean()
	})
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: b.name},
		Spec: v1alpha1.TenantSpec{ClusterID: string(uuid.NewUUID()), PeeringUID: string(uuid.NewUUID())}}
	if err := b.c.Create(t.Context(), client.Object(tenant)); err != nil {
		t.Fatal(err)
	}
	return b
}

// eventually polls until something is so.
func (b *bench) eventually(what string, is func() bool) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			b.t.Fatalf("waiting until %s: too long; the tenant is %+v", what, b.tenant())
		case <-tick.C:
		}
	}
}
