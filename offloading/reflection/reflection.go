// Package reflection carries to providers what pods need there beside themselves. At home
// it writes ShadowObjects for the Secrets and ConfigMaps that pods bound to a provider
// refer to, or the owner of the namespace sends by a rule, and for the Services, Ingresses,
// PodDisruptionBudgets and NetworkPolicies of their namespaces, and takes them back when no pod needs them
// any more. A Service that a rule sends needs no pod. As a provider it makes the objects in the namespaces mapped for a tenant. It
// owns the kind ShadowObject; how each kind travels is said by content.
//
// A Service travels with its selector, so that the provider's own controllers put the pods
// that run there behind it, as fast as these change and while home cannot be reached. Its
// EndpointSlices therefore travel without these pods: no address is listed twice. The other
// endpoints travel by their addresses over there, which only a network between the clusters
// gives; without one no slice does.
//
// It never carries a
// Secret or ConfigMap that no pod over there refers to and no rule sends; never touches an
// object that it has not made for that tenant; keeps no content in a cache; and never lets
// content into a log, an event, a condition or an error.
package reflection

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/throttle"
)

const (
	// component is the reporter of events.
	component = "pelago-manager"
	// manager is the value of LabelManagedBy on objects made for tenants.
	manager = "reflection"
	// limit bounds one look.
	limit = time.Minute
)

// Options is what Register needs beside a manager.
type Options struct {
	// Fleet is the connections to providers; see Connections.
	Fleet Fleet
	// Addresses says by which addresses providers reach what is here. Without it no
	// EndpointSlice travels, and none is watched.
	Addresses Addresses
	// Allowed says which addresses tenants may give their Services here. Without it none,
	// and every EndpointSlice is refused.
	Allowed Allowed
	// Tunnels says what is reached through the network. Without it all is as ready as the other
	// side says.
	Tunnels Tunnels
	// NameServers are where tenants' pods here ask for names; the cluster's own DNS if nil.
	NameServers func() []netip.Addr
	// Domain is what this cluster is called in its own DNS; cluster.local if empty.
	Domain string
	// Guards says when what pods need is where they go; see NewGuards. Nobody asks if nil.
	Guards *Guards
	// Clock tells the time; the real one if nil.
	Clock clock.PassiveClock
}

// Register adds both sides to a manager, whose cache has to keep pods whole that tolerate
// the taint of virtual nodes, and of all others labels, node and status. It must be called before the fleet starts.
func Register(mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	m := newMeter()
	if err := m.register(metrics.Registry); err != nil {
		return err
	}
	if err := registerConsumer(mgr, o, m); err != nil {
		return fmt.Errorf("setting up the consumer of shadow objects: %w", err)
	}
	if err := registerProvider(mgr, o, m); err != nil {
		return fmt.Errorf("setting up the provider of shadow objects: %w", err)
	}
	return nil
}

func registerConsumer(mgr ctrl.Manager, o Options, m *meter) error {
	if err := o.Fleet.WatchWithin(&v1alpha1.ShadowObject{}, bounds); err != nil {
		return fmt.Errorf("watching at providers: %w", err)
	}
	if err := o.Fleet.Watch(&v1alpha1.ShadowPod{}); err != nil { // whoever carries pods says how
		return fmt.Errorf("watching at providers: %w", err)
	}
	for name, f := range indices {
		if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, name, f); err != nil {
			return fmt.Errorf("indexing pods: %w", err)
		}
	}
	r := &consumer{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), fleet: o.Fleet, clock: o.Clock,
		pods: indexedPods(mgr.GetClient()), spaces: indexedSpaces(mgr.GetClient()), addresses: o.Addresses, tunnels: o.Tunnels, share: maxOnward, sooner: rate.NewLimiter(soonerRate, soonerBurst), events: mgr.GetEventRecorder(component), budget: fleet.NewBudget(), meter: m, notes: o.Guards.memory(), waits: o.Guards.waiting(o.Clock), domain: o.Domain,
	}
	w := wakers{cache: mgr.GetClient(), fleet: o.Fleet, spaces: r.spaces, waits: r.waits, addresses: o.Addresses != nil}
	chosen := make(chan event.TypedGenericEvent[reconcile.Request])
	if o.Guards != nil {
		o.Guards.wake = wakeBy(chosen)
	}
	if err := registerLister(mgr, r, chosen); err != nil {
		return err
	}
	if err := registerShower(mgr, r); err != nil {
		return err
	}
	state := func(peering string) []reconcile.Request {
		r.left(peering)
		return append(w.ofPeer(peering), w.beyond(peering)...)
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("shadow-object-consumer").
		Watches(&corev1.Pod{}, w.pods()).
		Watches(&corev1.Node{}, w.nodes()).
		Watches(&v1alpha1.NamespaceOffloading{}, w.offloadings()).
		Watches(&v1alpha1.NamespaceMap{}, w.maps()).
		Watches(&v1alpha1.Peering{}, w.builds()).
		WatchesMetadata(&corev1.Service{}, w.ofHome(kindService)).
		WatchesMetadata(&policyv1.PodDisruptionBudget{}, w.ofHome(kindBudget)).
		WatchesMetadata(&networkingv1.Ingress{}, w.ofHome(kindIngress)).
		WatchesMetadata(&networkingv1.NetworkPolicy{}, w.ofHome(kindPolicy)).
		Watches(&corev1.Namespace{}, w.named()).
		WatchesRawSource(o.Fleet.Source(&v1alpha1.ShadowObject{}, w.ofShadow)).
		WatchesRawSource(o.Fleet.Source(&v1alpha1.ShadowPod{}, ofShadowPod)).
		WatchesRawSource(o.Fleet.StateSourceAt(pace, state)).
		WatchesRawSource(source.TypedChannel(chosen, passOn)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8, RateLimiter: &r.retries})
	if w.addresses {
		b = b.WatchesMetadata(&discoveryv1.EndpointSlice{}, w.ofHome(kindSlice))
		b = b.WatchesRawSource(o.Addresses.ViewSource(w.seen))
		if o.Tunnels != nil {
			b = b.WatchesRawSource(o.Tunnels.TunnelSource(w.beyond))
		}
	}
	if err := b.Complete(r); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("shadow-object-litter").
		WatchesRawSource(o.Fleet.StateSourceAt(pace, func(peering string) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: peering}}}
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: newLimiter()}).
		Complete(&litter{fleet: o.Fleet, clock: o.Clock, meter: m, seen: map[string]map[types.UID]time.Time{}})
}

// registerLister adds who finds what rules send, and says so by a channel.
func registerLister(mgr ctrl.Manager, r *consumer, to chan<- event.TypedGenericEvent[reconcile.Request]) error {
	l := &lister{client: r.client, live: r.live, fleet: r.fleet, spaces: r.spaces, mapped: mapped(r.client), clock: r.clock, notes: r.notes, events: r.events, wake: wakeBy(to)}
	return ctrl.NewControllerManagedBy(mgr).Named("shadow-object-lister").
		For(&v1alpha1.NamespaceOffloading{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{RateLimiter: newLimiter()}).
		Complete(l)
}

// registerShower adds who writes what is to be seen of objects at providers.
func registerShower(mgr ctrl.Manager, r *consumer) error {
	wake := make(chan event.TypedGenericEvent[reconcile.Request])
	r.show = wakeBy(wake)
	return ctrl.NewControllerManagedBy(mgr).Named("shadow-object-shower").
		Watches(&v1alpha1.Peering{}, handler.Funcs{CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			q.Add(reconcile.Request{NamespacedName: mapKey(e.Object.GetName())})
		}}).
		WatchesRawSource(source.TypedChannel(wake, passOn)).
		WithOptions(controller.Options{RateLimiter: newLimiter()}).
		Complete(newShower(r))
}

func registerProvider(mgr ctrl.Manager, o Options, m *meter) error {
	pace := newPacer(o.Clock)
	r := &provider{client: mgr.GetClient(), live: mgr.GetAPIReader(), clock: o.Clock, allowed: o.Allowed, nameServers: o.NameServers, domain: o.Domain, tunnels: o.Tunnels, meter: m, notes: newNotes[made](), pace: pace}
	forgotten := make(chan event.TypedGenericEvent[reconcile.Request])
	w := &watcher{client: mgr.GetClient(), pace: pace, sweep: wakeBy(forgotten)}
	b := ctrl.NewControllerManagedBy(mgr).Named("shadow-object-provider").
		WatchesMetadata(&v1alpha1.ShadowObject{}, w.shadows(r.notes)).
		WatchesMetadata(&corev1.Service{}, w.services(r.notes)).
		Watches(&v1alpha1.ShadowPod{}, w.pods()).
		Watches(&v1alpha1.NamespaceMap{}, w.maps()).
		Watches(&v1alpha1.Tenant{}, w.tenants()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8, RateLimiter: &r.retries})
	if o.Allowed != nil {
		b = b.WatchesRawSource(o.Allowed.TenantViewSource(ofTenant(r.notes, kindSlice, kindPolicy)))
	}
	if o.Tunnels != nil {
		b = b.WatchesRawSource(o.Tunnels.TenantTunnelSource(ofTenant(r.notes, kindSlice)))
	}
	if err := b.Complete(r); err != nil {
		return err
	}
	s := &sweeper{client: mgr.GetClient(), live: mgr.GetAPIReader()}
	return ctrl.NewControllerManagedBy(mgr).Named("shadow-object-sweeper").
		For(&corev1.Namespace{}, builder.WithPredicates(mappedHere())).
		WatchesRawSource(source.TypedChannel(forgotten, sweepLater)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 2, RateLimiter: newLimiter()}).
		Complete(s)
}

// newLimiter spaces out what failed, each for itself.
func newLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return &throttle.Rests{}
}

func objectMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
