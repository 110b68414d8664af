package peering

import (
	"context"
	"fmt"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// connect keeps the connection as the credential says, and says whether the provider answers by it.
func (r *reconciler) connect(ctx context.Context, v *visit) (bool, error) {
	v.Status.Credential = v.cred.status()
	v.Status.TenantNamespace = v.cred.TenantNamespace
	conn := r.connection(v.Name, v.Spec.Consume, v.cred)
	v.Status.ServerURL = conn.ServerURL
	if v.expired(v.now) {
		r.fleet.Remove(v.Name)
		return false, nil
	}
	if err := r.fleet.Set(ctx, conn); err != nil {
		v.stall(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonInvalid, err.Error())
		return false, nil
	}
	v.yes(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonIssued, "")
	if own := v.Spec.Consume; own.ServerURL != v.cred.OwnServer || own.ProxyURL != v.cred.OwnProxy {
		c := *v.cred
		c.OwnServer, c.OwnProxy = own.ServerURL, own.ProxyURL
		if err := r.save(ctx, v, &c); err != nil {
			return false, err
		}
	}
	peer, ok := r.fleet.Peer(v.Name)
	if !ok {
		v.soon(time.Second)
		return false, nil
	}
	v.peer = peer
	return v.reach(peer.State()), nil
}

// shown tells of what a provider shows beyond what is kept of it.
func shown(beyond error) string {
	if beyond == nil {
		return ""
	}
	return "the provider shows more than this cluster keeps (" + printable(beyond.Error()) + "): the rest is slow, and nothing is added; delete what is not needed"
}

// reach takes over the state of a connection, and says whether the peer answers. One that shows more
// than is taken does, and is told and asked what keeps the peering alive.
func (v *visit) reach(s fleet.State) bool {
	switch {
	case s.Reason == v1alpha1.ReasonForbidden:
		v.contact = v.now
		v.yes(v1alpha1.ConditionReachable, v1alpha1.ReasonPeerReachable, "")
		v.no(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonForbidden, fmt.Sprintf(
			"the provider answers and refuses this cluster's identity; if it has ended the peering: pelago unpeer %s", v.Name))
	case s.Reachable:
		v.contact = v.now
		v.yes(v1alpha1.ConditionReachable, v1alpha1.ReasonPeerReachable, shown(s.Beyond))
	case s.Reason == v1alpha1.ReasonPending:
		if !isTrue(v.Peering, v1alpha1.ConditionReachable) { // a restart is no interruption
			v.no(v1alpha1.ConditionReachable, v1alpha1.ReasonPending, "connecting to the provider's API server")
		}
		v.soon(10 * time.Second)
	default:
		if isTrue(v.Peering, v1alpha1.ConditionReachable) {
			v.contact = s.Since
		}
		if s.Reason == v1alpha1.ReasonTooMany {
			v.no(v1alpha1.ConditionReachable, v1alpha1.ReasonPeerUnreachable,
				"the provider shows more than this cluster takes ("+printable(s.Err.Error())+"); ask its owner what is in the tenant namespace")
			return true
		}
		v.no(v1alpha1.ConditionReachable, v1alpha1.ReasonPeerUnreachable, fmt.Sprintf(
			"the provider's API server %s has not answered since %s; trying again", v.Status.ServerURL, s.Since.UTC().Format(time.RFC3339)))
		v.soon(beatEvery) // the connection tells earlier when that changes
	}
	return s.Reachable
}
