package tenant

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=resourcequotas,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=serviceaccounts,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=get;list;watch;create;patch

const (
	// foreignDelay is how soon a namespace is looked at again that is in our way.
	foreignDelay = time.Minute
	// quotaPatience is how long the quota controller may take to count our kinds. It
	// learns of new kinds only every half minute, and a quota it has seen before that
	// refuses everything; so the quota is taken away and made anew.
	quotaPatience = 2 * time.Second
	// quotaPause is how long a namespace is without its quota then.
	quotaPause = 5 * time.Second
)

// verdict is what the namespace of the tenant's name is to the tenant.
type verdict int

const (
	absent  verdict = iota // there is none
	ours                   // it is the tenant's
	leaving                // it is being removed, or will be
	foreign                // somebody else made it
)

// judge says what a namespace is to a tenant. Ours are labelled for the tenant, and
// owned by this very Tenant unless the owner was taken off by hand.
func judge(n *corev1.Namespace, t *v1alpha1.Tenant) verdict {
	if n == nil {
		return absent
	}
	if !contains(n.Labels, childLabels(t)) && !ownedBy(n, t) {
		return foreign
	}
	controller := metav1.GetControllerOf(n)
	if n.DeletionTimestamp != nil || (controller != nil && controller.UID != t.UID) {
		return leaving
	}
	return ours
}

func ownedBy(obj metav1.Object, t *v1alpha1.Tenant) bool {
	controller := metav1.GetControllerOf(obj)
	return controller != nil && controller.UID == t.UID
}

// ensureNamespace makes the tenant namespace and what is in it for every tenant, and
// says whether the rights can follow.
func (r *reconciler) ensureNamespace(ctx context.Context, t *v1alpha1.Tenant, f *facts, next *timer) (bool, error) {
	want := tenantNamespace(t)
	switch judge(f.namespace, t) {
	case foreign:
		stall(t, v1alpha1.ConditionNamespaceReady, v1alpha1.ReasonNameRefused, fmt.Sprintf(
			"namespace %s exists and is not Pelago's; delete it, or delete this tenant and invite the consumer under another name", want.Name))
		next.in(foreignDelay)
		return false, nil
	case leaving:
		status.False(&t.Status.Conditions, t.Generation, v1alpha1.ConditionNamespaceReady, v1alpha1.ReasonWaiting,
			fmt.Sprintf("namespace %s of an earlier tenant is being removed", want.Name))
		next.in(soon)
		return false, nil
	case absent:
		// Created, not applied: what the cache does not know of yet must not be taken over.
		err := r.client.Create(ctx, want.DeepCopy(), fieldOwner)
		if apierrors.IsAlreadyExists(err) {
			next.in(soon)
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("creating namespace %s: %w", want.Name, err)
		}
	case ours:
		if !contains(f.namespace.Labels, want.Labels) || !ownedBy(f.namespace, t) {
			if err := apply(ctx, r.client, want); err != nil {
				return false, err
			}
		}
	}
	if f.lease == nil || !contains(f.lease.Labels, childLabels(t)) {
		if err := apply(ctx, r.client, lease(t)); err != nil {
			return false, err
		}
	}
	if t.Spec.CredentialType == v1alpha1.CredentialToken && (f.account == nil || !contains(f.account.Labels, childLabels(t))) {
		if err := apply(ctx, r.client, account(t)); err != nil {
			return false, err
		}
	}
	return true, r.ensureQuota(ctx, t, f, next)
}

// ensureQuota bounds the objects of the tenant namespace, which is ready once the
// cluster counts them.
func (r *reconciler) ensureQuota(ctx context.Context, t *v1alpha1.Tenant, f *facts, next *timer) error {
	want, err := quota(t)
	if err != nil {
		stall(t, v1alpha1.ConditionNamespaceReady, v1alpha1.ReasonInvalid, err.Error())
		return nil
	}
	now, since := r.clock.Now(), r.clock.Now()
	if f.namespace != nil {
		since = f.namespace.CreationTimestamp.Time
	}
	plan := planQuota(f.quota, want, now, r.memory.quotaRemoved(t.Name))
	switch {
	case plan.apply:
		err = apply(ctx, r.client, want)
	case plan.remove:
		r.memory.setQuotaRemoved(t.Name, now)
		err = remove(ctx, r.client, f.quota)
	}
	if apierrors.IsInvalid(err) {
		stall(t, v1alpha1.ConditionNamespaceReady, v1alpha1.ReasonInvalid, "spec.objects: the cluster refuses the quota made of it; correct its entries")
		return nil
	}
	if err != nil {
		return err
	}
	if plan.again > 0 {
		next.in(plan.again)
	}
	ready := plan.counted || now.Sub(since) >= r.quotaGrace
	// What was ready stays so: making its quota anew is no step back.
	was := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionNamespaceReady)
	if !ready && was != nil && was.Status == metav1.ConditionTrue && f.namespace != nil {
		ready = true
	}
	if ready {
		reason, told := v1alpha1.ReasonReady, capped(t)
		if told != "" {
			reason = v1alpha1.ReasonCapped
		}
		status.True(&t.Status.Conditions, t.Generation, v1alpha1.ConditionNamespaceReady, reason, told)
		return nil
	}
	status.False(&t.Status.Conditions, t.Generation, v1alpha1.ConditionNamespaceReady, v1alpha1.ReasonPending,
		"waiting for the cluster to count the objects in "+want.Namespace)
	next.in(r.quotaGrace - now.Sub(since))
	return nil
}

// quotaPlan is what to do about the quota of a tenant namespace.
type quotaPlan struct {
	apply, remove bool
	counted       bool          // the cluster counts all of our kinds
	again         time.Duration // look again, if not zero
}

// planQuota compares the quota there is with the one wanted. removed is when it was
// taken away last because the cluster did not count our kinds.
func planQuota(have, want *corev1.ResourceQuota, now, removed time.Time) quotaPlan {
	switch {
	case have == nil:
		if wait := quotaPause - now.Sub(removed); wait > 0 {
			return quotaPlan{again: wait}
		}
		return quotaPlan{apply: true}
	case have.DeletionTimestamp != nil:
		return quotaPlan{again: soon}
	case !contains(have.Labels, want.Labels) || !covers(have.Spec.Hard, want.Spec.Hard):
		return quotaPlan{apply: true}
	case len(have.Status.Hard) == 0:
		return quotaPlan{} // not looked at, and so not enforced, yet
	}
	for name := range objectBounds {
		if _, counted := have.Status.Used[corev1.ResourceName("count/"+name)]; counted || !ownKind(name) {
			continue
		}
		if wait := quotaPatience - now.Sub(have.CreationTimestamp.Time); wait > 0 {
			return quotaPlan{again: wait}
		}
		return quotaPlan{remove: true, again: quotaPause}
	}
	return quotaPlan{counted: true}
}

// covers reports whether have says of every resource of want the same. Somebody may
// have added others.
func covers(have, want corev1.ResourceList) bool {
	for name, quantity := range want {
		if there, ok := have[name]; !ok || !equality.Semantic.DeepEqual(there, quantity) {
			return false
		}
	}
	return true
}

// stall says that nothing goes on until somebody acts, in a condition of a phase and
// for the whole object.
func stall(t *v1alpha1.Tenant, condition, reason, message string) {
	status.False(&t.Status.Conditions, t.Generation, condition, reason, message)
	status.True(&t.Status.Conditions, t.Generation, v1alpha1.ConditionStalled, reason, message)
}

// clearStalled takes Stalled away before the phases, which set it if it still holds.
func clearStalled(t *v1alpha1.Tenant) {
	meta.RemoveStatusCondition(&t.Status.Conditions, v1alpha1.ConditionStalled)
}
