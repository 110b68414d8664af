package tenant

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestEndTooSlow holds that nothing is left behind because a look was over before its work was, and
// that what never answers holds nothing else up for good.
func TestEndTooSlow(t *testing.T) {
	t.Parallel()
	b := peered(t)
	var silent atomic.Bool
	b.restart(interceptor.NewClient(b.c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
			if _, ok := list.(*corev1.PersistentVolumeClaimList); ok && silent.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return c.List(ctx, list, o...)
		},
	}))
	b.limit = 6 * time.Second
	silent.Store(true)
	b.identityGoodbye()
	b.well(0)
	b.step(giveUpAfter + time.Minute)
	if _, err := b.Reconcile(t.Context(), request(b.name)); err == nil || b.tenant() == nil || b.said("LeftBehind") {
		t.Fatalf("%v: the tenant is given up as the look was over", err)
	}
	b.step(giveUpSlow)
	if _, err := b.Reconcile(t.Context(), request(b.name)); err == nil || b.tenant() == nil || b.said("LeftBehind") {
		t.Fatalf("%v: the tenant is given up as one look was over after a long time", err)
	}
	b.well(giveUpAfter)
	if !b.said("LeftBehind could not remove its namespaces") {
		t.Error("no event says what was left behind")
	}
	if left := b.left(); len(left) != 1 || left[0] != "namespace" {
		t.Errorf("left behind: %v, want what did not answer alone", left)
	}
}
