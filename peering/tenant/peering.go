package tenant

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

// +kubebuilder:rbac:groups=pelago.dev,resources=peerings,verbs=get;list;watch;create;patch;delete

// ensureRights gives the tenant's user exactly its rights and its place at the API
// server. A tenant that people cannot see as a Peering gets none.
func (r *reconciler) ensureRights(ctx context.Context, t *v1alpha1.Tenant, f *facts, next *timer) error {
	var shown peeringPlan
	conflict, err := r.elder(ctx, t, next)
	if err == nil && conflict == "" {
		shown, err = r.ensurePeering(ctx, t, f, next)
		conflict = shown.conflict
	}
	if err != nil {
		return err
	}
	want := bindings(t, r.namespace)
	switch {
	case conflict == "":
	case shown.wait:
		status.False(&t.Status.Conditions, t.Generation, v1alpha1.ConditionRightsReady, v1alpha1.ReasonWaiting, conflict)
		want = nil
	default:
		stall(t, v1alpha1.ConditionRightsReady, v1alpha1.ReasonNameRefused, conflict)
		want = nil
	}
	plan := planRights(f.bindings, want)
	for _, b := range plan.remove {
		if err := remove(ctx, r.client, b); err != nil {
			return err
		}
	}
	for _, b := range plan.apply {
		err := apply(ctx, r.client, b)
		if apierrors.IsInvalid(err) {
			// One without our labels, which the cache leaves out, holds the name with another
			// role.
			if err = removeNamed(ctx, r.client, b); err == nil {
				err = apply(ctx, r.client, b)
			}
		}
		if err != nil {
			return err
		}
	}
	schema := flow(t)
	if f.flow == nil || !contains(f.flow.Labels, schema.Labels) || !ownedBy(f.flow, t) || !equality.Semantic.DeepEqual(f.flow.Spec, schema.Spec) {
		if err := apply(ctx, r.client, schema); err != nil {
			return err
		}
	}
	if conflict == "" {
		status.True(&t.Status.Conditions, t.Generation, v1alpha1.ConditionRightsReady, v1alpha1.ReasonReady, "")
	}
	return nil
}

// elder returns a sentence if another Tenant is of the same cluster or the same user, which
// would have the rights and the limits of both, and is older or has its rights already. The caches of Tenants that are made
// at the same time do not tell, so until there are rights the API server is asked.
func (r *reconciler) elder(ctx context.Context, t *v1alpha1.Tenant, next *timer) (string, error) {
	if status.IsTrue(t.Status.Conditions, v1alpha1.ConditionRightsReady) {
		return "", nil
	}
	list := &v1alpha1.TenantList{}
	if err := r.live.List(ctx, list); err != nil {
		return "", fmt.Errorf("listing tenants: %w", err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if o.UID == t.UID || o.Spec.ClusterID != t.Spec.ClusterID && o.Spec.PeeringUID != t.Spec.PeeringUID {
			continue
		}
		if status.IsTrue(o.Status.Conditions, v1alpha1.ConditionRightsReady) || older(o, t) {
			next.in(foreignDelay)
			return fmt.Sprintf("tenant %s, which was first, is of the same cluster or peering; delete one of them", o.Name), nil
		}
	}
	return "", nil
}

// older says whether a comes before b; their names decide between those of one second.
func older(a, b *v1alpha1.Tenant) bool {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name)) < 0
}

// peeringPlan is what shows a tenant as a Peering.
type peeringPlan struct {
	create   *v1alpha1.Peering
	add      *v1alpha1.Peering // gets spec.provide
	wait     bool              // one is going away
	conflict string            // a sentence for people; there are no rights until it is over
	unnamed  bool              // the conflict is that no invitation named the Peering
}

// welcome reports whether the owner has said that a tenant belongs into a Peering.
func welcome(t *v1alpha1.Tenant, peering string, i *v1alpha1.Invitation) bool {
	uid := t.Annotations[v1alpha1.AnnotationInvitation]
	return uid == "" || (i != nil && string(i.UID) == uid && i.Spec.Consumer == peering)
}

// invitation reads the one that a tenant came of, past the cache; nil if it is gone.
func (r *reconciler) invitation(ctx context.Context, t *v1alpha1.Tenant) (*v1alpha1.Invitation, error) {
	list := &v1alpha1.InvitationList{}
	if err := r.live.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing invitations: %w", err)
	}
	for n := range list.Items {
		if string(list.Items[n].UID) == t.Annotations[v1alpha1.AnnotationInvitation] {
			return &list.Items[n], nil
		}
	}
	return nil, nil
}

// planPeering finds the Peering of the tenant's cluster, whatever its name, among
// those of its cluster or name. A consumer only claims the id of its cluster: it gets
// into a Peering that the owner has made if the owner has named that one in the
// invitation, or has made the Tenant too.
func planPeering(t *v1alpha1.Tenant, have []v1alpha1.Peering, invitation *v1alpha1.Invitation) peeringPlan {
	have = slices.Clone(have)
	// The one that provides to the tenant already comes first, then the oldest.
	other := func(p v1alpha1.Peering) int {
		if p.Spec.ClusterID == t.Spec.ClusterID && p.Spec.Provide != nil && p.Spec.Provide.Tenant == t.Name {
			return 0
		}
		return 1
	}
	slices.SortFunc(have, func(a, b v1alpha1.Peering) int {
		return cmp.Or(other(a)-other(b), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	for i := range have {
		p := &have[i]
		switch {
		case p.Spec.ClusterID != t.Spec.ClusterID:
			continue
		case p.DeletionTimestamp != nil:
			return peeringPlan{wait: true}
		case p.Spec.Provide != nil && p.Spec.Provide.Tenant == t.Name:
			return peeringPlan{}
		case !welcome(t, p.Name, invitation):
			return peeringPlan{unnamed: true, conflict: fmt.Sprintf(
				"peering %[1]s is with the cluster this one claims to be; if it is, a line has to name it, made by the provider's owner: pelago generate peer-command --consumer %[1]s", p.Name)}
		}
		return peeringPlan{add: p}
	}
	for i := range have {
		switch {
		case have[i].Name != t.Name:
		case have[i].DeletionTimestamp != nil:
			return peeringPlan{wait: true, conflict: fmt.Sprintf(
				"peering %[1]s is with another cluster, and is being removed; to go on before that is done: pelago unpeer %[1]s --force", t.Name)}
		default:
			return peeringPlan{conflict: fmt.Sprintf(
				"peering %s is with another cluster; delete it, or delete this tenant and invite the consumer under another name", t.Name)}
		}
	}
	return peeringPlan{create: &v1alpha1.Peering{
		ObjectMeta: metav1.ObjectMeta{Name: t.Name, Labels: childLabels(t)},
		Spec:       v1alpha1.PeeringSpec{ClusterID: t.Spec.ClusterID, Provide: &v1alpha1.Provide{Tenant: t.Name}},
	}}
}

// ensurePeering makes the tenant visible as a Peering, and returns what was to be done,
// with a sentence if another cluster has its name.
func (r *reconciler) ensurePeering(ctx context.Context, t *v1alpha1.Tenant, f *facts, next *timer) (peeringPlan, error) {
	plan := planPeering(t, f.peerings, nil)
	if plan.unnamed {
		i, err := r.invitation(ctx, t)
		if err != nil {
			return plan, err
		}
		plan = planPeering(t, f.peerings, i)
	}
	switch {
	case plan.wait && plan.conflict != "":
		next.in(foreignDelay) // its events tell earlier
	case plan.wait:
		next.in(soon)
	case plan.create != nil:
		err := r.client.Create(ctx, plan.create, fieldOwner)
		if apierrors.IsAlreadyExists(err) {
			next.in(soon) // the cache will tell whose it is
			return plan, nil
		}
		if err != nil {
			return plan, fmt.Errorf("creating peering %s: %w", t.Name, err)
		}
	case plan.add != nil:
		before := plan.add.DeepCopy()
		plan.add.Spec.Provide = &v1alpha1.Provide{Tenant: t.Name}
		err := r.client.Patch(ctx, plan.add, client.MergeFrom(before), fieldOwner)
		if err != nil {
			return plan, fmt.Errorf("adding the tenant to peering %s: %w", plan.add.Name, err)
		}
	}
	return plan, nil
}
