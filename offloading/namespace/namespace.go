// Package namespace makes the namespaces in which offloaded pods run. At home it turns
// NamespaceOffloadings into entries of one NamespaceMap per provider, marks the
// namespaces that are offloaded, and brings pods home before a cluster leaves. It
// carries each NamespaceMap to its provider and the answer back. As a provider it
// makes and removes the namespaces that tenants want, within their terms. It owns the
// kinds NamespaceOffloading and NamespaceMap. What a peer wrote is checked before it is
// used. It never touches a namespace that is not labelled as Pelago's for that tenant,
// and never deletes one that holds volume claims.
package namespace

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/throttle"
)

// component is the value of LabelManagedBy on what this package makes, and the
// reporter of its events.
const component = "pelago-manager"

// Options is what Register needs beside a manager.
type Options struct {
	// Namespace is Pelago's own; v1alpha1.SystemNamespace if empty.
	Namespace string
	// Fleet is the connections to providers; see Connections.
	Fleet Fleet
	// Domain is what this cluster is called in its own DNS; cluster.local if empty.
	Domain string
	// Clock tells the time; the real one if nil.
	Clock clock.PassiveClock
}

// Register adds both sides to a manager. It is called before the fleet starts.
func Register(mgr ctrl.Manager, o Options) error {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.Namespace = cmp.Or(o.Namespace, v1alpha1.SystemNamespace)
	if err := registerLabel(mgr); err != nil {
		return fmt.Errorf("setting up the controller of the label %s: %w", v1alpha1.LabelOffload, err)
	}
	if err := registerOffloading(mgr, o); err != nil {
		return fmt.Errorf("setting up the controller of namespace offloadings: %w", err)
	}
	if err := registerCarrier(mgr, o); err != nil {
		return fmt.Errorf("setting up the carrier of namespace maps: %w", err)
	}
	if err := registerProvider(mgr, o); err != nil {
		return fmt.Errorf("setting up the provider of namespaces: %w", err)
	}
	return nil
}

func registerLabel(mgr ctrl.Manager) error {
	r := &labelled{client: mgr.GetClient()}
	return ctrl.NewControllerManagedBy(mgr).Named("offload-label").
		For(&corev1.Namespace{}, builder.WithPredicates(predicate.Or(predicate.LabelChangedPredicate{}, predicate.GenerationChangedPredicate{}))).
		Watches(&v1alpha1.NamespaceOffloading{}, toNamespace(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: throttle.NewLimiter()}).
		Complete(r)
}

func registerOffloading(mgr ctrl.Manager, o Options) error {
	r := &offloader{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), clock: o.Clock, fleet: o.Fleet,
		events: mgr.GetEventRecorder(component), system: o.Namespace, domain: v1alpha1.Unusual(o.Domain),
	}
	return ctrl.NewControllerManagedBy(mgr).Named("namespace-offloading").
		For(&v1alpha1.NamespaceOffloading{}, builder.WithPredicates(changedOrEnding())).
		Watches(&corev1.Namespace{}, ofNamespace(), builder.WithPredicates(labelledOrEnding())).
		Watches(&corev1.Node{}, toAll(mgr.GetClient()), builder.WithPredicates(virtualNodes(), predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.Peering{}, toAll(mgr.GetClient()), builder.WithPredicates(specOrFeatures())).
		Watches(&rbacv1.RoleBinding{}, ofHomeBinding()).
		Watches(&v1alpha1.NamespaceMap{}, entriesChanged(), builder.WithPredicates(predicate.NewPredicateFuncs(inPeeringNamespace))).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8, RateLimiter: throttle.NewLimiter()}).
		Complete(r)
}

func registerCarrier(mgr ctrl.Manager, o Options) error {
	r := newCarrier(mgr.GetClient(), mgr.GetAPIReader(), o.Clock, o.Fleet)
	if err := o.Fleet.Watch(remoteMap("")); err != nil {
		return fmt.Errorf("watching at providers: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).Named("namespace-map-consumer").
		For(&v1alpha1.NamespaceMap{}, builder.WithPredicates(predicate.NewPredicateFuncs(inPeeringNamespace), predicate.GenerationChangedPredicate{})).
		WatchesRawSource(o.Fleet.StateSource(mapOfPeer)).
		WatchesRawSource(o.Fleet.Source(remoteMap(""), mapOfPeerObject)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8, RateLimiter: throttle.NewLimiter()}).
		Complete(r)
}

func registerProvider(mgr ctrl.Manager, o Options) error {
	r := &provider{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), clock: o.Clock,
		events: mgr.GetEventRecorder(component), system: o.Namespace,
	}
	return ctrl.NewControllerManagedBy(mgr).Named("namespace-map-provider").
		For(&v1alpha1.NamespaceMap{}, builder.WithPredicates(predicate.NewPredicateFuncs(inTenantNamespace), predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Tenant{}, ofTenant(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Namespace{}, mapsOfNamespace(mgr.GetClient())).
		Watches(&v1alpha1.NamespaceMap{}, tenantsOfEntries(mgr.GetClient()), builder.WithPredicates(predicate.NewPredicateFuncs(inPeeringNamespace))).
		Watches(&rbacv1.RoleBinding{}, ofBinding()).
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: throttle.NewLimiter()}).
		Complete(r)
}
