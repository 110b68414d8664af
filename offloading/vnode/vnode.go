// Package vnode is the virtual nodes: for every accepted offer a Node that stands for
// the provider, with its size, labels and state, a Lease that says we are alive, and an
// orderly end: cordoned, drained, removed. It keeps the list by which admission knows our
// nodes, and answers the pods of DaemonSets that are aimed at them, which have nothing to
// do there. It never decides where pods go, never carries a pod to a provider and never
// touches a node it did not make.
package vnode

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/home"
)

// component is the value of LabelManagedBy on what this package makes, and the reporter
// of its events.
const component = "pelago-manager"

// Home is this cluster.
type Home interface {
	// Config returns the settings in force.
	Config() home.Config
	// Info is what this cluster says of itself.
	Info() v1alpha1.ClusterInfo
	// Source tells of every change of them.
	Source(to handler.EventHandler) source.Source
}

// Peer is the connection to a provider.
type Peer interface {
	// State is how it is.
	State() fleet.State
}

// Fleet is the connections to all providers.
type Fleet interface {
	// Peer returns the connection of a peering, if there is one.
	Peer(peering string) (Peer, bool)
	// StateSource tells of changes of connections.
	StateSource(mapper func(peering string) []reconcile.Request) source.Source
}

// Connections makes a Fleet for Options of the connections of this program.
func Connections(f *fleet.Fleet) Fleet { return fleet.As(f, func(p *fleet.Peer) Peer { return p }) }

// Options is what Register needs beside a manager. Home and Fleet are required.
type Options struct {
	// Home is this cluster.
	Home Home
	// Fleet is the connections to providers; see Connections.
	Fleet Fleet
	// Clock tells the time; the real one if nil.
	Clock clock.PassiveClock
	// Address by which the API server reaches this program: that of its pod.
	Address string
	// Ports returns where the kubelet API of a virtual node listens, 0 if it does not yet.
	Ports func(node string) int32
	// Version of Pelago.
	Version string
	// Namespace of Pelago; v1alpha1.SystemNamespace if empty.
	Namespace string
}

// Register adds the controllers of virtual nodes to a manager.
func Register(mgr ctrl.Manager, o Options) error {
	if o.Home == nil || o.Fleet == nil {
		return errors.New("registering virtual nodes: Home and Fleet are required")
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Ports == nil {
		o.Ports = func(string) int32 { return 0 }
	}
	o.Namespace = cmp.Or(o.Namespace, v1alpha1.SystemNamespace)
	steps := map[string]func(ctrl.Manager, Options) error{
		"nodes": registerNodes, "leases": registerLeases, "admission": registerAdmission, "daemons": registerDaemons,
	}
	for what, register := range steps {
		if err := register(mgr, o); err != nil {
			return fmt.Errorf("setting up the controller of %s: %w", what, err)
		}
	}
	return nil
}

func registerNodes(mgr ctrl.Manager, o Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(component), o)
	if err := metrics.Registry.Register(r.gauge); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	cached := mgr.GetClient()
	return ctrl.NewControllerManagedBy(mgr).Named("virtual-node").
		WithOptions(controller.Options{MaxConcurrentReconciles: 16, RateLimiter: retries()}).
		For(&v1alpha1.ResourceRequest{}, builder.WithPredicates(predicate.NewPredicateFuncs(inPeeringNamespace))).
		Watches(&v1alpha1.ResourceOffer{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(
			predicate.NewPredicateFuncs(inPeeringNamespace), predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(ofNode), builder.WithPredicates(nodeMatters())).
		Watches(&corev1.Pod{}, ofPod(cached), builder.WithPredicates(leaves())).
		Watches(&v1alpha1.Peering{}, ofPeering(cached), builder.WithPredicates(peeringMatters())).
		Watches(&rbacv1.Role{}, ofList(cached), builder.WithPredicates(isList(o.Namespace))).
		WatchesRawSource(o.Fleet.StateSource(requestsOf(cached))).
		Complete(r)
}

func registerLeases(mgr ctrl.Manager, o Options) error {
	r := &leases{client: mgr.GetClient(), live: mgr.GetAPIReader(), clock: o.Clock}
	return ctrl.NewControllerManagedBy(mgr).Named("virtual-node-lease").
		WithOptions(controller.Options{MaxConcurrentReconciles: 8, RateLimiter: quickRetries()}).
		For(&corev1.Node{}, builder.WithPredicates(predicate.NewPredicateFuncs(isVirtual), onlyNew())).
		Complete(r)
}

func registerAdmission(mgr ctrl.Manager, o Options) error {
	r := &admission{client: mgr.GetClient(), live: mgr.GetAPIReader(), home: o.Home, namespace: o.Namespace}
	toSelf := handler.EnqueueRequestsFromMapFunc(r.self)
	return ctrl.NewControllerManagedBy(mgr).Named("virtual-node-admission").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1, RateLimiter: retries()}).
		For(&rbacv1.Role{}, builder.WithPredicates(isList(o.Namespace))).
		Watches(&v1alpha1.ResourceRequest{}, toSelf, builder.WithPredicates(predicate.NewPredicateFuncs(inPeeringNamespace), finalizersChange())).
		Watches(&corev1.Node{}, toSelf, builder.WithPredicates(comesOrGoes())).
		Watches(&corev1.Pod{}, toSelf, builder.WithPredicates(waitingChange())).
		WatchesRawSource(o.Home.Source(toSelf)).
		Complete(r)
}

func registerDaemons(mgr ctrl.Manager, o Options) error {
	r := &daemons{client: mgr.GetClient(), clock: o.Clock}
	return ctrl.NewControllerManagedBy(mgr).Named("virtual-node-daemon").
		WithOptions(controller.Options{MaxConcurrentReconciles: 8, RateLimiter: retries()}).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(needsAnswer))).
		Watches(&corev1.Namespace{}, unanswered(mgr.GetClient()), builder.WithPredicates(comesHome())).
		Complete(r)
}

// retries are spread from 100 ms to 30 s.
func retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 30*time.Second)
}

// quickRetries suit what has to be done every ten seconds.
func quickRetries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](100*time.Millisecond, 4*time.Second)
}
