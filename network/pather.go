package network

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/internal/throttle"
)

const (
	// pathFor is how long a path is wanted if nothing more is said, and pathRenew how little of that
	// is left when it is said again.
	pathFor   = 48 * time.Hour
	pathRenew = 24 * time.Hour
	// pathLook is how soon the paths at a provider are looked at, if nothing is told: to renew them.
	pathLook = time.Hour
	// pathRest is the least time between two looks at one provider's.
	pathRest = 250 * time.Millisecond
	// pathAgain is how soon is looked again whether a provider lets its paths be read.
	pathAgain = 30 * time.Second
	// pathWait is how soon is asked again whether paths are known.
	pathWait = time.Second
)

// pathBounds is what a provider may show of NetworkPaths. Older ones know none.
var pathBounds = fleet.Bounds{Optional: true, Objects: 4 * v1alpha1.MaxNetworkPaths, Bytes: 2 << 20}

// pather keeps the NetworkPaths at providers as they are wanted, and reads what providers say of
// them. Its requests are peerings: one that hangs holds up its own alone.
type pather struct {
	client client.Client
	clock  clock.PassiveClock
	fleet  Fleet
	events events.EventRecorder
	paths  *paths
	// retries are those of peerings.
	retries throttle.Rests

	mu     sync.Mutex
	looked map[string]time.Time
	logged map[string]string // of what is not taken, last
}

func (n *Network) registerPather(mgr ctrl.Manager) error {
	if err := n.options.Fleet.WatchWithin(remotePath("", ""), pathBounds); err != nil {
		return fmt.Errorf("watching at providers: %w", err)
	}
	r := newPather(n, mgr.GetClient(), mgr.GetEventRecorder(component))
	return ctrl.NewControllerManagedBy(mgr).Named("network-paths").
		WatchesRawSource(n.paths.listeners.source(consumerKey(""), ofPeer)).
		WatchesRawSource(n.options.Fleet.StateSource(ofPeer)).
		WatchesRawSource(n.options.Fleet.Source(remotePath("", ""), ofPeerObject)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: &r.retries}).
		Complete(r)
}

func newPather(n *Network, c client.Client, recorder events.EventRecorder) *pather {
	return &pather{client: c, clock: n.options.Clock, fleet: n.options.Fleet, events: recorder, paths: &n.paths,
		looked: map[string]time.Time{}, logged: map[string]string{}}
}

// Reconcile reads the paths at one provider, and writes what differs.
func (r *pather) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if wait := r.rest(req.Name); wait > 0 {
		return r.retries.Rest(req, wait), nil
	}
	peer, have := r.read(ctx, req.Name)
	if have == nil {
		r.paths.hear(req.Name, nil, r.clock.Now())
		r.tell(ctx)
		if peer != nil { // of a provider that is upgraded and has no paths nobody tells
			return ctrl.Result{RequeueAfter: pathAgain}, nil
		}
		return ctrl.Result{}, nil // its being reached brings us back
	}
	ends := map[string]end{}
	for name, o := range have {
		ends[name] = receivedPath(o.Object)
	}
	r.log(ctx, req.Name, ends)
	wishes, known := r.paths.hear(req.Name, ends, r.clock.Now())
	r.tell(ctx)
	if !known {
		return ctrl.Result{RequeueAfter: pathWait}, nil
	}
	limited, end := context.WithTimeout(ctx, remoteLimit)
	defer end()
	switch err := r.write(limited, peer, have, wishes); {
	case apierrors.IsForbidden(err) && !kube.Uncounted(err) || apierrors.IsInvalid(err) || apierrors.IsUnauthorized(err):
		ctrl.LoggerFrom(ctx).Info("a provider refuses direct paths", "peering", req.Name, "why", oneLine(err.Error(), maxSaid))
		return ctrl.Result{RequeueAfter: retryRefused}, nil
	case err != nil:
		return retried(&r.retries, req, err, "writing direct paths at %s", req.Name)
	case len(wishes) > 0:
		return ctrl.Result{RequeueAfter: pathLook}, nil
	}
	return ctrl.Result{}, nil
}

// read returns a provider that is reached, and the paths there by name, nil if they cannot be read.
func (r *pather) read(ctx context.Context, peering string) (Peer, map[string]*unstructured.Unstructured) {
	peer, ok := r.fleet.Peer(peering)
	if !ok {
		return nil, nil
	}
	if reachable, _, _ := peer.Reachable(); !reachable {
		return nil, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NetworkPathList"))
	if err := peer.Reader().List(ctx, list, client.InNamespace(peer.TenantNamespace())); err != nil {
		return peer, nil
	}
	have := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		have[list.Items[i].GetName()] = &list.Items[i]
	}
	return peer, have
}

// write makes, changes and removes paths at a provider until they are as wished. What ends comes
// first: a provider takes so many.
func (r *pather) write(ctx context.Context, peer Peer, have map[string]*unstructured.Unstructured, wishes map[string]wish) error {
	for _, name := range slices.Sorted(maps.Keys(have)) {
		if _, wished := wishes[name]; wished || have[name].GetDeletionTimestamp() != nil {
			continue
		}
		if err := peer.Client().Delete(ctx, remotePath(peer.TenantNamespace(), name)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wishes)) {
		w, o := wishes[name], have[name]
		switch {
		case w.asIs || o != nil && o.GetDeletionTimestamp() != nil: // its going brings us back
		case o == nil:
			made := &v1alpha1.NetworkPath{ObjectMeta: metav1.ObjectMeta{
				Namespace: peer.TenantNamespace(), Name: name, Labels: map[string]string{v1alpha1.LabelManagedBy: component},
			}, Spec: w.spec(nil, r.clock.Now())}
			if err := peer.Client().Create(ctx, made); err != nil {
				return err
			}
		default:
			spec := field(o.Object, "spec")
			changes := difference(spec, w.spec(spec, r.clock.Now()))
			if len(changes) == 0 {
				continue
			}
			text, err := json.Marshal(map[string]any{"spec": changes})
			if err != nil {
				return err
			}
			if err := peer.Client().Patch(ctx, remotePath(peer.TenantNamespace(), name), client.RawPatch(types.MergePatchType, text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// spec is what a provider is to be told of a path, by what it has been told: what is not known now
// stays, and so does the time as long as enough is left.
func (w wish) spec(have map[string]any, now time.Time) v1alpha1.NetworkPathSpec {
	s := v1alpha1.NetworkPathSpec{Prefixes: w.prefixes, OriginOwner: w.owner, PublicKey: w.publicKey, Endpoints: w.endpoints, Until: metav1.NewTime(now.Add(pathFor).UTC().Truncate(time.Second))}
	if !w.known {
		s.PublicKey, _ = receivedKey(have, "spec.publicKey")
		s.Endpoints, _ = receivedList(have, "spec.endpoints", maxTheirs, maxHost)
	}
	if text, ok := have["until"].(string); ok {
		if until, err := time.Parse(time.RFC3339, text); err == nil && until.Sub(now) >= pathRenew && until.Sub(now) <= pathFor {
			s.Until = metav1.NewTime(until)
		}
	}
	return s
}

// tell makes the events there are.
func (r *pather) tell(ctx context.Context) {
	for _, n := range r.paths.fetch() {
		n.tell(ctx, r.client, r.events)
	}
}

// log says once what of a provider's words is not taken.
func (r *pather) log(ctx context.Context, peering string, ends map[string]end) {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(ends)) {
		if problem := ends[name].problem; problem != "" && text == "" {
			text = "path " + name + ": " + problem
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.logged[peering] != text && text != "" {
		ctrl.LoggerFrom(ctx).Info("what a provider says of a direct path is not taken", "peering", peering, "why", text)
	}
	if r.logged[peering] = text; text == "" {
		delete(r.logged, peering)
	}
}

// rest is how long a look has to wait; if it need not, it counts as begun.
func (r *pather) rest(peering string) time.Duration {
	now := r.clock.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if wait := r.looked[peering].Add(pathRest).Sub(now); wait > 0 && wait <= pathRest {
		return wait
	}
	r.looked[peering] = now
	return 0
}

// remotePath is an empty NetworkPath at a provider.
func remotePath(namespace, name string) *unstructured.Unstructured {
	return remote("NetworkPath", namespace, name)
}
