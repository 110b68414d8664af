package cli

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestTenantVerbs(t *testing.T) {
	s := newStage(t, 0)
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: v1alpha1.TenantSpec{ClusterID: id2, PeeringUID: id2}}
	offer := &v1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Namespace: "pelago-tenant-rome", Name: "default"},
		Spec: v1alpha1.ResourceOfferSpec{Expires: metav1.Now(), Resources: v1alpha1.ResourceList{}}}
	s.create(tenant)
	s.c.Create(t.Context(), newNamespace("pelago-tenant-rome"))
	s.create(offer)
	if got := s.run("cordon", "tenant", "rome", "--timeout", "1s"); got.code != 1 || !strings.Contains(got.err, "waiting for pelago-manager") {
		t.Errorf("without a manager: %+v", got)
	}
	rounds := 0
	s.play(func(ctx context.Context) {
		current := &v1alpha1.Tenant{}
		if s.c.Get(ctx, client.ObjectKeyFromObject(tenant), current) != nil {
			return
		}
		current.Status.ObservedGeneration = current.Generation
		current.Status.Used = v1alpha1.ResourceList{"pods": resource.MustParse("3")}
		if current.Spec.State == v1alpha1.TenantDrained {
			if rounds++; rounds > 10 {
				current.Status.Used = v1alpha1.ResourceList{"pods": resource.MustParse("0")}
			}
			if rounds > 20 {
				s.c.Delete(ctx, offer)
			}
		}
		s.c.Status().Update(ctx, current)
	})
	state := func() v1alpha1.TenantState {
		current := &v1alpha1.Tenant{}
		if err := s.c.Get(t.Context(), client.ObjectKeyFromObject(tenant), current); err != nil {
			t.Fatal(err)
		}
		return current.Spec.State
	}
	if got := s.run("cordon", "tenant", id2); got.code != 0 || !strings.Contains(got.out, "Tenant rome is cordoned") || state() != v1alpha1.TenantCordoned {
		t.Errorf("cordon: %+v, %s", got, state())
	}
	if got := s.run("activate", "tenant", "rome"); got.code != 0 || got.out != "Tenant rome is active.\n" || state() != v1alpha1.TenantActive {
		t.Errorf("activate: %+v, %s", got, state())
	}
	got := s.run("drain", "tenant", "rome")
	if got.code != 0 || !strings.Contains(got.err, "still uses 3 pods") || !strings.Contains(got.out, "is drained") || state() != v1alpha1.TenantDrained {
		t.Errorf("drain: %+v, %s", got, state())
	}
	if err := s.c.Get(t.Context(), client.ObjectKeyFromObject(offer), offer); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("drain returned before the offer was gone: %v", err)
	}
	if got := s.run("cordon", "tenant", "paris"); got.code != 1 || !strings.Contains(got.err, `no tenant "paris" here; there is rome`) {
		t.Errorf("a tenant there is not: %+v", got)
	}
	s.create(&v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "genoa"}, Spec: v1alpha1.PeeringSpec{ClusterID: id1,
		Consume: &v1alpha1.Consume{AuthURL: "https://genoa:1", CASHA256: hash}}})
	if got := s.run("cordon", "tenant", "genoa"); got.code != 1 || !strings.Contains(got.err, "genoa is a provider") || !strings.Contains(got.err, "pelago unpeer genoa") {
		t.Errorf("a provider is no tenant: %+v", got)
	}
	s.testCompletion(t)
	if got := s.run("__complete", "status", "-o", ""); !strings.HasPrefix(got.out, "json\nyaml\n") {
		t.Errorf("completing a format: %+v", got)
	}
}

// testCompletion asks as shells do.
func (s *stage) testCompletion(t *testing.T) {
	eventually(t, "it completes a tenant", func() bool { // nothing is said where a cluster is too slow
		return strings.HasPrefix(s.run("__complete", "cordon", "tenant", "").out, "rome\n")
	})
	begin := time.Now()
	dead := programWith(t.Context(), func(e *Env) {
		e.Connect = func(Access) (*Cluster, error) { return Connect(Access{Kubeconfig: blackhole(t)}) }
	}, "__complete", "unpeer", "")
	if d := cmp.Diff(":4\n", dead.out); d != "" || time.Since(begin) > completeLimit+10*time.Second {
		t.Errorf("completing without a cluster took %s (-want +got):\n%s", time.Since(begin), d)
	}
}
