package peering

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestHandshake goes from an invitation to Ready against a real API server with a
// certificate it believes, and looks at all that came of it.
func TestHandshake(t *testing.T) {
	s := newStage(t)
	p := s.peer()

	if s.exists(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "invitation"}}) {
		t.Error("the used token is still there")
	}
	secret, cred := s.credential()
	if secret.Labels[v1alpha1.LabelPeering] != s.name || secret.Labels[v1alpha1.LabelManagedBy] == "" {
		t.Errorf("labels of the credential: %v", secret.Labels)
	}
	if len(s.auth.keys) != 1 || !s.auth.keys[string(cred.Request)] {
		t.Errorf("%d keys were introduced, want the one that is stored", len(s.auth.keys))
	}
	if diff := cmp.Diff([]v1alpha1.Role{v1alpha1.RoleConsumer}, p.Status.Roles); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"offers/v1", "peering/v1"}, p.Status.Features); diff != "" {
		t.Errorf("features: what both know: %s", diff)
	}
	st := p.Status
	if st.Remote == nil || st.Remote.Name != "milan" || st.TenantNamespace != s.tenant || st.ServerURL == "" || st.Credential == nil || st.LastContact == nil {
		t.Errorf("status is not complete: %+v", st)
	}
	if st.ObservedGeneration != p.Generation {
		t.Errorf("observed generation %d, want %d", st.ObservedGeneration, p.Generation)
	}
	for _, c := range st.Conditions {
		if c.Status != metav1.ConditionTrue || c.Type == v1alpha1.ConditionStalled || c.Type == v1alpha1.ConditionReconciling {
			t.Errorf("condition %s %s %s", c.Type, c.Status, c.Reason)
		}
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: v1alpha1.IdentityName}}
	if !s.exists(lease) || lease.Spec.RenewTime == nil {
		t.Error("no heartbeat")
	}
	identity := s.identity()
	if !s.exists(identity) || identity.Spec.Cluster.Version != "v0.3.0" {
		t.Errorf("the provider knows version %q of this cluster", identity.Spec.Cluster.Version)
	}
	text, _ := json.Marshal(p)
	s.secrets(cred, text, []byte(strings.Join(s.events(), "\n")), []byte(strings.Join(s.logs, "\n")))
}

// TestSteady holds that a peering that is as it should be writes nothing.
func TestSteady(t *testing.T) {
	s := newStage(t)
	p := s.peer()
	secret, _ := s.credential()
	for range 3 {
		if res, err := s.reconcile(); err != nil || res.RequeueAfter < 30*time.Second {
			t.Fatalf("result %v, %v; want nothing to do for a while", res, err)
		}
	}
	again, _ := s.credential()
	if now := s.peering(); now.ResourceVersion != p.ResourceVersion || again.ResourceVersion != secret.ResourceVersion {
		t.Errorf("something was written: %s", cmp.Diff(p, now))
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: v1alpha1.IdentityName}}
	s.exists(lease)
	first := lease.Spec.RenewTime.Time
	s.clock.SetTime(s.clock.Now().Add(time.Minute))
	s.reconcile()
	if s.exists(lease); lease.Spec.RenewTime.Sub(first) < 50*time.Second {
		t.Errorf("heartbeat at %s after one at %s", lease.Spec.RenewTime, first)
	}
}
