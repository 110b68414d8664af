package peering

import (
	"context"
	"fmt"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// duplicateAgain is how soon a duplicate looks whether the other Peering is gone.
const duplicateAgain = 5 * time.Second

// validate stops a Peering that cannot be, and says what to do.
func (r *reconciler) validate(ctx context.Context, v *visit) (bool, error) {
	others := &v1alpha1.PeeringList{}
	if err := r.client.List(ctx, others); err != nil {
		return false, fmt.Errorf("listing peerings: %w", err)
	}
	reason, message := judge(v.Peering, r.home.ID(), others.Items)
	if reason == "" {
		return true, nil
	}
	v.stall(v1alpha1.ConditionIdentityReady, reason, message)
	if reason == v1alpha1.ReasonDuplicate {
		v.soon(duplicateAgain)
	}
	return false, nil
}

// judge says why a Peering cannot consume; nothing if it can.
func judge(p *v1alpha1.Peering, own string, all []v1alpha1.Peering) (reason, message string) {
	if err := v1alpha1.CheckClusterName(p.Name); err != nil {
		return v1alpha1.ReasonInvalid, "metadata.name: " + err.Error()
	}
	if p.Spec.ClusterID == own {
		return v1alpha1.ReasonInvalid, "spec.clusterID: it is this cluster's own; run the line of pelago generate at another cluster"
	}
	for i := range all {
		if o := &all[i]; o.UID != p.UID && o.Spec.ClusterID == p.Spec.ClusterID && first(o, p) {
			if o.Spec.Consume == nil {
				return v1alpha1.ReasonDuplicate, fmt.Sprintf("Peering %s is with the same cluster already; delete this one and add its spec.consume there", o.Name)
			}
			return v1alpha1.ReasonDuplicate, fmt.Sprintf("Peering %s is with the same cluster already; delete this one, or first: pelago unpeer %s", o.Name, o.Name)
		}
	}
	return "", ""
}

// first says whether a was there before b.
func first(a, b *v1alpha1.Peering) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}
