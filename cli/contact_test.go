package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestLastContact holds that a link that broke seconds ago is not shown as one that broke a minute
// ago, nor one that is silent as one in contact.
func TestLastContact(t *testing.T) {
	unreachable := func(since time.Duration) metav1.Condition {
		c := isNot(v1alpha1.ConditionReachable, v1alpha1.ReasonPeerUnreachable, "")
		c.LastTransitionTime = at(since)
		return c
	}
	alive := is(v1alpha1.ConditionConsumerAlive)
	cases := []struct {
		reason    string
		provider  bool // this cluster is the provider
		last      time.Duration
		condition metav1.Condition
		heard     time.Duration // 0 is not known
		want      string
	}{
		{"it answers", false, -4 * time.Minute, is(v1alpha1.ConditionReachable), 0, "now"},
		{"it broke 20 s ago", false, -70 * time.Second, unreachable(-20 * time.Second), 0, "20s ago"},
		{"it broke long ago, and that was noticed late", false, -2 * time.Hour, unreachable(-time.Hour), 0, "119m ago"},
		{"what was noticed earlier than the last contact", false, -30 * time.Second, unreachable(-time.Minute), 0, "30s ago"},
		{"a consumer that was heard of", true, -70 * time.Second, alive, -30 * time.Second, "now"},
		{"a consumer that has been silent", true, -170 * time.Second, alive, -115 * time.Second, "1m ago"},
		{"a consumer of whose Lease nothing is known", true, -170 * time.Second, alive, 0, "now"},
		{"a consumer that says it will have been there", true, -time.Hour, isNot(v1alpha1.ConditionConsumerAlive, v1alpha1.ReasonSilent, ""), time.Hour, "0s ago"},
		{"a consumer that is not alive", true, -time.Hour, isNot(v1alpha1.ConditionConsumerAlive, v1alpha1.ReasonSilent, ""), -55 * time.Second, "55s ago"},
	}
	for _, c := range cases {
		s := &snapshot{heard: map[string]time.Time{}, deployments: []appsv1.Deployment{busy().deployments[1]}}
		p := v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
		p.Status = v1alpha1.PeeringStatus{LastContact: when(c.last), Conditions: []metav1.Condition{c.condition}}
		if c.heard != 0 {
			s.heard["milan"] = now.Add(c.heard)
		}
		if c.provider {
			p.Spec.Provide = &v1alpha1.Provide{Tenant: "milan"}
			tenant := v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "milan"}}
			tenant.Status = v1alpha1.TenantStatus{LastContact: p.Status.LastContact, Conditions: p.Status.Conditions}
			s.tenants = []v1alpha1.Tenant{tenant}
		}
		s.peerings = []v1alpha1.Peering{p}
		r := s.report(now)
		if got := contact(r.Peerings[0].InContact, r.Peerings[0].Contact, now, false); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
		if c.provider {
			if got := contact(r.Tenants[0].InContact, r.Tenants[0].Contact, now, false); got != c.want {
				t.Errorf("%s: the tenant: %q, want %q", c.reason, got, c.want)
			}
		}
		if err := (view{out: &bytes.Buffer{}, now: now}).report(r); err != nil {
			t.Error(err)
		}
	}
}

// TestHeartbeats reads a Lease from a server, which knows when it was renewed whatever the
// consumer's clock says.
func TestHeartbeats(t *testing.T) {
	s := newStage(t, 0)
	const tenant = "beating"
	s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.TenantNamespace(tenant)}})
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.TenantNamespace(tenant), Name: v1alpha1.IdentityName,
		Labels: map[string]string{v1alpha1.LabelTenant: tenant}}} // as Pelago makes it; of an object without any field nobody notes who writes it
	s.create(lease)
	c := &Cluster{Client: s.c}
	found := &snapshot{tenants: []v1alpha1.Tenant{{ObjectMeta: metav1.ObjectMeta{Name: tenant}}}}
	c.heartbeats(t.Context(), found)
	if !found.heard[tenant].IsZero() {
		t.Errorf("it was heard of at %s, and never was", found.heard[tenant])
	}
	before := time.Now().Add(-time.Second).Truncate(time.Second)
	patch := []byte(`{"spec":{"renewTime":"2001-01-01T00:00:00.000000Z"}}`)
	if err := s.c.Patch(t.Context(), lease, client.RawPatch(types.MergePatchType, patch)); err != nil {
		t.Fatal(err)
	}
	c.heartbeats(t.Context(), found)
	if at := found.heard[tenant]; at.Before(before) || at.After(time.Now()) {
		t.Errorf("it was heard of at %s, not since %s", at, before)
	}
	forged := lease.DeepCopy()
	forged.ManagedFields = nil
	if at := renewed(forged); !strings.HasPrefix(at.UTC().String(), "2001-01-01 00:00:00") {
		t.Errorf("without managed fields: %s", at)
	}
}
