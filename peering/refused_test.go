package peering

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

// TestRefused holds what becomes of each answer of the endpoint.
func TestRefused(t *testing.T) {
	s := newStage(t)
	s.auth.answers = []func(w responseWriter){
		refuse(503, v1alpha1.ReasonWaiting, "the tenant is being made"),
		refuse(429, "TooManyFailures", "slow down"),
	}
	s.invite()
	s.until("waiting is shown", has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonWaiting))
	if p := s.peering(); status.IsTrue(p.Status.Conditions, v1alpha1.ConditionStalled) || !status.IsTrue(p.Status.Conditions, v1alpha1.ConditionReconciling) {
		t.Error("waiting needs nobody")
	}
	calls := s.auth.calls
	s.reconcile()
	if s.auth.calls != calls {
		t.Error("the next attempt came without a pause")
	}
	s.until("trying again is shown", has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonAuthUnreachable))
	s.until("it goes on", has(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonPending))
}

// TestInvitationRefused holds that a refused token is tried again seldom, and another
// one at once.
func TestInvitationRefused(t *testing.T) {
	s := newStage(t)
	no := refuse(403, v1alpha1.ReasonInvitationRefused, "the invitation is not accepted")
	s.auth.answers = []func(responseWriter){no, no}
	s.invite()
	p := s.until("the refusal is shown", has(v1alpha1.ConditionStalled, v1alpha1.ReasonInvitationRefused))
	if !has(v1alpha1.ConditionReady, v1alpha1.ReasonInvitationRefused)(p) {
		t.Error("Ready does not say so")
	}
	for range 3 {
		s.reconcile()
	}
	if s.auth.calls != 1 {
		t.Errorf("%d introductions with a refused token in a row, want 1", s.auth.calls)
	}
	s.clock.SetTime(s.clock.Now().Add(lookAgainMin))
	s.reconcile()
	if s.auth.calls != 2 {
		t.Errorf("%d introductions after %s, want 2", s.auth.calls, lookAgainMin)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "invitation"}}
	s.exists(secret)
	s.client.Delete(t.Context(), secret)
	s.makeToken("another")
	s.reconcile()
	if s.auth.calls != 3 {
		t.Errorf("%d introductions after a new token, want 3", s.auth.calls)
	}
	s.delete(s.peering())
	s.untilGone()
	if s.exists(secret) {
		t.Error("the token that was never used is left")
	}
	s.expectNothing()
}

// TestUntrusted holds that an endpoint of another authority gets no token.
func TestUntrusted(t *testing.T) {
	s := newStage(t)
	s.invite(func(p *v1alpha1.Peering) { p.Spec.Consume.CASHA256 = strings.Repeat("a", 64) })
	s.until("distrust is shown", has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonUntrusted))
	if s.auth.calls != 0 {
		t.Error("the token was sent to a stranger")
	}
}

// TestForbidden holds that a refusal is shown and nothing is thrown away.
func TestForbidden(t *testing.T) {
	s := newStage(t)
	s.peer()
	s.fleet.Remove(s.name)
	binding := roleBinding(s.tenant)
	if err := s.client.Delete(t.Context(), binding); err != nil {
		t.Fatal(err)
	}
	p := s.until("the refusal is shown", has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonForbidden))
	if !status.IsTrue(p.Status.Conditions, v1alpha1.ConditionReachable) || ready(p) {
		t.Errorf("conditions %+v", p.Status.Conditions)
	}
	s.credential() // it is there
	s.delete(p)
	s.untilGone()
}

// TestUnsupported holds that without the required feature nothing else happens.
func TestUnsupported(t *testing.T) {
	s := newStage(t)
	s.auth.bend = func(i *v1alpha1.IdentityStatus) { i.Cluster.Features = []string{"peering/v9"} }
	s.invite()
	s.until("it is shown", has(v1alpha1.ConditionReady, v1alpha1.ReasonUnsupported))
	if s.exists(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringNamespace(s.name)}}) {
		t.Error("there is a namespace for requests")
	}
}

// TestForeignNamespace holds that a namespace that is not ours is not taken.
func TestForeignNamespace(t *testing.T) {
	s := newStage(t)
	name := v1alpha1.PeeringNamespace(s.name)
	s.makeNamespace(name, nil)
	s.invite()
	p := s.until("it is shown", has(v1alpha1.ConditionStalled, v1alpha1.ReasonInvalid))
	s.delete(p)
	s.untilGone()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if !s.exists(n) || n.DeletionTimestamp != nil {
		t.Error("a namespace that is not ours was deleted")
	}
}
