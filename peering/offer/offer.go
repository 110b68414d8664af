// Package offer is the negotiation of resources between two clusters. As a provider
// it reads what is free here, for each consumer through a chain of resource readers,
// and answers the ResourceRequests in tenant namespaces with ResourceOffers that it
// keeps true. As a consumer it carries the ResourceRequests of people to the
// provider, copies the offers home and says what was decided. It owns the kinds
// ResourceRequest and ResourceOffer. What a peer wrote is checked before it is used.
// It never schedules, limits or bills what runs.
package offer

import (
	"fmt"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
)

// component is the value of LabelManagedBy on what this package makes, and the
// reporter of its events.
const component = "pelago-manager"

// Home is this cluster's settings.
type Home interface {
	// Config returns the settings in force.
	Config() home.Config
	// Subscribe has f called after every change of them; f returns at once.
	Subscribe(f func())
}

// Options is what Register needs beside a manager.
type Options struct {
	// Home is this cluster.
	Home Home
	// Fleet is the connections to providers; see Connections.
	Fleet Fleet
	// Clock tells the time; the real one if nil.
	Clock clock.WithTicker
	// Reader replaces the reader of this cluster's nodes at the head of the chain.
	Reader ResourceReader
	// External is the owner's own program that has the last word, nil if there is none.
	External External
}

// Register adds the negotiation to a manager, both sides.
func Register(mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	watched := newMonitor()
	measures := newMeasures(watched.freeNow)
	if err := measures.register(metrics.Registry); err != nil {
		return err
	}
	source := o.Reader
	if source == nil {
		source = watched
		if err := mgr.Add(&feed{cache: mgr.GetCache(), monitor: watched}); err != nil {
			return fmt.Errorf("adding the monitor: %w", err)
		}
	}
	guarded := newGuard("monitor", source, o.Clock, measures.failed)
	reader := chain(guarded, func() home.Offer { return o.Home.Config().Offer })
	if o.External != nil {
		reader = newExternal(reader, o.External, o.Clock, measures.failed)
	}
	if err := registerProvider(mgr, o, reader, measures); err != nil {
		return fmt.Errorf("adding the provider of offers: %w", err)
	}
	if err := registerConsumer(mgr, o); err != nil {
		return fmt.Errorf("adding the consumer of offers: %w", err)
	}
	return nil
}

func registerProvider(mgr ctrl.Manager, o Options, reader ResourceReader, m *measures) error {
	beat := newPulse(o.Clock, mgr.GetClient())
	reader.Notify(beat.notify)
	o.Home.Subscribe(func() { beat.notify("") })
	p := &provider{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), clock: o.Clock, settings: o.Home.Config, reader: reader,
		events: mgr.GetEventRecorder(component), metrics: m,
	}
	here := predicate.NewPredicateFuncs(inTenantNamespace)
	return ctrl.NewControllerManagedBy(mgr).Named("offer-provider").
		For(&v1alpha1.ResourceRequest{}, builder.WithPredicates(here, predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ResourceRequest{}, siblings(mgr.GetClient()), builder.WithPredicates(here, predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ResourceOffer{}, sameName(), builder.WithPredicates(here, predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Tenant{}, ofTenant(mgr.GetClient(), reader), builder.WithPredicates(tenantMatters())).
		WatchesRawSource(beat.source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: newLimiter()}).
		Complete(p)
}

func registerConsumer(mgr ctrl.Manager, o Options) error {
	c := &consumer{client: mgr.GetClient(), clock: o.Clock, fleet: o.Fleet, events: mgr.GetEventRecorder(component)}
	here := predicate.NewPredicateFuncs(inPeeringNamespace)
	build := ctrl.NewControllerManagedBy(mgr).Named("offer-consumer").
		For(&v1alpha1.ResourceRequest{}, builder.WithPredicates(here, changedOrFinalized())).
		Watches(&v1alpha1.ResourceOffer{}, sameName(), builder.WithPredicates(here, predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Peering{}, ofPeering(mgr.GetClient()), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesRawSource(o.Fleet.StateSource(requestsOf(mgr.GetClient()))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 16, RateLimiter: newLimiter()})
	for _, kind := range []string{"ResourceRequest", "ResourceOffer"} {
		if err := o.Fleet.Watch(kindOf(kind)); err != nil {
			return fmt.Errorf("watching at providers: %w", err)
		}
		build = build.WatchesRawSource(o.Fleet.Source(kindOf(kind), atHome))
	}
	return build.Complete(c)
}

// changedOrFinalized passes changes of spec and of finalizers.
func changedOrFinalized() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return len(e.ObjectOld.GetFinalizers()) != len(e.ObjectNew.GetFinalizers())
		},
	})
}
