// Package tenant is the provider's side of a peering: what one consumer may use
// here, and what it does use. It owns the kind Tenant and all that hangs on it: the
// tenant namespace with its bounds, the consumer's rights, its flow at the API server
// and its Peering; it counts what the tenant's pods request, notices goodbyes and
// silence, and takes everything away at the end. It also holds the arithmetic of
// limits for those who run pods for tenants. It issues no credentials, makes no
// offers and never calls the consumer.
package tenant

import (
	"cmp"
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// component is the value of LabelManagedBy on what this package makes, and the
// reporter of its events.
const component = "pelago-manager"

// Options is what Register needs beside a manager.
type Options struct {
	// Namespace is Pelago's own; v1alpha1.SystemNamespace if empty.
	Namespace string
	// Clock tells the time; the real one if nil.
	Clock clock.PassiveClock
	// Tunnels says how tunnels to tenants are. There are none if nil.
	Tunnels Tunnels
	// Drainers remove what a tenant has, when it is drained and when it ends.
	Drainers []Drainer
	// Empty removes what was made for a tenant that ends in one of its namespaces that is kept, with the same duties
	// as Drain. There is nothing to remove if nil.
	Empty func(ctx context.Context, namespace *corev1.Namespace) error
	// Usage counts what tenants use; a new one if nil. It is for those who need the
	// sums at once, as Tenant.status.used is a few seconds late.
	Usage *Usage
	// QuotaGrace is how long a new quota may lack its status before the tenant namespace
	// counts as ready anyway; one second if zero.
	QuotaGrace time.Duration
}

// Tunnels says whether a tunnel carries packets both ways, and whether that is known.
type Tunnels interface {
	// TenantAlive is about the tunnel of a tenant.
	TenantAlive(tenant string) (alive, known bool)
	// InvitationAlive is about that of an invitation in band, which is needed until the tenant's is alive.
	InvitationAlive(invitation string) (alive, known bool)
}

// Drainer removes what a tenant has in a part of Pelago, such as its shadow pods.
type Drainer interface {
	// Drain removes it and returns nil when nothing is left to ask for; what is asked
	// for may still be going. It is called again until then, must bear being called when
	// there is nothing, and must honour the deadline of ctx.
	Drain(ctx context.Context, tenant *v1alpha1.Tenant) error
}

// Cache says what must be in the manager's cache for this package, and bounds it to
// what is Pelago's.
func Cache() map[client.Object]cache.ByObject {
	exists, err := labels.NewRequirement(v1alpha1.LabelTenant, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	ours := cache.ByObject{Label: labels.NewSelector().Add(*exists)}
	return map[client.Object]cache.ByObject{
		&coordinationv1.Lease{}:     ours,
		&corev1.ResourceQuota{}:     ours,
		&corev1.ServiceAccount{}:    ours,
		&rbacv1.RoleBinding{}:       ours,
		&flowcontrolv1.FlowSchema{}: ours,
	}
}

// Register adds the controllers of this package to a manager.
func Register(mgr ctrl.Manager, o Options) error {
	r := newReconciler(mgr.GetClient(), mgr.GetAPIReader(), o)
	r.events = mgr.GetEventRecorder(component)
	if err := metrics.Registry.Register(r.gauges); err != nil {
		return fmt.Errorf("registering metrics of tenants: %w", err)
	}
	child := toTenant()
	err := ctrl.NewControllerManagedBy(mgr).For(&v1alpha1.Tenant{}).Named("tenant").
		WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: retries()}).
		Watches(&corev1.Namespace{}, child).
		Watches(&corev1.ResourceQuota{}, child, builder.WithPredicates(predicate.Or[client.Object](
			predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, quotaObserved()))).
		Watches(&corev1.ServiceAccount{}, child).
		Watches(&rbacv1.RoleBinding{}, child).
		Watches(&coordinationv1.Lease{}, child).
		Watches(&flowcontrolv1.FlowSchema{}, child).
		Watches(&v1alpha1.Identity{}, child).
		Watches(&v1alpha1.Peering{}, peeringToTenant(mgr.GetClient())).
		WatchesRawSource(usageSource(mgr.GetCache(), r.usage)).
		Complete(r)
	if err != nil {
		return fmt.Errorf("setting up the controller of tenants: %w", err)
	}
	g := &goodbye{client: mgr.GetClient(), live: mgr.GetAPIReader()}
	err = ctrl.NewControllerManagedBy(mgr).For(&v1alpha1.Identity{}).Named("goodbye").WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: retries()}).Complete(g)
	if err != nil {
		return fmt.Errorf("setting up the controller of goodbyes: %w", err)
	}
	i := &invitations{client: mgr.GetClient(), live: mgr.GetAPIReader(), clock: r.clock, tunnels: o.Tunnels}
	err = ctrl.NewControllerManagedBy(mgr).For(&v1alpha1.Invitation{}).Named("invitation").WithOptions(controller.Options{MaxConcurrentReconciles: 4, RateLimiter: retries()}).
		Watches(&v1alpha1.Tenant{}, toInvitations(mgr.GetClient())).
		Complete(i)
	if err != nil {
		return fmt.Errorf("setting up the controller of invitations: %w", err)
	}
	return nil
}

// retryMax bounds the wait after an error, so that a step of the end that fails is looked at again before it is given up.
const retryMax = giveUpAfter / 2

func retries() workqueue.TypedRateLimiter[ctrl.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](5*time.Millisecond, retryMax)
}

// newReconciler makes the reconciler of tenants with the defaults of its options.
func newReconciler(c client.Client, live client.Reader, o Options) *reconciler {
	r := &reconciler{
		client: c, live: live,
		namespace:  cmp.Or(o.Namespace, v1alpha1.SystemNamespace),
		clock:      o.Clock,
		usage:      o.Usage,
		drainers:   o.Drainers,
		empty:      o.Empty,
		tunnels:    o.Tunnels,
		quotaGrace: cmp.Or(o.QuotaGrace, time.Second),
		limit:      reconcileLimit,
	}
	if r.clock == nil {
		r.clock = clock.RealClock{}
	}
	if r.usage == nil {
		r.usage = NewUsage()
	}
	r.gauges = newGauges(r.clock)
	r.memory = newMemory()
	return r
}
