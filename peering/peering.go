// Package peering is the trust between two clusters as the consumer keeps it: it
// reconciles the kind Peering. It introduces this cluster to a provider with an
// invitation, holds and renews the credential, says who this cluster is, sends the
// heartbeat, makes the default request, and says goodbye at the end, be it by a
// tombstone. Of a Peering that provides it mirrors the Tenant. What tenants, offers
// and the authentication endpoint are is for the packages beneath. It never touches
// pods or the network, and a private key never leaves its Secret but to prove itself.
package peering

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

const (
	// component is the value of LabelManagedBy on what this package makes, and the name
	// of its controllers and events.
	component = "peering"
	// workers is how many peerings are worked on at once: an endpoint that does not
	// answer holds up one of them for attemptLimit.
	workers = 16
)

// Home is this cluster as it presents itself.
type Home interface {
	// ID of this cluster.
	ID() string
	// Info is what this cluster says of itself.
	Info() v1alpha1.ClusterInfo
	// Source tells of every change of what Info returns.
	Source(to handler.EventHandler) source.Source
}

// Tunnels leads to providers in band.
type Tunnels interface {
	// InBand are the addresses, of which one may do, by which the provider of a peering is called, or
	// why it cannot be.
	InBand(peering string) (at []netip.Addr, why string)
	// InBandSource tells of the peerings of which InBand says something else.
	InBandSource(mapper func(peering string) []reconcile.Request) source.Source
}

// Options of the consumer's side. Home and Fleet are required.
type Options struct {
	// Home is this cluster.
	Home Home
	// Fleet gets the connections. The caller adds it to the manager.
	Fleet *fleet.Fleet
	// Namespace of Pelago; v1alpha1.SystemNamespace if empty.
	Namespace string
	// Clock; the real one if nil.
	Clock clock.PassiveClock
	// Rand makes keys; the system's if nil.
	Rand io.Reader
	// Jitter returns a number in [0,1) that spreads what is repeated; random if nil.
	Jitter func() float64
	// Tunnels says by which addresses providers in band are called; there are none if nil.
	Tunnels Tunnels
	// Dial opens connections to authentication endpoints and proxies; an ordinary
	// dialer if nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Register adds the controllers of peerings and tombstones to a manager, and the
// kinds they watch to the fleet.
func Register(mgr ctrl.Manager, o Options) error {
	if o.Home == nil || o.Fleet == nil {
		return errors.New("registering peering: Home and Fleet are required")
	}
	identity := &v1alpha1.Identity{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.IdentityName}}
	if err := o.Fleet.Watch(identity); err != nil {
		return fmt.Errorf("watching identities: %w", err)
	}
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), mgr.GetEventRecorder(component), o)
	r.meter.register(metrics.Registry)
	toSelf := func(name string) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: client.ObjectKey{Name: name}}}
	}
	b := ctrl.NewControllerManagedBy(mgr).Named(component)
	if o.Tunnels != nil {
		b = b.WatchesRawSource(o.Tunnels.InBandSource(toSelf))
	}
	err := b.
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: retries()}).
		For(&v1alpha1.Peering{}, builder.WithPredicates(relevant())).
		Watches(&v1alpha1.Tenant{}, handler.EnqueueRequestsFromMapFunc(r.ofTenant)).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.ofSecret)).
		Watches(&v1alpha1.ResourceRequest{}, handler.EnqueueRequestsFromMapFunc(ofLabel)).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(ofLabel)).
		WatchesRawSource(o.Home.Source(handler.EnqueueRequestsFromMapFunc(r.all))).
		WatchesRawSource(o.Fleet.Source(&v1alpha1.Identity{}, func(name string, _ client.Object) []ctrl.Request { return toSelf(name) })).
		WatchesRawSource(o.Fleet.StateSource(toSelf)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of peerings: %w", err)
	}
	return r.registerTombstones(mgr)
}

// retryMax bounds the wait after an error, so that it does not keep back heartbeats.
const retryMax = 30 * time.Second

func retries() workqueue.TypedRateLimiter[ctrl.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](5*time.Millisecond, retryMax)
}

// reconciler reconciles Peerings. What it remembers besides the API only spaces out
// what it repeats.
type reconciler struct {
	client    client.Client
	live      client.Reader // reads Secrets past the cache: a key must not be made twice
	events    events.EventRecorder
	home      Home
	fleet     *fleet.Fleet
	namespace string
	clock     clock.PassiveClock
	rand      io.Reader
	jitter    func() float64
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	tunnels   Tunnels
	memory    memory
	meter     *meter
}

func newReconciler(c client.Client, live client.Reader, recorder events.EventRecorder, o Options) *reconciler {
	r := &reconciler{
		client: c, live: live, events: recorder, home: o.Home, fleet: o.Fleet,
		namespace: o.Namespace, clock: o.Clock, rand: o.Rand, jitter: o.Jitter, dial: o.Dial, tunnels: o.Tunnels,
		meter: newMeter(),
	}
	if r.namespace == "" {
		r.namespace = v1alpha1.SystemNamespace
	}
	if r.clock == nil {
		r.clock = clock.RealClock{}
	}
	if r.rand == nil {
		r.rand = rand.Reader
	}
	if r.jitter == nil {
		r.jitter = mathrand.Float64
	}
	if r.dial == nil {
		r.dial = (&net.Dialer{Timeout: 5 * time.Second}).DialContext
	}
	return r
}
