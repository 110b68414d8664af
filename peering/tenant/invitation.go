package tenant

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// expiredFor is how long an invitation is kept after it has expired, so that people
// can see why it was refused.
const expiredFor = time.Hour

// invitations removes Invitations that are good for nothing any more.
type invitations struct {
	client client.Client
	live   client.Reader // reads past the cache
	clock  clock.PassiveClock
	// tunnels is Options.Tunnels.
	tunnels Tunnels
}

// tunnelEvery is how often is looked whether a tenant has a tunnel of its own.
const tunnelEvery = 5 * time.Second

// Reconcile looks at one Invitation.
func (g *invitations) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, reconcileLimit)
	defer cancel()
	i, err := read(ctx, g.client, "", req.Name, &v1alpha1.Invitation{})
	if err != nil || i == nil || i.DeletionTimestamp != nil {
		return ctrl.Result{}, err
	}
	var t *v1alpha1.Tenant
	if i.Status.Tenant != "" {
		// Past the cache: it may not have heard of the Tenant yet.
		if t, err = read(ctx, g.live, "", i.Status.Tenant, &v1alpha1.Tenant{}); err != nil {
			return ctrl.Result{}, err
		}
	}
	led := false
	if g.tunnels != nil && i.Spec.InBand != nil && t != nil {
		led, _ = g.tunnels.TenantAlive(t.Name)
	}
	void, wait := spent(i, t, led, g.clock.Now())
	if void {
		// As it was read: it may have been freed since.
		err := g.client.Delete(ctx, i, client.Preconditions{UID: &i.UID, ResourceVersion: &i.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			return again(fmt.Errorf("deleting invitation %s: %w", i.Name, err))
		}
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: wait}, nil
}

// spent says whether an invitation is good for nothing any more, and otherwise when
// time alone may make it so. t is the Tenant of the name in its status, if there is one. In band
// it is the consumer's way until the tunnel of the tenant itself has led here, and no longer than others.
func spent(i *v1alpha1.Invitation, t *v1alpha1.Tenant, led bool, now time.Time) (bool, time.Duration) {
	wait := i.Spec.Expires.Add(expiredFor).Sub(now)
	if i.Spec.InBand != nil && t != nil && i.Status.TenantUID == string(t.UID) {
		if led || wait <= 0 { // keys of that tunnel came by the consumer's credential
			return true, 0
		}
		return false, min(wait, tunnelEvery)
	}
	if wait <= 0 {
		return true, 0
	}
	if i.Status.TenantUID == "" {
		return false, wait
	}
	if t == nil || string(t.UID) != i.Status.TenantUID {
		return true, 0
	}
	// Who has been in contact holds a credential and needs no invitation to ask again.
	used := i.Status.BoundTo
	if used != nil && t.Status.LastContact != nil && t.Status.LastContact.After(used.Time.Time) {
		return true, 0
	}
	return false, wait
}
