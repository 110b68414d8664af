package cli

import (
	"context"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// heardWithin is how long a consumer counts as heard of now: it gives a sign of life about
// once a minute, and may be late.
const heardWithin = 90 * time.Second

// heartbeats reads when consumers were heard of, to the second: Tenants say it to the minute.
// Who may not read Leases sees that.
func (c *Cluster) heartbeats(ctx context.Context, s *snapshot) {
	if len(s.tenants) == 0 {
		return
	}
	s.heard = map[string]time.Time{}
	var leases coordinationv1.LeaseList
	// What could not be read is as if it were not there.
	_ = eachPage(ctx, c.Client, &leases, func() {
		for i := range leases.Items {
			if l := &leases.Items[i]; strings.HasPrefix(l.Namespace, v1alpha1.TenantNamespacePrefix) {
				s.heard[strings.TrimPrefix(l.Namespace, v1alpha1.TenantNamespacePrefix)] = renewed(l)
			}
		}
		leases.Items = nil
	}, client.MatchingFields{"metadata.name": v1alpha1.IdentityName})
}

// renewed is when a consumer renewed its Lease: by this cluster's clock, which notes when the
// field was written, else by the consumer's. Zero if it never did.
func renewed(l *coordinationv1.Lease) time.Time {
	if l.Spec.RenewTime == nil {
		return time.Time{}
	}
	for _, f := range l.ManagedFields {
		if f.Time != nil && f.FieldsV1 != nil && strings.Contains(string(f.FieldsV1.GetRawBytes()), `"f:renewTime"`) {
			return f.Time.Time
		}
	}
	return l.Spec.RenewTime.Time
}

// contactOf is when a remote cluster was last heard of. What is kept of it is cut to the
// minute; the end of the contact, or a heartbeat, says it more exactly.
func contactOf(p *v1alpha1.Peering, heard map[string]time.Time) *metav1.Time {
	last := p.Status.LastContact
	if last == nil {
		return nil
	}
	at := last.Time
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReachable)
	if c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonPeerUnreachable && c.LastTransitionTime.After(at) {
		at = at.Add(min(c.LastTransitionTime.Sub(at), time.Minute-time.Second))
	}
	if p.Spec.Provide != nil {
		at = latest(at, heard[p.Spec.Provide.Tenant])
	}
	return &metav1.Time{Time: at}
}

// heardOf is when a consumer was last heard of.
func heardOf(t *v1alpha1.Tenant, heard map[string]time.Time) *metav1.Time {
	at := heard[t.Name]
	if t.Status.LastContact != nil {
		at = latest(at, t.Status.LastContact.Time)
	}
	if at.IsZero() {
		return nil
	}
	return &metav1.Time{Time: at}
}

// overdue reports whether a heartbeat is known to be overdue.
func overdue(heard, now time.Time) bool { return !heard.IsZero() && now.Sub(heard) > heardWithin }

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
