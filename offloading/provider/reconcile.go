package provider

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/throttle"
)

const (
	// limit bounds one look at a ShadowPod.
	limit = 20 * time.Second
	// makeLimit is how much of that the API server may take to make a pod: the rest is for saying that it did not.
	makeLimit = 15 * time.Second
	// turnAgain is when a ShadowPod is looked at again that somebody else has just written.
	turnAgain = 20 * time.Millisecond
	// warmUp is how long after its start this program does not trust its cache to know
	// what its predecessor wrote last.
	warmUp = time.Minute
	// clockDoubt is how far the API server's clock may be ahead of this one's.
	clockDoubt = 10 * time.Second
)

// reconciler looks after ShadowPods.
type reconciler struct {
	client  client.Client
	live    client.Reader // past the cache
	clock   clock.PassiveClock
	pods    podFinder
	events  events.EventRecorder
	budget  *buckets // of events
	metrics *measures
	memory  *memory
	book    *book
	ledger  *ledger
	turns   *throttle.Turns
	jitter  func() float64
	// nameServers of the pods that are made; nil while there are none.
	nameServers func() []netip.Addr
	// homes of the pods that are made; nil while there is no network.
	homes Homes

	first sync.Once
	began time.Time

	addresses bool // of pods are told
}

// +kubebuilder:rbac:groups=pelago.dev,resources=shadowpods,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=pelago.dev,resources=shadowpods/status,verbs=patch
// +kubebuilder:rbac:groups=pelago.dev,resources=namespacemaps;resourceoffers;tenants,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=pods/ephemeralcontainers;pods/resize,verbs=patch
// +kubebuilder:rbac:groups="",resources=namespaces;nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile looks at one ShadowPod and its pod.
func (r *reconciler) Reconcile(ctx context.Context, key ctrl.Request) (ctrl.Result, error) {
	tenant := tenantName(key.Namespace)
	if tenant == "" {
		return ctrl.Result{}, nil
	}
	r.begin()
	if !r.turns.Take(tenant, key) {
		return ctrl.Result{}, nil // it is called when there is a turn
	}
	defer r.turns.Give(tenant)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()

	s, err := r.whole(ctx, key.NamespacedName)
	if apierrors.IsNotFound(err) {
		return r.orphans(ctx, key.NamespacedName)
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the shadow pod: %w", err)
	}
	n := r.memory.get(key.NamespacedName)
	n.awaits = false
	f, p, err := r.plan(ctx, s, &n)
	if err == nil {
		p, err = r.apply(ctx, f, p, &n)
	}
	n.state = state(f.shadow, p)
	r.memory.set(key.NamespacedName, n)
	switch {
	case apierrors.IsConflict(err): // somebody else was faster: what they did comes by
		return ctrl.Result{RequeueAfter: turnAgain}, nil
	case err != nil:
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: p.again}, nil
}

// plan gathers and decides. Before it makes a pod of a ShadowPod that may have had one,
// it reads that past the cache: a pod that has ended must not be made again.
func (r *reconciler) plan(ctx context.Context, s *v1alpha1.ShadowPod, n *note) (facts, plan, error) {
	f, err := r.gather(ctx, s, n)
	if err != nil {
		return f, plan{status: s.Status}, err
	}
	p := decide(f)
	if p.create {
		if over := r.ledger.full(f.terms, client.ObjectKeyFromObject(s), f.made); over != nil { // before anybody is asked: there may be thousands
			p.create = false
			return f, r.refused(f, p, n, v1alpha1.ReasonLimitExceeded, over.Error()), nil
		}
	}
	if !p.create || !r.doubtful(f) {
		return f, p, nil
	}
	fresh := &v1alpha1.ShadowPod{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(s), fresh); err != nil {
		p.create = false
		return f, p, client.IgnoreNotFound(err) // gone: its event comes
	}
	if fresh.UID == s.UID && fresh.ResourceVersion == s.ResourceVersion {
		return f, p, nil
	}
	f, err = r.gather(ctx, fresh, n)
	if err != nil {
		return f, plan{status: fresh.Status}, err
	}
	return f, decide(f), nil
}

// doubtful says that the cache alone does not prove that a pod is to be made.
func (r *reconciler) doubtful(f facts) bool {
	s := f.shadow.Status
	return !always(f.wanted()) || s.Ref != nil || s.Phase != "" || len(s.Conditions) > 0 || f.note.pod != "" ||
		f.now.Sub(r.began) < warmUp && !f.shadow.CreationTimestamp.After(r.began.Add(clockDoubt)) // no predecessor has seen a newer one
}

// begin notes when this program began to look after ShadowPods.
func (r *reconciler) begin() { r.first.Do(func() { r.began = r.clock.Now() }) }

// orphans removes the pods of a ShadowPod that is gone, and lets go of those in namespaces that
// are the tenant's no more.
func (r *reconciler) orphans(ctx context.Context, key client.ObjectKey) (ctrl.Result, error) {
	tenant := tenantName(key.Namespace)
	r.memory.forget(key)
	r.ledger.cancel(tenant, key)
	pods, taken, _, err := r.find(ctx, tenant, key.Name)
	if err != nil || len(pods)+len(taken) == 0 {
		return ctrl.Result{}, err
	}
	s := &v1alpha1.ShadowPod{}
	if err := r.live.Get(ctx, key, s); err == nil {
		return ctrl.Result{}, nil // the cache has not got it yet
	} else if !apierrors.IsNotFound(err) {
		return ctrl.Result{}, fmt.Errorf("reading the shadow pod: %w", err)
	}
	f := facts{now: r.clock.Now(), tenant: tenant, strays: pods}
	if err := r.gatherNodes(ctx, &f); err != nil {
		return ctrl.Result{}, err
	}
	var p plan
	for _, pod := range pods {
		p.end(f, pod, nil)
	}
	for _, pod := range taken {
		p.free(pod)
	}
	err = r.clear(ctx, p)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: turnAgain}, nil
	}
	return ctrl.Result{RequeueAfter: p.again}, err
}

// apply does what was planned, and returns the plan as it turned out.
func (r *reconciler) apply(ctx context.Context, f facts, p plan, n *note) (plan, error) {
	if p.adopt {
		return r.adopt(ctx, f, p, n)
	}
	s := f.shadow.DeepCopy()
	if p.first {
		if wait, err := r.write(ctx, f, s, p, n); wait > 0 || err != nil {
			p.in(wait)
			return p, err
		}
	}
	if err := r.clear(ctx, p); err != nil {
		return p, err
	}
	var err error
	switch {
	case p.create:
		if p, err = r.create(ctx, f, p, n); err != nil { // which is returned, whatever becomes of the status: it has to be tried again, later each time
			_, _ = r.write(ctx, f, s, p, n)
		}
	case p.update:
		p, err = r.change(ctx, f, p, n)
	case f.pod == nil:
		r.ledger.cancel(f.tenant, client.ObjectKeyFromObject(s))
	}
	if err != nil {
		return p, err
	}
	if p.done {
		return r.done(ctx, f, s, p, n)
	}
	if !p.first {
		wait, err := r.write(ctx, f, s, p, n)
		if wait > 0 {
			p.in(wait)
		}
		return p, err
	}
	return p, nil
}

// adopt adds our finalizer, so that the ShadowPod outlives its pod. The update asks for
// another look.
func (r *reconciler) adopt(ctx context.Context, f facts, p plan, n *note) (plan, error) {
	if wait := n.wrote.Add(writeEvery).Sub(f.now); wait > 0 && wait <= writeEvery {
		p.in(wait)
		return p, nil
	}
	n.wrote = f.now
	s := f.shadow.DeepCopy()
	controllerutil.AddFinalizer(s, v1alpha1.FinalizerShadowPod)
	if err := r.client.Patch(ctx, s, locked(f.shadow)); client.IgnoreNotFound(err) != nil {
		return p, fmt.Errorf("adding the finalizer to the shadow pod: %w", err)
	}
	return p, nil
}

// releaseAgain is how long the cache may not show that a ShadowPod was let go, before it is once more.
const releaseAgain = 2 * time.Second

// done lets the ShadowPod go.
func (r *reconciler) done(ctx context.Context, f facts, s *v1alpha1.ShadowPod, p plan, n *note) (plan, error) {
	if wait := n.let.Add(releaseAgain).Sub(f.now); n.released == s.UID && wait > 0 && wait <= releaseAgain {
		p.in(wait)
		return p, nil
	}
	before := s.DeepCopy()
	controllerutil.RemoveFinalizer(s, v1alpha1.FinalizerShadowPod)
	if err := r.client.Patch(ctx, s, locked(before)); client.IgnoreNotFound(err) != nil {
		return p, fmt.Errorf("taking the finalizer off the shadow pod: %w", err)
	}
	n.released, n.let = before.UID, f.now
	return p, nil
}

// write writes the status unless that has to wait. s gets the version it was written as.
func (r *reconciler) write(ctx context.Context, f facts, s *v1alpha1.ShadowPod, p plan, n *note) (time.Duration, error) {
	differs, wait := writeIn(f, p, n)
	if !differs || wait > 0 {
		return wait, nil
	}
	before := s.DeepCopy()
	s.Status = p.status
	if err := r.client.Status().Patch(ctx, s, locked(before)); err != nil {
		if apierrors.IsNotFound(err) {
			return 0, nil
		}
		return 0, fmt.Errorf("writing the status of the shadow pod: %w", err)
	}
	n.wrote, n.dirty = f.now, time.Time{}
	r.announce(f, p)
	return 0, nil
}

// locked is a patch that holds only if nobody else has written since.
func locked(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
}
