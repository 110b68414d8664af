package reflection

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
)

const (
	// maxShown is how many objects a NamespaceMap shows.
	maxShown = 64
	// maxShownAddresses is how many addresses it shows of each, so that all stay small; events tell more.
	maxShownAddresses = 4
	// showEvery bounds how often that is written, whatever a provider says.
	showEvery = 5 * time.Second
	// showAgain is when a NamespaceMap is looked at that is not there yet.
	showAgain = 10 * time.Second
	// learning is how long after its start, or after a provider answers again, a process does not
	// know all objects there yet, so that what was shown stays.
	learning = 2 * time.Minute
)

// shower writes into the NamespaceMap of each peering what the consumer knows of objects
// that the provider refuses, has otherwise or gives addresses: events about them are gone after an hour. Its
// requests are NamespaceMaps.
type shower struct {
	client client.Client
	live   client.Reader
	fleet  Fleet
	clock  clock.PassiveClock
	notes  *notes[note]
	began  time.Time
	wrote  *notes[time.Time]
}

func newShower(r *consumer) *shower {
	return &shower{client: r.client, live: r.live, fleet: r.fleet, clock: r.clock, notes: r.notes, wrote: newNotes[time.Time]()}
}

// +kubebuilder:rbac:groups=pelago.dev,resources=namespacemaps/status,verbs=patch

func mapKey(peering string) client.ObjectKey {
	return client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(peering), Name: v1alpha1.NamespaceMapName}
}

// Reconcile writes what is to be seen of one provider.
func (r *shower) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	now := r.clock.Now()
	if wait := showEvery - now.Sub(r.wrote.get(req.NamespacedName)); wait > 0 && wait <= showEvery {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if r.began.IsZero() {
		r.began = now
	}
	m := &v1alpha1.NamespaceMap{}
	switch err := r.live.Get(ctx, req.NamespacedName, m); {
	case apierrors.IsNotFound(err):
		r.wrote.forget(req.NamespacedName)
		if len(r.known(req.NamespacedName)) == 0 {
			return ctrl.Result{}, nil // a peering that is gone
		}
		return ctrl.Result{RequeueAfter: showAgain}, nil
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("reading the namespace map: %w", err)
	}
	again := r.learns(req.Namespace, now)
	objects, more := listed(r.known(req.NamespacedName), m.Status.Objects, again > 0)
	if again == 0 && len(objects) > 0 {
		again = spread(watchedEvery)
	}
	if equality.Semantic.DeepEqual(objects, m.Status.Objects) && more == m.Status.MoreObjects {
		return ctrl.Result{RequeueAfter: again}, nil
	}
	before := m.DeepCopy()
	m.Status.Objects, m.Status.MoreObjects = objects, more
	err := r.client.Status().Patch(ctx, m, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: soon}, nil
	} else if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("showing objects in the namespace map: %w", err)
	}
	r.wrote.set(req.NamespacedName, now)
	return ctrl.Result{RequeueAfter: again}, nil
}

// learns is how long still the objects at the provider of a peering's namespace are not all known,
// at least: while it is not reached none is looked at.
func (r *shower) learns(namespace string, now time.Time) time.Duration {
	peer, ok := r.fleet.Peer(strings.TrimPrefix(namespace, v1alpha1.PeeringNamespacePrefix))
	if !ok {
		return learning
	}
	state, since := peer.State(), r.began
	if !state.Reachable {
		return learning
	}
	if state.Since.After(since) {
		since = state.Since
	}
	return min(max(learning-now.Sub(since), 0), learning)
}

// known are the objects that this process knows at the provider of a NamespaceMap, those of
// which there is nothing to say among them.
func (r *shower) known(key types.NamespacedName) map[v1alpha1.HomeObject]v1alpha1.ReflectedObject {
	all := map[v1alpha1.HomeObject]v1alpha1.ReflectedObject{}
	r.notes.each(func(of types.NamespacedName, n note) {
		if peering, home, ok := split(ctrl.Request{NamespacedName: of}); ok && mapKey(peering) == key {
			all[home] = n.shown
		}
	})
	return all
}

// listed is what a NamespaceMap says, and how many objects it has no room for: of those that
// are known, and of the others what it says already if that is to stay.
func listed(known map[v1alpha1.HomeObject]v1alpha1.ReflectedObject, said []v1alpha1.ReflectedObject, stays bool) (all []v1alpha1.ReflectedObject, more int32) {
	for _, one := range known {
		if one.Kind != "" {
			all = append(all, one)
		}
	}
	for _, one := range said {
		if _, is := known[v1alpha1.HomeObject{Kind: one.Kind, Namespace: one.Namespace, Name: one.Name}]; stays && !is {
			all = append(all, one)
		}
	}
	for i := range all {
		all[i].Addresses = all[i].Addresses[:min(len(all[i].Addresses), maxShownAddresses)]
	}
	slices.SortFunc(all, func(a, b v1alpha1.ReflectedObject) int {
		return cmp.Or(worse(a, b), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Message, b.Message)) // several slices speak of one Service
	})
	all = slices.CompactFunc(all, func(a, b v1alpha1.ReflectedObject) bool { return equality.Semantic.DeepEqual(a, b) }) // of two slices of one Service
	if len(all) > maxShown {
		all, more = all[:maxShown], int32(len(all)-maxShown)
	}
	return all, more
}

// worse puts first what is refused, and last what is well, if there is no room for all.
func worse(a, b v1alpha1.ReflectedObject) int {
	rank := func(o v1alpha1.ReflectedObject) int {
		switch {
		case o.Refused:
			return 0
		case o.Reason != "":
			return 1
		}
		return 2
	}
	return cmp.Compare(rank(a), rank(b))
}

// shownOf is what is to be seen of an object after a look at it; nothing if all is well or
// the owner of the namespace has it so.
func shownOf(home v1alpha1.HomeObject, p plan, there *v1alpha1.ShadowObject) v1alpha1.ReflectedObject {
	one := v1alpha1.ReflectedObject{Kind: home.Kind, Namespace: home.Namespace, Name: home.Name, Refused: p.refused, Reason: p.reason}
	if p.reason != "" {
		one.Message = p.told
	}
	if there != nil && !p.refused && !p.remove && (home.Kind == kindService || home.Kind == kindIngress) {
		one.Addresses = content.PlainAddresses(there.Status.Addresses)
	}
	if p.reason == "" && len(one.Addresses) == 0 {
		return v1alpha1.ReflectedObject{}
	}
	return one
}
