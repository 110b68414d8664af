package peering

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

// TestProvide mirrors a Tenant, and ends it with the Peering.
func TestProvide(t *testing.T) {
	s := newStage(t)
	tenant := &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Finalizers: []string{v1alpha1.FinalizerTenant}},
		Spec:       v1alpha1.TenantSpec{ClusterID: s.auth.clusterID, PeeringUID: remoteID},
	}
	if err := s.client.Create(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.free(tenant) })
	p := &v1alpha1.Peering{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec:       v1alpha1.PeeringSpec{ClusterID: s.auth.clusterID, Provide: &v1alpha1.Provide{Tenant: s.name}},
	}
	if err := s.client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	s.until("it waits", has(v1alpha1.ConditionReady, v1alpha1.ReasonPending))
	before := tenant.DeepCopy()
	status.True(&tenant.Status.Conditions, 1, v1alpha1.ConditionReady, v1alpha1.ReasonReady, "")
	status.True(&tenant.Status.Conditions, 1, v1alpha1.ConditionConsumerAlive, v1alpha1.ReasonReady, "")
	now := metav1.Now()
	tenant.Status.LastContact = &now
	tenant.Status.Cluster = &v1alpha1.ClusterInfo{ID: s.auth.clusterID, Name: "athens", Features: []string{"peering/v1"}}
	if err := s.client.Status().Patch(t.Context(), tenant, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	p = s.until("it is ready", ready)
	if p.Status.Remote == nil || p.Status.Remote.Name != "athens" || p.Status.LastContact == nil || p.Status.Roles[0] != v1alpha1.RoleProvider {
		t.Errorf("status %+v", p.Status)
	}
	version := p.ResourceVersion
	s.reconcile()
	if p = s.peering(); p.ResourceVersion != version {
		t.Error("a second look wrote something")
	}
	p.Annotations = map[string]string{v1alpha1.AnnotationForce: "true"}
	if err := s.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	s.delete(p)
	s.until("the tenant is told", func(*v1alpha1.Peering) bool {
		return s.exists(tenant) && tenant.DeletionTimestamp != nil && forced(tenant)
	})
	if s.peering() == nil {
		t.Fatal("it did not wait for its tenant")
	}
	s.free(tenant)
	s.until("it is gone", gone)
}

// TestEvictLeavesTheNext holds that what the cache shows of an end ends no Tenant that came
// after it.
func TestEvictLeavesTheNext(t *testing.T) {
	for reason, c := range map[string]struct {
		cached func(*v1alpha1.Peering)
		live   func(*v1alpha1.Peering) // what has come of it since; nil if it is gone
	}{
		"its Peering is gone": {func(p *v1alpha1.Peering) { p.DeletionTimestamp = new(metav1.Now()) }, nil},
		"nothing is left to evict": {
			func(p *v1alpha1.Peering) { p.DeletionTimestamp = new(metav1.Now()) },
			func(p *v1alpha1.Peering) { p.Finalizers = nil },
		},
		"its Peering provides again": {func(p *v1alpha1.Peering) { p.Spec.Provide = nil }, func(*v1alpha1.Peering) {}},
	} {
		t.Run(reason, func(t *testing.T) {
			s := newStage(t)
			p := &v1alpha1.Peering{
				ObjectMeta: metav1.ObjectMeta{Name: s.name},
				Spec:       v1alpha1.PeeringSpec{ClusterID: s.auth.clusterID, Provide: &v1alpha1.Provide{Tenant: s.name}},
			}
			if err := s.client.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			cached := s.until("it waits", has(v1alpha1.ConditionTenantReady, v1alpha1.ReasonWaiting))
			c.cached(cached)
			if c.live == nil {
				s.dropPeering()
			} else {
				p = s.peering()
				c.live(p)
				if err := s.client.Update(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
			next := &v1alpha1.Tenant{
				ObjectMeta: metav1.ObjectMeta{Name: s.name, Finalizers: []string{v1alpha1.FinalizerTenant}},
				Spec:       v1alpha1.TenantSpec{ClusterID: s.auth.clusterID, PeeringUID: remoteID},
			}
			if err := s.client.Create(t.Context(), next); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.free(next) })
			s.r.client = interceptor.NewClient(s.client, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
					if p, is := obj.(*v1alpha1.Peering); is {
						cached.DeepCopyInto(p)
						return nil
					}
					return c.Get(ctx, key, obj, opts...)
				},
			})
			if _, err := s.reconcile(); err != nil {
				t.Fatal(err)
			}
			if !s.exists(next) || next.DeletionTimestamp != nil {
				t.Error("the next Tenant goes with the peering before it")
			}
		})
	}
}
