package tenant

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

const (
	// reconcileLimit bounds one look at a tenant, all its requests together.
	reconcileLimit = 30 * time.Second
	// soon is when something is looked at again that is about to change.
	soon = time.Second
)

// reconciler keeps everything that belongs to a Tenant as its spec says, and removes
// it at the end.
type reconciler struct {
	client     client.Client
	live       client.Reader // reads past the cache
	namespace  string
	clock      clock.PassiveClock
	usage      *Usage
	drainers   []Drainer
	empty      func(context.Context, *corev1.Namespace) error // nil if nothing is made in mapped namespaces
	tunnels    Tunnels                                        // nil if there are none
	quotaGrace time.Duration
	limit      time.Duration // of one look
	gauges     *gauges
	memory     *memory
	events     events.EventRecorder
}

// +kubebuilder:rbac:groups=pelago.dev,resources=tenants,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=pelago.dev,resources=tenants/status,verbs=patch
// +kubebuilder:rbac:groups=pelago.dev,resources=identities,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile looks at one tenant.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (res ctrl.Result, err error) {
	bounded, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	t := &v1alpha1.Tenant{}
	if err := r.client.Get(bounded, req.NamespacedName, t); err != nil {
		if apierrors.IsNotFound(err) {
			r.gauges.forget(req.Name)
			r.memory.forget(req.Name)
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	w := status.Begin(r.client, t)
	before := t.DeepCopy()
	defer func() {
		if err == nil {
			r.announce(before, t)
		}
	}()
	defer w.Commit(ctx, &res, &err)
	if !t.DeletionTimestamp.IsZero() {
		return r.end(ctx, t)
	}
	if controllerutil.AddFinalizer(t, v1alpha1.FinalizerTenant) {
		return ctrl.Result{}, nil // stored first; its event brings us back
	}
	f, err := gather(bounded, r.client, t)
	if err != nil {
		return ctrl.Result{}, err
	}
	return r.keep(bounded, t, f)
}

// keep goes through the phases of a tenant that lives.
func (r *reconciler) keep(ctx context.Context, t *v1alpha1.Tenant, f *facts) (ctrl.Result, error) {
	gone, err := r.consumerLeft(ctx, t, f)
	if err != nil || gone {
		return ctrl.Result{}, err
	}
	t.Status.Namespace = v1alpha1.TenantNamespace(t.Name)
	clearStalled(t)
	next := newTimer()
	proceed, err := r.ensureNamespace(ctx, t, f, next)
	if err == nil && proceed {
		err = r.ensureRights(ctx, t, f, next)
	}
	// What follows only reads, and must not wait until the above has succeeded.
	abandoned := r.observe(t, f, next)
	r.count(ctx, t, f, next)
	conclude(t)
	r.gauges.set(t)
	if err != nil {
		return ctrl.Result{}, err
	}
	if gone, err := r.turnAway(ctx, t, f, next); err != nil || gone {
		return ctrl.Result{}, err
	}
	if abandoned {
		return ctrl.Result{}, r.abandon(ctx, t)
	}
	if t.Spec.State == v1alpha1.TenantDrained {
		if err := r.drain(ctx, t); err != nil {
			return ctrl.Result{}, err
		}
	}
	return next.result(), nil
}

// conclude derives what the phases together mean.
func conclude(t *v1alpha1.Tenant) {
	s, generation := &t.Status, t.Generation
	status.Derive(&s.Conditions, generation, v1alpha1.ConditionReady, v1alpha1.ReasonPending,
		v1alpha1.ConditionNamespaceReady, v1alpha1.ConditionRightsReady, v1alpha1.ConditionConsumerAlive)
	s.ObservedGeneration = generation
	if !status.IsTrue(s.Conditions, v1alpha1.ConditionReady) {
		return
	}
	switch t.Spec.State {
	case v1alpha1.TenantCordoned:
		status.True(&s.Conditions, generation, v1alpha1.ConditionReady, v1alpha1.ReasonCordoned,
			"the tenant is cordoned: nothing new is accepted; set spec.state to Active to end this")
	case v1alpha1.TenantDrained:
		status.True(&s.Conditions, generation, v1alpha1.ConditionReady, v1alpha1.ReasonDrained,
			"the tenant is drained: what it had is removed; set spec.state to Active to end this")
	}
}

// timer keeps the soonest time at which to look again.
type timer struct{ after time.Duration }

func newTimer() *timer { return &timer{} }

// in asks for a look after d, at once if d is not positive.
func (t *timer) in(d time.Duration) {
	d = max(d, time.Millisecond)
	if t.after == 0 || d < t.after {
		t.after = d
	}
}

func (t *timer) result() ctrl.Result { return ctrl.Result{RequeueAfter: t.after} }
