package offer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/internal/status"
)

// provider answers the requests in tenant namespaces with offers.
type provider struct {
	client   client.Client
	live     client.Reader // past the cache
	clock    clock.PassiveClock
	settings func() home.Config
	reader   ResourceReader
	events   events.EventRecorder
	metrics  *measures

	offers pace // changes of offers
	writes pace // those and all else that is written for a request
}

// +kubebuilder:rbac:groups=pelago.dev,resources=resourcerequests,verbs=get;list;watch
// +kubebuilder:rbac:groups=pelago.dev,resources=resourcerequests/status,verbs=patch
// +kubebuilder:rbac:groups=pelago.dev,resources=resourceoffers,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=pelago.dev,resources=resourceoffers/status,verbs=patch
// +kubebuilder:rbac:groups=pelago.dev,resources=tenants,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconcile answers one request.
func (p *provider) Reconcile(ctx context.Context, key ctrl.Request) (res ctrl.Result, err error) {
	request := &v1alpha1.ResourceRequest{}
	if err := p.client.Get(ctx, key.NamespacedName, request); apierrors.IsNotFound(err) {
		return ctrl.Result{}, p.discard(ctx, key.NamespacedName)
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading the request: %w", err)
	}
	if !request.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the offer goes when it has gone
	}
	f, err := p.gather(ctx, request)
	if err != nil {
		return ctrl.Result{}, err
	}
	if f.offer != nil && !metav1.IsControlledBy(f.offer, request) { // of an older request of that name
		if err := p.remove(ctx, key.NamespacedName, f.offer); err != nil {
			return ctrl.Result{}, err
		}
		f.offer = nil
	}
	if f.tenant != nil && !f.tenant.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the tenant's end takes all this away
	}
	if err := p.say(ctx, f); err != nil {
		return ctrl.Result{}, err
	}
	a := decide(f)
	planned := plan(f, a)
	writes := a.action == put || a.action == remove && f.offer != nil || !equality.Semantic.DeepEqual(request.Status, planned.Status)
	if writes {
		if wait := p.writes.wait(key.NamespacedName, p.clock.Now()); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
	}
	before := request.DeepCopy()
	w := status.Begin(p.client, request)
	defer w.Commit(ctx, &res, &err)
	offer, err := p.apply(ctx, f, a)
	if err != nil {
		return ctrl.Result{}, err
	}
	report(f, a, request, offer != nil)
	if offer != nil {
		p.metrics.offered(strings.TrimPrefix(key.Namespace, v1alpha1.TenantNamespacePrefix), request.Name, amountsOf(offer.Spec.Resources))
		if err := p.acknowledge(ctx, request, offer); err != nil {
			return ctrl.Result{}, err
		}
	}
	p.announce(before, request)
	if writes {
		p.writes.note(key.NamespacedName, p.clock.Now())
	}
	return ctrl.Result{RequeueAfter: max(a.again, 0)}, nil
}

// gather reads what a decision needs.
func (p *provider) gather(ctx context.Context, request *v1alpha1.ResourceRequest) (facts, error) {
	f := facts{now: p.clock.Now(), request: request, settings: p.settings()}
	requests := &v1alpha1.ResourceRequestList{}
	if err := p.client.List(ctx, requests, client.InNamespace(request.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return f, fmt.Errorf("listing the tenant's requests: %w", err)
	}
	eldest := oldest(requests.Items, maxRequests)
	f.surplus = len(eldest) == maxRequests && !slices.ContainsFunc(eldest, func(r *v1alpha1.ResourceRequest) bool { return r.Name == request.Name })
	tenant, err := p.tenant(ctx, request.Namespace)
	if err != nil || tenant == nil {
		return f, err
	}
	f.tenant = tenant
	offers := &v1alpha1.ResourceOfferList{}
	if err := p.client.List(ctx, offers, client.InNamespace(request.Namespace)); err != nil {
		return f, fmt.Errorf("listing the tenant's offers: %w", err)
	}
	there := map[string]bool{}
	for i := range offers.Items {
		if o := &offers.Items[i]; o.DeletionTimestamp.IsZero() {
			there[o.Name] = true
			if o.Name == request.Name {
				f.offer = o
			}
		}
	}
	if f.offer == nil && status.IsTrue(request.Status.Conditions, v1alpha1.ConditionOffered) {
		// Withdrawn, unless only the cache has not seen it yet.
		o := &v1alpha1.ResourceOffer{}
		if err := p.live.Get(ctx, client.ObjectKeyFromObject(request), o); client.IgnoreNotFound(err) != nil {
			return f, fmt.Errorf("reading the offer: %w", err)
		} else if err == nil && o.DeletionTimestamp.IsZero() {
			f.offer = o
		}
	}
	if f.surplus {
		return f, nil
	}
	f.read, err = p.reader.Read(ctx, Consumer{ClusterID: tenant.Spec.ClusterID, Tenant: tenant.Name, Labels: tenant.Labels})
	if err != nil && !errors.Is(err, errUnknown) {
		return f, fmt.Errorf("reading what is free: %w", err)
	}
	f.unknown, f.heard = err != nil, err == nil
	f.asks = sharers(eldest, there, request.Name, tenant.Spec.State, f.read.Used)
	f.written = p.offers.at(client.ObjectKeyFromObject(request))
	return f, nil
}

// sharers are the requests of a tenant that get something: the sound ones that were
// not declined and, of a cordoned tenant, those that have an offer. What one uses already
// is part of what it names.
func sharers(requests []*v1alpha1.ResourceRequest, offered map[string]bool, self string, state v1alpha1.TenantState, used map[string]v1alpha1.ResourceList) []ask {
	var asks []ask
	for _, r := range requests {
		newcomer := state == v1alpha1.TenantCordoned && !offered[r.Name] && r.Name != self
		if !r.DeletionTimestamp.IsZero() || newcomer || r.Spec.Decision == v1alpha1.DecisionDeclined || checkRequest(r.Spec) != nil {
			continue
		}
		asks = append(asks, ask{name: r.Name, created: r.CreationTimestamp.Time, named: amountsOf(r.Spec.Resources).minus(amountsOf(used[r.Name]))})
	}
	return asks
}

// tenant finds the tenant of a namespace, nil if there is none. A label alone does
// not make a namespace a tenant's: its name has to say the same.
func (p *provider) tenant(ctx context.Context, namespace string) (*v1alpha1.Tenant, error) {
	found := &corev1.Namespace{}
	if err := p.client.Get(ctx, client.ObjectKey{Name: namespace}, found); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the tenant namespace: %w", err)
	}
	name := found.Labels[v1alpha1.LabelTenant]
	if name == "" || v1alpha1.TenantNamespace(name) != namespace {
		return nil, nil
	}
	tenant := &v1alpha1.Tenant{}
	if err := p.client.Get(ctx, client.ObjectKey{Name: name}, tenant); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading the tenant: %w", err)
	}
	return tenant, nil
}

// apply makes the offer as decided and returns it, nil if there is none now.
func (p *provider) apply(ctx context.Context, f facts, a answer) (*v1alpha1.ResourceOffer, error) {
	key := client.ObjectKeyFromObject(f.request)
	switch {
	case a.action == remove:
		return nil, p.remove(ctx, key, f.offer)
	case a.action == keep:
		return f.offer, nil
	case f.offer == nil:
		offer := newOffer(f.request, f.tenant.Name)
		offer.Spec = a.spec
		if err := p.client.Create(ctx, offer); err != nil {
			return nil, fmt.Errorf("creating the offer: %w", err)
		}
		p.note(key)
		return offer, nil
	}
	offer := f.offer.DeepCopy()
	offer.Spec = a.spec
	if err := p.client.Patch(ctx, offer, client.MergeFrom(f.offer)); err != nil {
		return nil, fmt.Errorf("changing the offer: %w", err)
	}
	p.note(key)
	return offer, nil
}

// newOffer is an empty offer that goes with its request.
func newOffer(request *v1alpha1.ResourceRequest, tenant string) *v1alpha1.ResourceOffer {
	controller := true
	return &v1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{
		Name: request.Name, Namespace: request.Namespace,
		Labels: map[string]string{v1alpha1.LabelManagedBy: component, v1alpha1.LabelTenant: tenant},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceRequest",
			Name: request.Name, UID: request.UID, Controller: &controller,
		}},
	}}
}

// note remembers a change of an offer, so that nothing is written again at once
// even if what follows it fails.
func (p *provider) note(key types.NamespacedName) {
	now := p.clock.Now()
	p.offers.note(key, now)
	p.writes.note(key, now)
}

// discard removes the offer of a request that is gone.
func (p *provider) discard(ctx context.Context, key types.NamespacedName) error {
	offer := &v1alpha1.ResourceOffer{}
	if err := p.client.Get(ctx, key, offer); apierrors.IsNotFound(err) {
		offer = nil
	} else if err != nil {
		return fmt.Errorf("reading the offer: %w", err)
	}
	return p.remove(ctx, key, offer)
}

// remove deletes an offer, and its figures. All offers in tenant
// namespaces are this component's: consumers have no right to make any.
func (p *provider) remove(ctx context.Context, key types.NamespacedName, offer *v1alpha1.ResourceOffer) error {
	if offer != nil {
		if err := p.client.Delete(ctx, offer, client.Preconditions{UID: &offer.UID}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting the offer: %w", err)
		}
		p.writes.note(key, p.clock.Now())
	}
	p.metrics.gone(strings.TrimPrefix(key.Namespace, v1alpha1.TenantNamespacePrefix), key.Name)
	return nil
}

// plan is the request as it will be once an answer is carried out.
func plan(f facts, a answer) *v1alpha1.ResourceRequest {
	planned := f.request.DeepCopy()
	report(f, a, planned, a.action == put || a.action == keep && f.offer != nil)
	return planned
}

// report writes the outcome into the request in memory.
func report(f facts, a answer, request *v1alpha1.ResourceRequest, offered bool) {
	conditions, generation := &request.Status.Conditions, request.Generation
	request.Status.ObservedGeneration = generation
	a.offered.Type, a.offered.ObservedGeneration = v1alpha1.ConditionOffered, generation
	a.offered.LastTransitionTime = metav1.NewTime(f.now)
	meta.SetStatusCondition(conditions, a.offered)
	switch {
	case request.Spec.Decision == v1alpha1.DecisionDeclined:
		status.False(conditions, generation, v1alpha1.ConditionAccepted, v1alpha1.ReasonDeclined, "")
	case !offered:
		status.False(conditions, generation, v1alpha1.ConditionAccepted, a.offered.Reason, a.offered.Message)
	case accepted(request):
		status.True(conditions, generation, v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, "")
	default:
		status.False(conditions, generation, v1alpha1.ConditionAccepted, v1alpha1.ReasonUndecided, "the consumer has not decided yet")
	}
	if a.stalled {
		status.True(conditions, generation, v1alpha1.ConditionStalled, a.offered.Reason, a.offered.Message)
	} else {
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionStalled)
	}
}

// acknowledge writes the consumer's decision into the offer.
func (p *provider) acknowledge(ctx context.Context, request *v1alpha1.ResourceRequest, offer *v1alpha1.ResourceOffer) error {
	before := offer.DeepCopy()
	c := meta.FindStatusCondition(request.Status.Conditions, v1alpha1.ConditionAccepted)
	meta.SetStatusCondition(&offer.Status.Conditions, metav1.Condition{
		Type: c.Type, Status: c.Status, Reason: c.Reason, Message: c.Message, ObservedGeneration: offer.Generation,
	})
	same := meta.FindStatusCondition(before.Status.Conditions, c.Type)
	if same != nil && same.Status == c.Status && same.Reason == c.Reason && same.Message == c.Message {
		return nil // an older generation is not worth a write: amounts change all the time
	}
	offer.Status.ObservedGeneration = offer.Generation
	if err := p.client.Status().Patch(ctx, offer, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the decision into the offer: %w", err)
	}
	return nil
}
