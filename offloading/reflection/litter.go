package reflection

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// litterEvery is how often is looked for parts that belong to nothing, litterMost how many go at one look.
	litterEvery, litterMost = 10 * time.Minute, 100
)

// litter deletes parts at providers that no first one counts, a minute after they were seen so: a process died, or could
// not delete them. Its requests are peerings.
type litter struct {
	fleet Fleet
	clock clock.PassiveClock
	meter *meter
	// seen is since when, by peering and UID; one worker has it.
	seen map[string]map[types.UID]time.Time
}

// Reconcile looks at all that one provider shows.
func (r *litter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	peer, ok := r.fleet.Peer(req.Name)
	if !ok || !peer.State().Reachable { // its connection brings us back
		delete(r.seen, req.Name)
		return ctrl.Result{}, nil
	}
	list := &v1alpha1.ShadowObjectList{}
	if err := peer.Reader().List(ctx, list); err != nil {
		return ctrl.Result{RequeueAfter: time.Minute}, nil // not read from the provider yet
	}
	now, before, seen := r.clock.Now(), r.seen[req.Name], map[types.UID]time.Time{}
	deleted := 0
	for _, s := range litterOf(list.Items) {
		since, known := before[s.UID]
		if !known || since.After(now) {
			since = now
		}
		seen[s.UID] = since
		if now.Sub(since) < grace || deleted == litterMost || counted(ctx, peer, s) {
			continue
		}
		deleted++
		r.meter.calls.WithLabelValues("delete").Inc()
		err := peer.Client().Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return ctrl.Result{}, plain("deleting a part of no shadow object", err)
		}
	}
	r.seen[req.Name] = seen
	if len(seen) > 0 {
		return ctrl.Result{RequeueAfter: grace}, nil
	}
	return ctrl.Result{RequeueAfter: spread(litterEvery)}, nil
}

// counted says whether a part has a first one that counts it, or that cannot be said: a list may leave out what there
// is no room for.
func counted(ctx context.Context, peer Peer, s *v1alpha1.ShadowObject) bool {
	name, number := v1alpha1.ShadowObjectOf(s.Name)
	first := &v1alpha1.ShadowObject{}
	err := peer.Reader().Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, first)
	return err == nil && number < int(first.Spec.Parts) || client.IgnoreNotFound(err) != nil
}

// litterOf are the parts that no first one counts.
func litterOf(all []v1alpha1.ShadowObject) (parts []*v1alpha1.ShadowObject) {
	counts := map[string]int{}
	for i := range all {
		if _, number := v1alpha1.ShadowObjectOf(all[i].Name); number == 0 {
			counts[all[i].Name] = int(all[i].Spec.Parts)
		}
	}
	for i := range all {
		if whole, number := v1alpha1.ShadowObjectOf(all[i].Name); number > 0 && number >= counts[whole] {
			parts = append(parts, &all[i])
		}
	}
	return parts
}
