package tenant

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// refusedFor is how long a Tenant stays whose name was refused before it had an
// Identity, so that people can see why.
const refusedFor = time.Minute

// refusedSince says since when the name of a Tenant is refused; zero if it is not.
func refusedSince(t *v1alpha1.Tenant) time.Time {
	for _, kind := range []string{v1alpha1.ConditionNamespaceReady, v1alpha1.ConditionRightsReady} {
		c := meta.FindStatusCondition(t.Status.Conditions, kind)
		if c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonNameRefused {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}

// turnAway deletes a Tenant that an invitation made and that cannot be, before anybody
// was given anything. The authentication endpoint frees the invitation first, which
// would otherwise be void with its Tenant.
func (r *reconciler) turnAway(ctx context.Context, t *v1alpha1.Tenant, f *facts, next *timer) (bool, error) {
	since := refusedSince(t)
	if since.IsZero() || t.Annotations[v1alpha1.AnnotationInvitation] == "" || t.Status.Cluster != nil || f.identity != nil {
		return false, nil
	}
	if wait := refusedFor - r.clock.Since(since); wait > 0 {
		next.in(wait)
		return false, nil
	}
	there, err := identity(ctx, r.live, t)
	if err != nil || there != nil {
		return false, err
	}
	i, err := r.invitation(ctx, t)
	if err != nil {
		return false, err
	}
	if i != nil && i.Status.TenantUID == string(t.UID) {
		next.in(foreignDelay)
		return false, nil
	}
	r.note(t, v1alpha1.ReasonNameRefused, "Delete", "the name was refused and nobody uses the tenant; removing it")
	return true, r.delete(ctx, t)
}
