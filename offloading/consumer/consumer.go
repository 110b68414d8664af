// Package consumer carries pods of this cluster that are bound to a virtual node to the
// provider behind it, as ShadowPods, and their status home. It ends the provider's pod
// before the home pod, tells of providers that do not answer, and sends pods home that
// a provider refuses, so that their owner's next ones go elsewhere. It has pods whose
// provider cannot be reached stay, where their namespace says so. It writes nothing at
// a provider but ShadowPods, and nothing here but pods' status and events, how long pods
// tolerate a node that is lost, evictions, deletions of pods that have ended or that wait
// unbound under terms that no longer hold, and the memory of refusals in NamespaceMaps. It never makes a pod, and never carries one of a
// namespace that is not offloaded.
package consumer

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/throttle"
	"github.com/pelago-dev/pelago/offloading/admission"
)

// component is the reporter of events.
const component = "pelago-manager"

const (
	// workers is how many pods are looked at at once: each may wait for a provider.
	workers = 32
	// share is how many of the workers may wait for one provider.
	share = 20
	// orphanWorkers and orphanShare are the same of ShadowPods without a home pod.
	orphanWorkers = 8
	orphanShare   = 5
)

// Options is what Register needs beside a manager.
type Options struct {
	// Fleet is the connections to providers; see Connections.
	Fleet Fleet
	// Views says by which addresses pods of providers are seen here. Without it home pods
	// have none.
	Views Views
	// Tunnels says whether pods of providers can be reached, and gateways know them. Without it
	// they are as ready as their providers say.
	Tunnels Tunnels
	// Needs says when what a pod needs is where it is about to go. Without it no pod waits for that.
	Needs Needs
	// Clock tells the time; the real one if nil.
	Clock clock.PassiveClock
}

// Needs says when what a pod needs is where it is about to go. It may be asked at any time, by many at once.
type Needs interface {
	// Unsettled is an object, as KIND NAME, that has to be at the provider of a peering before the pod is
	// and may be there in a moment; "" if there is none. Again is when to ask once more.
	Unsettled(ctx context.Context, peering string, pod *corev1.Pod) (what string, again time.Duration, err error)
}

// Register adds the consumer's side of offloaded pods to a manager, whose cache has to
// keep pods whole that tolerate the taint of virtual nodes. It must be called before the
// fleet starts.
func Register(mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	m := newMeter()
	if err := m.register(metrics.Registry); err != nil {
		return err
	}
	if err := o.Fleet.WatchWithin(&v1alpha1.ShadowPod{}, bounds); err != nil {
		return fmt.Errorf("watching shadow pods at providers: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, onNode, indexByNode); err != nil {
		return fmt.Errorf("indexing pods by node: %w", err)
	}
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, hoping, indexHoping); err != nil {
		return fmt.Errorf("indexing pods that hope for another place: %w", err)
	}
	w := wakers{cache: mgr.GetClient(), places: &places{nodes: map[string]string{}}, delay: choicePace}
	choices := admission.NewChoices(mgr.GetClient(), mgr.GetAPIReader(), o.Clock)
	if err := registerPods(mgr, o, w, m, choices); err != nil {
		return fmt.Errorf("adding the controller of offloaded pods: %w", err)
	}
	if err := registerKeeper(mgr, w); err != nil {
		return fmt.Errorf("adding the controller of pods that are kept: %w", err)
	}
	if err := registerOrphans(mgr, o, w, m); err != nil {
		return fmt.Errorf("adding the controller of orphaned shadow pods: %w", err)
	}
	if err := registerOutdated(mgr, w, newOutdated(mgr.GetClient(), mgr.GetAPIReader(), choices, o.Clock, mgr.GetEventRecorder(component), m)); err != nil {
		return fmt.Errorf("adding the controller of pods with outdated terms: %w", err)
	}
	return nil
}

func registerPods(mgr ctrl.Manager, o Options, w wakers, m *meter, choices chooser) error {
	r := &reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), fleet: o.Fleet, views: o.Views, tunnels: o.Tunnels, needs: o.Needs, clock: o.Clock, meter: m,
		events: mgr.GetEventRecorder(component), ledger: newLedger(m.pods),
		refusals: &refusals{client: mgr.GetClient(), live: mgr.GetAPIReader()},
		choices:  choices, budget: fleet.NewBudget(), turns: throttle.NewTurns(share),
	}
	state := func(peering string) []reconcile.Request {
		r.linked(peering)
		return w.ofPeer(context.Background(), peering)
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("offloaded-pods").
		Watches(&corev1.Pod{}, w.pods()).
		Watches(&corev1.Node{}, w.nodes(differ)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(w.ofNamespace), builder.WithPredicates(offloadedOrEnding())).
		Watches(&v1alpha1.NamespaceOffloading{}, handler.EnqueueRequestsFromMapFunc(w.ofNamespace), builder.WithPredicates(leavesOrEnds())).
		Watches(&v1alpha1.Peering{}, handler.EnqueueRequestsFromMapFunc(w.ofPeering), builder.WithPredicates(endingOnly())).
		Watches(&v1alpha1.NamespaceMap{}, w.mappings(homePod)).
		WatchesRawSource(o.Fleet.Source(&v1alpha1.ShadowPod{}, homeOf)).
		WatchesRawSource(o.Fleet.StateSourceAt(statePace, state)).
		WatchesRawSource(r.turns.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: throttle.NewLimiter()})
	there := func(peering string) []reconcile.Request { return w.ofPeer(context.Background(), peering) }
	if o.Views != nil {
		b = b.WatchesRawSource(o.Views.ViewSource(there))
	}
	if o.Tunnels != nil {
		b = b.WatchesRawSource(o.Tunnels.TunnelSource(there)).WatchesRawSource(o.Tunnels.GatewaySource(r.known))
	}
	return watchChoices(b, w, hopingBound).Complete(r)
}

// registerOutdated adds the controller of pods with outdated terms.
func registerOutdated(mgr ctrl.Manager, w wakers, r *outdated) error {
	b := ctrl.NewControllerManagedBy(mgr).Named("outdated-pods").
		Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(unscheduledOnly())).
		WithOptions(controller.Options{MaxConcurrentReconciles: 2, RateLimiter: throttle.NewLimiter()})
	return watchChoices(b, w, hopingUnbound).Complete(r)
}

// watchChoices wakes pods when what they hope for may have come.
func watchChoices(b *builder.Builder, w wakers, which string) *builder.Builder {
	for _, kind := range []client.Object{&corev1.Node{}, &v1alpha1.NamespaceMap{}, &v1alpha1.ResourceOffer{}, &v1alpha1.NamespaceOffloading{}} {
		b = b.Watches(kind, w.hoping(which), builder.WithPredicates(choiceChanges()))
	}
	return b
}

func registerOrphans(mgr ctrl.Manager, o Options, w wakers, m *meter) error {
	r := &orphans{client: mgr.GetClient(), live: mgr.GetAPIReader(), fleet: o.Fleet, meter: m, turns: throttle.NewTurns(orphanShare)}
	one := func(peering string, obj client.Object) []reconcile.Request {
		return []reconcile.Request{shadowAt(peering, obj.GetName())}
	}
	return ctrl.NewControllerManagedBy(mgr).Named("orphaned-shadow-pods").
		Watches(&corev1.Pod{}, w.gone()).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(w.shadowsOfNamespace), builder.WithPredicates(offloadedOrEnding())).
		Watches(&v1alpha1.NamespaceOffloading{}, handler.EnqueueRequestsFromMapFunc(w.shadowsOfNamespace), builder.WithPredicates(leavesOrEnds())).
		Watches(&v1alpha1.NamespaceMap{}, w.mappings(shadowOf)).
		WatchesRawSource(o.Fleet.Source(&v1alpha1.ShadowPod{}, one)).
		WatchesRawSource(o.Fleet.StateSourceAt(statePace, r.of)).
		WatchesRawSource(r.turns.Source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: orphanWorkers, RateLimiter: throttle.NewLimiter()}).
		Complete(r)
}
