package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
	"github.com/pelago-dev/pelago/peering/claim"
)

const (
	// aliveFor is how long a consumer counts as alive after a sign of life. It gives one
	// a minute.
	aliveFor = 3 * time.Minute
	// settleFor is how long this program watches a consumer before it calls it abandoned:
	// after an outage of its own cluster the consumer needs time to come back.
	settleFor = 5 * time.Minute
	// usageEvery is how often the sums of a tenant are written at most.
	usageEvery = 5 * time.Second
	// hearEvery is how often, at most, is taken over what a consumer says of itself: each time is a
	// write of its Tenant, and of what shows that.
	hearEvery = 5 * time.Second
	// maxUsed is how many resources a v1alpha1.ResourceList may hold.
	maxUsed = 64
)

// observe sets what is known of the consumer's life, and says whether it has been
// silent for longer than the owner wants to wait.
func (r *reconciler) observe(t *v1alpha1.Tenant, f *facts, next *timer) bool {
	r.hear(t, f.identity, next)
	now := r.clock.Now()
	seen := r.memory.look(t, f.lease, now)
	if !seen.contact.IsZero() {
		minute := metav1.NewTime(seen.contact.Truncate(time.Minute))
		if t.Status.LastContact == nil || minute.After(t.Status.LastContact.Time) || t.Status.LastContact.After(now) {
			t.Status.LastContact = &minute
		}
	}
	// The consumer was there when it became a tenant.
	last := latest(t.CreationTimestamp.Time, seen.contact)
	conditions, generation := &t.Status.Conditions, t.Generation
	if silent := now.Sub(last); silent < aliveFor {
		status.True(conditions, generation, v1alpha1.ConditionConsumerAlive, v1alpha1.ReasonReady, "")
		next.in(aliveFor - silent)
	} else {
		status.False(conditions, generation, v1alpha1.ConditionConsumerAlive, v1alpha1.ReasonSilent,
			"not heard of since "+last.UTC().Format(time.RFC3339)+"; see whether the consumer and the network to it are up")
	}
	if t.Spec.AbandonAfter == nil {
		return false
	}
	from := latest(last.Add(t.Spec.AbandonAfter.Duration), seen.first.Add(settleFor))
	if wait := from.Sub(now); wait > 0 {
		next.in(wait)
		return false
	}
	return true
}

// hear takes over what the consumer says of itself, if it can be shown to people and
// it is who it was. Otherwise the last that it said stays. The first change counts at once, others in a row
// wait.
func (r *reconciler) hear(t *v1alpha1.Tenant, i *v1alpha1.Identity, next *timer) {
	if i == nil || (t.Status.Cluster != nil && equality.Semantic.DeepEqual(*t.Status.Cluster, i.Spec.Cluster)) {
		return
	}
	if t.Status.Cluster != nil { // what it is to begin with is no change
		if wait := r.memory.hear(t.Name, r.clock.Now()); wait > 0 {
			next.in(wait)
			return
		}
	}
	err := claim.Cluster(&i.Spec.Cluster)
	if err == nil && i.Spec.Cluster.ID != t.Spec.ClusterID {
		err = errors.New("spec.cluster.id: of another cluster")
	}
	if err == nil {
		t.Status.Cluster = i.Spec.Cluster.DeepCopy()
		return
	}
	if r.memory.complain(t.Name, i.Generation) {
		r.warn(t, v1alpha1.ReasonInvalid, "Hear", "what the consumer says of itself in its identity is not taken over: "+err.Error())
	}
}

// count sets what the tenant uses, not more often than every few seconds.
func (r *reconciler) count(ctx context.Context, t *v1alpha1.Tenant, f *facts, next *timer) {
	if n := int32(len(f.others)); n != t.Status.Namespaces {
		t.Status.Namespaces = n
	}
	used, complete := r.usage.Used(t.Name)
	if !complete {
		return
	}
	used = shown(used, t.Spec.Limits, func() []string { return r.ofNodes(ctx) })
	if sameList(t.Status.Used, used) {
		return
	}
	now := r.clock.Now()
	if wait := usageEvery - now.Sub(r.memory.usageWritten(t.Name)); wait > 0 {
		next.in(wait)
		return
	}
	r.memory.setUsageWritten(t.Name, now)
	t.Status.Used = used
}

// shown is what of a tenant's sum is told: resources with a limit, those that every cluster has,
// and of the rest what nodes have, as much as a list may hold. Other names the tenant has made up:
// a pod may ask for what there is nowhere, and each would be told for ever after.
func shown(used v1alpha1.ResourceList, limits *v1alpha1.TenantLimits, ofNodes func() []string) v1alpha1.ResourceList {
	told := v1alpha1.ResourceList{}
	tell := func(names []string) {
		for _, name := range names {
			if amount, there := used[name]; there && len(told) < maxUsed {
				told[name] = amount
			}
		}
	}
	if limits != nil {
		tell(slices.Sorted(maps.Keys(limits.Resources))) // first: what is offered goes by these
	}
	tell([]string{string(corev1.ResourceCPU), string(corev1.ResourceMemory), string(corev1.ResourcePods), string(corev1.ResourceEphemeralStorage)})
	if len(told) < len(used) {
		tell(ofNodes())
	}
	return told
}

// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// ofNodes are the names of the resources that this cluster's own nodes have.
func (r *reconciler) ofNodes(ctx context.Context) []string {
	var nodes corev1.NodeList
	if err := r.client.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil // they are told the next time
	}
	names := map[string]bool{}
	for i := range nodes.Items {
		if nodes.Items[i].Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode {
			continue
		}
		for name := range nodes.Items[i].Status.Capacity {
			names[string(name)] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// consumerLeft deletes a tenant whose consumer has said goodbye: by deleting its
// Identity, which is being deleted or, had it no finalizer, gone. The cache may show that
// of an earlier Tenant.
func (r *reconciler) consumerLeft(ctx context.Context, t *v1alpha1.Tenant, f *facts) (bool, error) {
	introduced := t.Status.Cluster != nil
	if f.identity != nil && f.identity.DeletionTimestamp == nil || f.identity == nil && !introduced {
		return false, nil
	}
	there, err := identity(ctx, r.live, t)
	if err != nil || there != nil && there.DeletionTimestamp == nil || there == nil && !introduced {
		return false, err
	}
	r.note(t, "Goodbye", "Delete", "the consumer has ended the peering")
	return true, r.delete(ctx, t)
}

// abandon deletes a tenant whose goodbye nobody expects.
func (r *reconciler) abandon(ctx context.Context, t *v1alpha1.Tenant) error {
	forced := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: t.Name}}
	mark := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:"true"}}}`, t.UID, v1alpha1.AnnotationForce)
	err := r.client.Patch(ctx, forced, client.RawPatch(types.MergePatchType, []byte(mark)))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("marking an abandoned tenant: %w", err)
	}
	r.warn(t, v1alpha1.ReasonAbandoned, "Delete", "the consumer was silent for longer than spec.abandonAfter; removing what belongs to it")
	return r.delete(ctx, t)
}

// delete deletes this very Tenant; its finalizer does the rest.
func (r *reconciler) delete(ctx context.Context, t *v1alpha1.Tenant) error {
	return remove(ctx, r.client, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: t.Name, UID: t.UID}})
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
