package tenant

import (
	"context"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestEndLeavesNothingToEvict holds that no Peering waits for the Tenants of its cluster to
// go when its own has ended: they are of the next peering.
func TestEndLeavesNothingToEvict(t *testing.T) {
	t.Parallel()
	consume := &v1alpha1.Consume{AuthURL: "https://rome:8443", CASHA256: strings.Repeat("a", 64)}
	for reason, c := range map[string]struct {
		consume   *v1alpha1.Consume
		takenOut  bool // the owner has taken spec.provide out
		wantThere bool
	}{
		"in one direction":        {},
		"in both":                 {consume: consume, wantThere: true},
		"in both, ended by owner": {consume: consume, takenOut: true, wantThere: true},
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.settle()
			p := get(b, "", b.name, &v1alpha1.Peering{})
			p.Finalizers = []string{v1alpha1.FinalizerProvide}
			if p.Spec.Consume = c.consume; c.takenOut {
				p.Spec.Provide = nil
			}
			if err := b.c.Update(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { b.c.Delete(context.Background(), p) })
			b.drop(&v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: b.name}})
			b.reconcile()
			if b.tenant() != nil {
				t.Fatal("the tenant does not go")
			}
			got := get(b, "", b.name, &v1alpha1.Peering{})
			if (got != nil) != c.wantThere {
				t.Fatalf("the peering is %+v", got)
			}
			if got != nil && (got.Spec.Provide != nil || slices.Contains(got.Finalizers, v1alpha1.FinalizerProvide)) {
				t.Errorf("the peering provides to %v and has %v", got.Spec.Provide, got.Finalizers)
			}
		})
	}
}

// TestPeeringOfAnotherClusterGoes holds that a name is waited for whose Peering is being
// removed, as of a cluster that was built anew, and that nothing is given before.
func TestPeeringOfAnotherClusterGoes(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other := b.peering()
	other.Finalizers = []string{v1alpha1.FinalizerConsume}
	other.Spec = v1alpha1.PeeringSpec{ClusterID: osloID, Consume: &v1alpha1.Consume{AuthURL: "https://rome:8443", CASHA256: strings.Repeat("a", 64)}}
	if err := b.c.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	b.drop(other)
	b.settle()
	b.want(v1alpha1.ConditionRightsReady, metav1.ConditionFalse, v1alpha1.ReasonWaiting)
	b.want(v1alpha1.ConditionStalled, "", "")
	if c := b.condition(v1alpha1.ConditionRightsReady); !strings.Contains(c.Message, "pelago unpeer "+b.name+" --force") {
		t.Errorf("the owner is told %q, want how to end it", c.Message)
	}
	if get(b, b.space(), v1alpha1.ConsumerRole, &rbacv1.RoleBinding{}) != nil {
		t.Error("rights for a tenant that nobody sees")
	}
	if err := b.c.Patch(t.Context(), other, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		t.Fatal(err)
	}
	b.settle()
	b.want(v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}
