package tenant

import (
	"context"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
