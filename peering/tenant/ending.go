package tenant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=identities,verbs=patch;delete
// +kubebuilder:rbac:groups=pelago.dev,resources=identities/status,verbs=patch
// +kubebuilder:rbac:groups=pelago.dev,resources=resourcerequests;resourceoffers,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=pelago.dev,resources=namespacemaps;shadowpods;shadowobjects;networkconfigs;networkrules;networkpaths,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=pelago.dev,resources=invitations,verbs=get;list;watch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=list
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=delete

const (
	// goodbyeFor is how long a consumer has to say goodbye when the provider ends.
	goodbyeFor = 10 * time.Second
	// goodbyeEvery bounds how late the goodbye is seen should its event be lost.
	goodbyeEvery = time.Second
	// answerFor is how long a consumer in band has, from its goodbye, to hear that it was heard, and
	// answerEvery how often is looked whether it has.
	answerFor, answerEvery = 10 * time.Second, 500 * time.Millisecond
	// giveUpAfter is how long a step of the end may fail, each time since it first did, before the rest
	// goes on without it. Taking the rights away is never given up.
	giveUpAfter = time.Minute
	// giveUpSlow is how long the end may last before a step fails too that has no answer, or more to do than
	// there is time for in one look: until then each look brings it on, unless something there never answers.
	giveUpSlow = 10 * time.Minute
	// conflictDelay is how soon an object is read again that somebody else has changed.
	conflictDelay = 20 * time.Millisecond
	// pageSize and maxPages bound how many objects are read at once, and in one look.
	pageSize = 50
	maxPages = 200
	// drainLimit bounds one call of a Drainer, and emptying one namespace.
	drainLimit = 5 * time.Second
)

// end takes a tenant away: first its rights, then what it has, then what it is. Every
// step can be repeated, and what is missing is fine.
func (r *reconciler) end(whole context.Context, t *v1alpha1.Tenant) (ctrl.Result, error) {
	ctx, cancel := context.WithTimeout(whole, r.limit)
	defer cancel()
	if !controllerutil.ContainsFinalizer(t, v1alpha1.FinalizerTenant) {
		return ctrl.Result{}, nil
	}
	status.False(&t.Status.Conditions, t.Generation, v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, "the peering has ended; what belongs to the tenant is being removed")
	f, err := gather(ctx, r.live, t)
	if err != nil {
		return ctrl.Result{}, err
	}
	if err := r.endRights(ctx, t, f); err != nil {
		return ctrl.Result{}, err
	}
	const notice = "the notice in its identity"
	if err := r.revoke(ctx, f.identity); err == nil {
		r.memory.succeeded(t, notice)
	} else if apierrors.IsConflict(err) || !r.giveUp(ctx, t, notice, err) {
		return again(err)
	}
	if wait := r.goodbyeWait(t, f.identity); wait > 0 {
		status.False(&t.Status.Conditions, t.Generation, v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, "waiting for the consumer's goodbye, 10 s at most")
		return ctrl.Result{RequeueAfter: min(wait, goodbyeEvery)}, nil
	}
	for _, step := range r.steps() {
		err := r.try(whole, ctx, step, t, f)
		switch {
		case err == nil:
			r.memory.succeeded(t, step.name)
		case errors.Is(err, errFurther):
			r.memory.succeeded(t, step.name)
			return ctrl.Result{RequeueAfter: conflictDelay}, nil
		case (ctx.Err() != nil || errors.Is(err, errUnfinished)) && !r.slow(t):
			r.memory.succeeded(t, step.name)
			return ctrl.Result{}, err // it was brought on, and that says nothing of the next ones
		case errors.Is(err, errUnheard):
			status.False(&t.Status.Conditions, t.Generation, v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, "waiting until the consumer has taken its end of the tunnel away, 10 s at most")
			return ctrl.Result{RequeueAfter: answerEvery}, nil
		case apierrors.IsConflict(err):
			return again(err)
		case !r.giveUp(ctx, t, step.name, err):
			return ctrl.Result{}, err
		default:
			r.warn(t, "LeftBehind", "Remove", "could not remove "+step.name+" of the tenant; look for objects labelled "+v1alpha1.LabelTenant+"="+t.Name)
		}
	}
	controllerutil.RemoveFinalizer(t, v1alpha1.FinalizerTenant)
	r.gauges.forget(t.Name)
	return ctrl.Result{}, nil
}

// try does a step in the time that is left of a look, or in one of its own where the others would have
// none for good.
func (r *reconciler) try(whole, ctx context.Context, s step, t *v1alpha1.Tenant, f *facts) error {
	if r.slow(t) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(whole, r.limit)
		defer cancel()
	}
	return s.do(ctx, t, f)
}

// slow says whether the end of a tenant has lasted so long that what takes too long counts as failing.
func (r *reconciler) slow(t *v1alpha1.Tenant) bool {
	return r.clock.Since(t.DeletionTimestamp.Time) >= giveUpSlow
}

// giveUp says whether the end goes on without a step, or a part of one, that has failed for too long. How long
// the whole end has lasted does not count: that of a large tenant takes longer without any failure.
func (r *reconciler) giveUp(ctx context.Context, t *v1alpha1.Tenant, step string, cause error) bool {
	now := r.clock.Now()
	if now.Sub(r.memory.failing(t, step, now)) < giveUpAfter {
		return false
	}
	ctrl.LoggerFrom(ctx).Error(cause, "giving up a step of removing a tenant", "step", step)
	return true
}

// again turns a conflict into another look soon.
func again(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: conflictDelay}, nil
	}
	return ctrl.Result{}, err
}

// step is a part of the end.
type step struct {
	name string
	do   func(context.Context, *v1alpha1.Tenant, *facts) error
}

// steps are what follows when nobody needs to be waited for, in order. The Identity
// goes when all the rest has: its end is what the consumer waits for.
func (r *reconciler) steps() []step {
	return []step{
		{"what it runs", func(ctx context.Context, t *v1alpha1.Tenant, _ *facts) error { return r.drain(ctx, t) }},
		{"its namespaces", r.endNamespaces},
		{"the manager's rights in its namespaces", r.disarm},
		{"its tunnel", r.answered},
		{"its requests", r.endRequests},
		{"its invitations", r.endInvitations},
		{"its flow schema", r.endFlow},
		{"its identity", r.endIdentity},
		{"its last rights", r.endFarewell},
		{"its tenant namespace", r.endTenantNamespace},
		{"its peering", r.endPeering},
	}
}

// endRights leaves the consumer the right to say goodbye, and no other. The others go
// even if that one cannot be given, which is given up in time.
func (r *reconciler) endRights(ctx context.Context, t *v1alpha1.Tenant, f *facts) error {
	var want []*rbacv1.RoleBinding
	if judge(f.namespace, t) == ours && f.identity != nil {
		want = append(want, farewell(t))
	}
	plan := planRights(f.bindings, want)
	var failed []error
	mapped := &rbacv1.RoleBindingList{}
	if err := r.live.List(ctx, mapped, client.MatchingLabels(childLabels(t))); err != nil {
		failed = append(failed, fmt.Errorf("listing role bindings: %w", err))
	}
	for i := range mapped.Items {
		if b := &mapped.Items[i]; b.Name == v1alpha1.ConsumerPodsRole {
			failed = append(failed, remove(ctx, r.client, b))
		}
	}
	for _, b := range plan.remove {
		failed = append(failed, remove(ctx, r.client, b))
	}
	const last = "its right to say goodbye"
	for _, b := range plan.apply {
		if err := apply(ctx, r.client, b); err == nil || leavingNamespace(err) {
			r.memory.succeeded(t, last)
		} else if !r.giveUp(ctx, t, last, err) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// leavingNamespace reports that nothing can be made because the namespace goes or is
// gone.
func leavingNamespace(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, "NamespaceTerminating")
}

// revoke tells a consumer that has not said goodbye that the peering has ended.
func (r *reconciler) revoke(ctx context.Context, i *v1alpha1.Identity) error {
	if i == nil || i.DeletionTimestamp != nil || status.IsTrue(i.Status.Conditions, v1alpha1.ConditionRevoked) {
		return nil
	}
	before := i.DeepCopy()
	status.True(&i.Status.Conditions, i.Generation, v1alpha1.ConditionRevoked, v1alpha1.ReasonEndedByProvider, "the provider has ended the peering")
	err := r.client.Status().Patch(ctx, i, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("revoking the identity: %w", err)
	}
	return nil
}

// goodbyeWait is how long the consumer's goodbye is still waited for: not if it has
// said it, nor if nobody expects it any more.
func (r *reconciler) goodbyeWait(t *v1alpha1.Tenant, i *v1alpha1.Identity) time.Duration {
	if i == nil || i.DeletionTimestamp != nil || t.Annotations[v1alpha1.AnnotationForce] == "true" {
		return 0
	}
	return goodbyeFor - r.clock.Since(t.DeletionTimestamp.Time)
}

// errUnfinished says that there was more to remove than there was time for.
var errUnfinished = errors.New("there is more than there was time for")

// drain asks everybody who has something of the tenant's to remove it; that one cannot holds up no other.
func (r *reconciler) drain(ctx context.Context, t *v1alpha1.Tenant) error {
	var failed []error
	for _, d := range r.drainers {
		bounded, cancel := context.WithTimeout(ctx, drainLimit)
		err := d.Drain(bounded, t.DeepCopy())
		if err != nil && bounded.Err() != nil {
			err = fmt.Errorf("%w: %w", errUnfinished, err)
		}
		cancel()
		if err != nil {
			failed = append(failed, fmt.Errorf("draining the tenant: %w", err))
		}
	}
	return errors.Join(failed...)
}

// errUnheard says that a consumer in band may not know yet that its goodbye was heard.
var errUnheard = errors.New("the consumer's end of the tunnel is there")

// answered waits until a consumer in band that has said goodbye knows that it was heard. What it hears comes
// through the tunnel that goes next, and may be lost when that of the invitation gives way to the
// tenant's: then it asks again, which it could not for good if there were no tunnel. Once it
// knows it takes its end away.
func (r *reconciler) answered(ctx context.Context, t *v1alpha1.Tenant, f *facts) error {
	if r.tunnels == nil || !t.Spec.InBand || f.identity == nil || f.identity.DeletionTimestamp == nil ||
		t.Annotations[v1alpha1.AnnotationForce] == "true" || r.clock.Since(f.identity.DeletionTimestamp.Time) >= answerFor {
		return nil
	}
	if alive, _ := r.tunnels.TenantAlive(t.Name); alive {
		return errUnheard
	}
	all, err := r.invitations(ctx, t)
	if err != nil {
		return err
	}
	for i := range all {
		if alive, _ := r.tunnels.InvitationAlive(all[i].Name); alive {
			return errUnheard
		}
	}
	return nil
}

// invitations are those that have made a tenant.
func (r *reconciler) invitations(ctx context.Context, t *v1alpha1.Tenant) ([]v1alpha1.Invitation, error) {
	list := &v1alpha1.InvitationList{}
	if err := r.live.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing invitations: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(i v1alpha1.Invitation) bool { return i.Status.TenantUID != string(t.UID) }), nil
}

// endRequests removes requests, offers, what was offloaded and the Lease, whatever holds them: nobody would
// let go of them any more.
func (r *reconciler) endRequests(ctx context.Context, t *v1alpha1.Tenant, f *facts) error {
	if f.namespace == nil || judge(f.namespace, t) == foreign {
		return nil
	}
	for _, list := range []client.ObjectList{
		&v1alpha1.ResourceRequestList{}, &v1alpha1.ResourceOfferList{}, &v1alpha1.NamespaceMapList{},
		&v1alpha1.ShadowPodList{}, &v1alpha1.ShadowObjectList{}, &v1alpha1.NetworkConfigList{}, &v1alpha1.NetworkRulesList{}, &v1alpha1.NetworkPathList{},
	} {
		if err := r.releaseAll(ctx, list, f.namespace.Name); err != nil {
			return err
		}
	}
	if f.lease == nil {
		return nil
	}
	return r.release(ctx, f.lease, anyFinalizer)
}

// releaseAll releases all objects of a kind, a page at a time: they are the consumer's,
// many and large. What is released is gone, so the first page is always the next one.
func (r *reconciler) releaseAll(ctx context.Context, list client.ObjectList, namespace string) error {
	for range maxPages {
		if err := r.live.List(ctx, list, client.InNamespace(namespace), client.Limit(pageSize)); err != nil {
			return fmt.Errorf("listing %T: %w", list, err)
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			return r.release(ctx, item.(client.Object), anyFinalizer)
		})
		if err != nil || meta.LenList(list) < pageSize {
			return err
		}
	}
	return fmt.Errorf("more than %d pages of %T", maxPages, list)
}

// ourFinalizer picks Pelago's.
func ourFinalizer(name string) bool {
	return strings.HasPrefix(name, v1alpha1.GroupVersion.Group+"/")
}

// anyFinalizer picks all: a consumer may write what it likes into its objects, and
// nothing in a tenant namespace may outlive it.
func anyFinalizer(string) bool { return true }

// release deletes an object and takes the finalizers off that are picked. No new ones
// can be added to what is being deleted.
func (r *reconciler) release(ctx context.Context, obj client.Object, pick func(string) bool) error {
	if err := remove(ctx, r.client, obj); err != nil {
		return err
	}
	now, err := read(ctx, r.live, obj.GetNamespace(), obj.GetName(), obj.DeepCopyObject().(client.Object))
	if err != nil || now == nil || now.GetUID() != obj.GetUID() {
		return err
	}
	return unhold(ctx, r.client, now, pick)
}

// unhold takes the finalizers off an object that are picked, unless it has changed
// since it was read. That is a conflict.
func unhold(ctx context.Context, c client.Client, obj client.Object, pick func(string) bool) error {
	held := slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), pick)
	if len(held) == len(obj.GetFinalizers()) {
		return nil
	}
	before := obj.DeepCopyObject().(client.Object)
	obj.SetFinalizers(held)
	err := c.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking finalizers off %T %s: %w", obj, obj.GetName(), err)
	}
	return nil
}

func (r *reconciler) endInvitations(ctx context.Context, t *v1alpha1.Tenant, _ *facts) error {
	all, err := r.invitations(ctx, t)
	if err != nil {
		return err
	}
	for i := range all {
		if err := remove(ctx, r.client, &all[i]); err != nil {
			return err
		}
	}
	return nil
}

func (r *reconciler) endFlow(ctx context.Context, t *v1alpha1.Tenant, f *facts) error {
	if f.flow == nil || !contains(f.flow.Labels, childLabels(t)) {
		return nil
	}
	return remove(ctx, r.client, f.flow)
}

func (r *reconciler) endIdentity(ctx context.Context, t *v1alpha1.Tenant, f *facts) error {
	if f.identity == nil {
		return nil
	}
	pick := ourFinalizer
	if f.namespace != nil && judge(f.namespace, t) != foreign {
		pick = anyFinalizer
	}
	return r.release(ctx, f.identity, pick)
}

// endFarewell takes the right to say goodbye, as there is nobody left to say it. The
// namespace would take it along, but may be held by something.
func (r *reconciler) endFarewell(ctx context.Context, t *v1alpha1.Tenant, f *facts) error {
	if f.namespace == nil || judge(f.namespace, t) == foreign {
		return nil
	}
	return removeNamed(ctx, r.client, farewell(t))
}

func (r *reconciler) endTenantNamespace(ctx context.Context, t *v1alpha1.Tenant, f *facts) error {
	if judge(f.namespace, t) != ours {
		return nil
	}
	return remove(ctx, r.client, f.namespace)
}

// endPeering takes the tenant out of its Peering, and the Peering away if there is
// nothing else in it. Nothing of the tenant is left to evict: who comes next is not its.
func (r *reconciler) endPeering(ctx context.Context, t *v1alpha1.Tenant, f *facts) error {
	for i := range f.peerings {
		p := &f.peerings[i]
		if p.Spec.ClusterID != t.Spec.ClusterID || p.Spec.Provide != nil && p.Spec.Provide.Tenant != t.Name {
			continue
		}
		if p.Spec.Provide != nil && p.Spec.Consume == nil {
			if err := r.release(ctx, p, func(name string) bool { return name == v1alpha1.FinalizerProvide }); err != nil {
				return err
			}
			continue
		}
		before := p.DeepCopy()
		p.Spec.Provide = nil
		if !controllerutil.RemoveFinalizer(p, v1alpha1.FinalizerProvide) && before.Spec.Provide == nil {
			continue
		}
		err := r.client.Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("taking the tenant out of peering %s: %w", p.Name, err)
		}
	}
	return nil
}
