package auth

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
	"github.com/pelago-dev/pelago/internal/throttle"
)

const (
	// renewalPause is the least time between two credentials of one tenant.
	renewalPause = 10 * time.Second
	// renewals is how many tenants are served at the same time.
	renewals = 8
	// renewalLimit bounds one reconcile.
	renewalLimit = 30 * time.Second
)

// renewal answers the requests for a new credential that consumers write into their
// Identity, and keeps there what this cluster says of itself. The first credential is
// the endpoint's: an Identity that never had one gets none here.
type renewal struct {
	cached   client.Reader
	direct   client.Client
	home     Home
	issuer   issuer
	clock    clock.PassiveClock
	recorder events.EventRecorder
	metrics  *metrics
	pauses   pauses
}

func registerRenewal(mgr ctrl.Manager, o Options, i issuer, recorder events.EventRecorder, counted *metrics) error {
	r := &renewal{
		cached: mgr.GetClient(), direct: o.Direct, home: o.Home, issuer: i,
		clock: o.Clock, recorder: recorder, metrics: counted,
	}
	err := ctrl.NewControllerManagedBy(mgr).Named("renewal").
		For(&v1alpha1.Identity{}).
		WatchesRawSource(o.Home.Source(handler.EnqueueRequestsFromMapFunc(r.all))).
		WithOptions(controller.Options{MaxConcurrentReconciles: renewals, RateLimiter: throttle.NewLimiter(), NeedLeaderElection: ptr.To(false)}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("adding the renewal of credentials: %w", err)
	}
	return nil
}

// all is every Identity: what this cluster says of itself has changed.
func (r *renewal) all(ctx context.Context, _ client.Object) []reconcile.Request {
	var list v1alpha1.IdentityList
	if err := r.cached.List(ctx, &list); err != nil {
		log.FromContext(ctx).Error(err, "identities not listed")
		return nil
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile brings one Identity's status up to date.
func (r *renewal) Reconcile(ctx context.Context, req reconcile.Request) (res ctrl.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, renewalLimit)
	defer cancel()
	id := &v1alpha1.Identity{}
	if err := r.cached.Get(ctx, req.NamespacedName, id); err != nil {
		r.pauses.forget(req.NamespacedName)
		return res, client.IgnoreNotFound(err)
	}
	if !concerns(id) {
		return res, nil
	}
	if id.Status.RequestSHA256 != hashOf(id.Spec.Request) {
		// Another replica may have answered already: ask the API server before issuing.
		if err := r.direct.Get(ctx, req.NamespacedName, id); err != nil {
			return res, client.IgnoreNotFound(err)
		}
		if !concerns(id) {
			return res, nil
		}
	}
	t := &v1alpha1.Tenant{}
	name, _ := strings.CutPrefix(id.Namespace, v1alpha1.TenantNamespacePrefix)
	if err := r.cached.Get(ctx, client.ObjectKey{Name: name}, t); err != nil {
		return res, client.IgnoreNotFound(err)
	}
	if !t.DeletionTimestamp.IsZero() {
		return res, nil
	}
	w := status.Begin(r.direct, id)
	defer w.Commit(ctx, &res, &err)
	if err := describe(&id.Status, r.home, t); err != nil {
		log.FromContext(ctx).V(1).Info("address not known; the last one stays", "cause", err.Error())
	}
	if credentialType(t) != v1alpha1.CredentialCertificate {
		return res, nil // such a consumer renews its token itself
	}
	return r.renew(ctx, id, t)
}

// concerns reports whether an Identity is one in a tenant namespace that holds, or
// held, a credential and is not coming to its end.
func concerns(id *v1alpha1.Identity) bool {
	return id.Name == v1alpha1.IdentityName && strings.HasPrefix(id.Namespace, v1alpha1.TenantNamespacePrefix) &&
		id.DeletionTimestamp.IsZero() && id.Status.RequestSHA256 != "" &&
		!status.IsTrue(id.Status.Conditions, v1alpha1.ConditionRevoked)
}

// renew issues the credential that is asked for, unless it is the one that is there.
func (r *renewal) renew(ctx context.Context, id *v1alpha1.Identity, t *v1alpha1.Tenant) (ctrl.Result, error) {
	var none ctrl.Result
	conditions := &id.Status.Conditions
	if id.Status.RequestSHA256 == hashOf(id.Spec.Request) {
		if !status.IsTrue(*conditions, v1alpha1.ConditionIssued) { // a newer generation alone is not worth a write
			status.True(conditions, id.Generation, v1alpha1.ConditionIssued, v1alpha1.ReasonIssued, "")
		}
		return none, nil
	}
	before := meta.FindStatusCondition(*conditions, v1alpha1.ConditionIssued).DeepCopy()
	asked, err := requestOf(id, t)
	if err != nil {
		message := err.Error()
		status.False(conditions, id.Generation, v1alpha1.ConditionIssued, v1alpha1.ReasonRequestRefused, message)
		r.report(id, before, v1alpha1.ReasonRequestRefused, message)
		return none, nil // until the consumer asks for something else
	}
	key := client.ObjectKeyFromObject(id)
	if wait := r.pauses.take(key, r.clock.Now()); wait > 0 {
		if !failedSigning(id) {
			status.False(conditions, id.Generation, v1alpha1.ConditionIssued, v1alpha1.ReasonRenewing, "the credential before is only seconds old")
		}
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	got, err := r.issuer.issue(ctx, order{tenant: t, request: asked, lifetime: lifetimeOf(r.home)})
	if err != nil {
		return r.failed(id, before, err)
	}
	r.metrics.issued.WithLabelValues(string(v1alpha1.CredentialCertificate), causeRenewal).Inc()
	store(&id.Status, id.Generation, v1alpha1.CredentialCertificate, asked, got)
	log.FromContext(ctx).Info("credential renewed", "tenant", t.Name, "notAfter", got.notAfter)
	r.recorder.Eventf(id, t, corev1.EventTypeNormal, v1alpha1.ReasonIssued, "Issue", "credential renewed, valid until %s", stamp(got.notAfter))
	return none, nil
}

// requestOf checks that an Identity is the Tenant's and what it asks for.
func requestOf(id *v1alpha1.Identity, t *v1alpha1.Tenant) (*request, error) {
	switch {
	case id.Spec.PeeringUID != t.Spec.PeeringUID:
		return nil, errors.New("spec.peeringUID: not that of the tenant")
	case id.Spec.Cluster.ID != t.Spec.ClusterID:
		return nil, errors.New("spec.cluster.id: not that of the tenant")
	}
	asked, err := parseRequest(id.Spec.Request, v1alpha1.UserPrefix+t.Spec.PeeringUID)
	if err != nil {
		return nil, fmt.Errorf("spec.request: %w", err)
	}
	return asked, nil
}

// failed notes that the cluster made no credential; the error brings the next attempt.
func (r *renewal) failed(id *v1alpha1.Identity, before *metav1.Condition, cause error) (ctrl.Result, error) {
	if errors.Is(cause, errSigning) {
		message := plain(cause).Error()
		status.False(&id.Status.Conditions, id.Generation, v1alpha1.ConditionIssued, v1alpha1.ReasonSigningFailed, message)
		r.report(id, before, v1alpha1.ReasonSigningFailed, message)
	} else {
		r.pauses.forget(client.ObjectKeyFromObject(id)) // nothing was made: back-off is enough
	}
	if errors.Is(cause, errGone) {
		return ctrl.Result{RequeueAfter: time.Second}, nil // another replica was faster
	}
	return ctrl.Result{}, fmt.Errorf("renewing the credential of %s: %w", id.Namespace, plain(cause))
}

// report counts and tells a failure when it is not the one that was there before.
func (r *renewal) report(id *v1alpha1.Identity, before *metav1.Condition, reason, message string) {
	if before != nil && before.Reason == reason && before.Message == message {
		return
	}
	r.metrics.refused.WithLabelValues(reason).Inc()
	r.recorder.Eventf(id, nil, corev1.EventTypeWarning, reason, "Issue", "%s", message)
}

// pauses remembers the last issuance of each tenant for as long as it holds up the
// next one.
type pauses struct {
	mu   sync.Mutex
	last map[types.NamespacedName]time.Time
}

// take is zero and begins a pause, or it is what is left of one.
func (p *pauses) take(key types.NamespacedName, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, t := range p.last {
		if now.Sub(t) >= renewalPause {
			delete(p.last, k)
		}
	}
	if t, ok := p.last[key]; ok {
		return renewalPause - now.Sub(t)
	}
	if p.last == nil {
		p.last = map[types.NamespacedName]time.Time{}
	}
	p.last[key] = now
	return 0
}

func (p *pauses) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.last, key)
}
