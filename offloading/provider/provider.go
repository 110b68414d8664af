// Package provider runs the pods of consumers: it makes a pod of every ShadowPod in a
// tenant namespace, in the namespace mapped for it, writes what becomes of it back into
// the ShadowPod, makes it again when this cluster has lost it, and ends it with the
// ShadowPod. It goes on while the consumer is silent. It never trusts a ShadowPod, never
// touches a pod of a namespace that is not the tenant's, never makes a pod again that has
// ended by itself, and never calls the consumer.
package provider

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/throttle"
)

// component is the value of LabelManagedBy on pods, and the reporter of events.
const component = "pelago-manager"

const (
	// workers is how many ShadowPods are looked at at once.
	workers = 16
	// share is how many of the workers one tenant may keep busy.
	share = 12
)

// Limits says how much more a tenant may have.
type Limits interface {
	// Check says whether a tenant may have pod beside all that is counted and beside
	// pending, pods that are being made and may not be counted yet: nil if so, else an
	// error for the consumer to read. If old is not nil, it is counted already and pod
	// takes its place. ErrNotCounted says that it is too early to tell.
	Check(tenant *v1alpha1.Tenant, pending []*corev1.Pod, old, pod *corev1.Pod) error
	// Counts says whether this very pod is counted by now.
	Counts(pod *corev1.Pod) bool
}

// ErrNotCounted is returned by Limits that have not counted everything yet.
var ErrNotCounted = errors.New("what tenants use has not been counted yet")

// Options is what Register needs beside a manager.
type Options struct {
	// Limits of tenants; none if nil.
	Limits Limits
	// Addresses: consumers are told the addresses of their pods, as they may see them over a
	// network between the clusters.
	Addresses bool
	// Clock tells the time; the real one if nil.
	Clock clock.PassiveClock
	// NameServers know home's names by who asks, and have addresses of a family that pods here
	// have. Pods that want those of their cluster are made to ask there; if it is nil they have
	// this cluster's, as all pods here.
	NameServers func() []netip.Addr
	// Homes says where pods of tenants reach the API servers of their homes. Pods with tokens of
	// home are made to call it there; if it is nil they have this cluster's, as all pods here.
	Homes Homes
}

// Homes says where pods of tenants reach the API servers of their homes. It may be asked at any
// time, by many at once.
type Homes interface {
	// HomeAPI is where pods of a tenant reach the API server of their home. If there is none,
	// coming says that there may be one in seconds: pods keep what they are made with.
	HomeAPI(tenant string) (at netip.AddrPort, coming bool)
	// TenantViewSource tells of the tenants of which HomeAPI says something else.
	TenantViewSource(mapper func(tenant string) []reconcile.Request) source.Source
}

// Register adds the controller of this package to a manager.
func Register(mgr ctrl.Manager, o Options) error {
	if err := index(mgr.GetFieldIndexer()); err != nil {
		return err
	}
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), o)
	r.pods = indexedPods(mgr.GetClient())
	r.events = mgr.GetEventRecorder(component)
	for _, c := range r.metrics.all(r.memory) {
		if err := metrics.Registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics of shadow pods: %w", err)
		}
	}
	w := &watcher{client: mgr.GetClient(), pace: newPace(r.clock), budget: r.budget}
	ear, err := newEar(mgr, r.book, r.clock)
	if err != nil {
		return err
	}
	b := ctrl.NewControllerManagedBy(mgr).Named("shadowpod").
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: throttle.NewLimiter()}).
		Watches(&v1alpha1.ShadowPod{}, w.shadowPods()).
		Watches(&corev1.Pod{}, w.pods()).
		Watches(&v1alpha1.NamespaceMap{}, w.maps()).
		Watches(&corev1.Namespace{}, w.namespaces()).
		Watches(&v1alpha1.Tenant{}, w.tenants()).
		WatchesRawSource(ear.source()).
		WatchesRawSource(r.turns.Source())
	if o.Homes != nil {
		b = b.WatchesRawSource(o.Homes.TenantViewSource(r.memory.awaiting))
	}
	if err := mgr.Add(manager.RunnableFunc(func(context.Context) error { r.begin(); return nil })); err != nil { // when this replica leads
		return fmt.Errorf("noting when it begins: %w", err)
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("setting up the controller of shadow pods: %w", err)
	}
	return nil
}

// newReconciler makes the reconciler with the defaults of its options. Without an index
// it finds pods by their labels.
func newReconciler(c client.Client, live client.Reader, o Options) *reconciler {
	r := &reconciler{
		client: c, live: live, addresses: o.Addresses, clock: o.Clock, pods: labelledPods(c),
		events: discard{}, metrics: newMeasures(), memory: newMemory(), book: newBook(),
		jitter: rand.Float64, turns: throttle.NewTurns(share), nameServers: o.NameServers, homes: o.Homes,
	}
	if r.clock == nil {
		r.clock = clock.RealClock{}
	}
	r.ledger, r.budget = newLedger(o.Limits, r.clock), newBudget(r.clock)
	return r
}

// discard is a recorder of events for those who have none.
type discard struct{}

var _ events.EventRecorder = discard{}

// Eventf implements events.EventRecorder.
func (discard) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// between keeps a duration within bounds.
func between(low, d, high time.Duration) time.Duration { return max(low, min(d, high)) }
