package peering

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// beatEvery is how often the provider hears that this cluster is alive.
	beatEvery = time.Minute
	// beatAgain is when a heartbeat that failed is repeated.
	beatAgain = 5 * time.Second
)

// beat renews the Lease at the provider once a minute. Heartbeats of many peerings
// spread out by themselves. One that fails stops nothing.
func (r *reconciler) beat(ctx context.Context, v *visit) (bool, error) {
	var wait time.Duration
	r.memory.of(v.UID, func(m *recollection) { wait = max(0, m.beat.Add(m.interval).Sub(v.now)) })
	if wait > 0 {
		v.soon(wait)
		return true, nil
	}
	interval := beatEvery - time.Duration(r.jitter()*float64(beatEvery/10))
	if err := r.sendBeat(ctx, v); err != nil {
		interval = beatAgain
		ctrl.LoggerFrom(ctx).V(1).Info("heartbeat failed", "error", printable(err.Error()))
	}
	r.memory.of(v.UID, func(m *recollection) { m.beat, m.interval = v.now, interval })
	v.soon(interval)
	return true, nil
}

// sendBeat is one small request with a small answer.
func (r *reconciler) sendBeat(ctx context.Context, v *visit) error {
	only := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: v.peer.TenantNamespace(), Name: v1alpha1.IdentityName}}
	only.SetGroupVersionKind(coordinationv1.SchemeGroupVersion.WithKind("Lease"))
	patch := fmt.Appendf(nil, `{"spec":{"renewTime":%q}}`, v.now.UTC().Format(metav1.RFC3339Micro))
	if err := v.peer.Client().Patch(ctx, only, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("sending the heartbeat: %w", err)
	}
	return nil
}
