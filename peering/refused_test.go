package peering

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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

// TestNotAnInvitation: a Secret that is used for something else is neither sent to the
// endpoint of who names it in a Peering nor deleted with that.
func TestNotAnInvitation(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	reader := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "resource-reader"},
		StringData: map[string]string{"token": "a-bearer-token", "ca.crt": "an authority"},
	}
	if err := s.client.Create(t.Context(), reader); err != nil {
		t.Fatal(err)
	}
	p := s.invite(func(p *v1alpha1.Peering) { p.Spec.Consume.TokenSecret = reader.Name })
	s.until("it is refused", has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonInvitationMissing))
	if err := s.client.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	s.until("it is gone", gone)
	if !s.exists(reader) {
		t.Error("the Secret is gone")
	}
	if s.auth.calls != 0 {
		t.Errorf("%d calls of the endpoint", s.auth.calls)
	}
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
	s.events()
	s.refusedGoodbye()
	s.clock.SetTime(s.clock.Now().Add(refusedFor))
	s.untilGone()
	if !s.told(v1alpha1.ReasonForbidden) {
		t.Error("nobody was told that the tenant may be left")
	}
}

// refusedGoodbye fails if a goodbye is over that was refused a few times in a few seconds.
func (s *stage) refusedGoodbye() {
	s.t.Helper()
	s.until("the refusal of the goodbye is shown", func(p *v1alpha1.Peering) bool {
		s.finalize(v1alpha1.PeeringNamespace(s.name))
		return p == nil || slices.ContainsFunc(p.Status.Conditions, func(c metav1.Condition) bool { return strings.Contains(c.Message, "refuses to hear") })
	})
	for range 2 * refusedTries {
		s.reconcile()
	}
	if s.peering() == nil {
		s.t.Fatal("a goodbye is over that was refused for a moment")
	}
}

// TestPassingRefusal holds that a goodbye is not lost on an API server that does not know yet who has
// which rights, and that a refusal is an answer at once where the provider knows.
func TestPassingRefusal(t *testing.T) {
	s := newStage(t)
	p := s.peer()
	identity := s.identity()
	s.exists(identity)
	identity.Finalizers = []string{v1alpha1.FinalizerGoodbye}
	if err := s.client.Update(t.Context(), identity); err != nil {
		t.Fatal(err)
	}
	revoke := func() {
		s.t.Helper()
		if err := s.client.Delete(t.Context(), roleBinding(s.tenant)); err != nil {
			t.Fatal(err)
		}
	}
	s.fleet.Remove(s.name) // a watch that goes on would not see it
	revoke()
	s.until("the refusal is shown", has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonForbidden))
	s.delete(p)
	s.refusedGoodbye()
	if err := s.grant(identity.Spec.PeeringUID); err != nil {
		t.Fatal(err)
	}
	s.until("the provider was told", func(*v1alpha1.Peering) bool { return s.exists(identity) && identity.DeletionTimestamp != nil })
	s.events()
	revoke()
	before := s.clock.Now()
	s.untilGone()
	if waited := s.clock.Since(before); waited > refusedFor/2 || s.told(v1alpha1.ReasonForbidden) {
		t.Errorf("after %s: a refusal by who was told is none", waited)
	}
}

// TestTombstoneRefused holds that a tombstone stays when its goodbye is refused for a moment, and
// goes, with an event, when that lasts.
func TestTombstoneRefused(t *testing.T) {
	s := newStage(t)
	p := s.peer()
	s.fleet.Remove(s.name)
	before := p.DeepCopy()
	p.Annotations = map[string]string{v1alpha1.AnnotationForce: "true"}
	if err := s.client.Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := s.client.Delete(t.Context(), roleBinding(s.tenant)); err != nil {
		t.Fatal(err)
	}
	s.until("the refusal is shown", has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonForbidden))
	s.delete(p)
	s.untilGone()
	s.events()
	secrets := &corev1.SecretList{}
	if err := s.client.List(t.Context(), secrets, client.InNamespace(s.namespace)); err != nil || len(secrets.Items) != 1 {
		t.Fatalf("%d secrets, %v; want the tombstone", len(secrets.Items), err)
	}
	stone, began, digger := &secrets.Items[0], s.clock.Now(), &tombstones{s.r}
	for s.exists(stone) && s.clock.Since(began) < time.Hour {
		res, err := digger.Reconcile(t.Context(), requestFor(stone))
		if err != nil {
			t.Fatal(err)
		}
		s.clock.SetTime(s.clock.Now().Add(res.RequeueAfter))
	}
	if lasted := s.clock.Since(began); lasted < refusedFor || lasted > 2*refusedFor {
		t.Errorf("the tombstone was kept for %s", lasted)
	}
	if !s.told(v1alpha1.ReasonForbidden) {
		t.Error("nobody was told that the tenant may be left")
	}
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

// TestBarred holds that where this cluster itself lets no namespace of requests in, as by a policy of its own, the
// Peering says so and what to do, and goes on when it does.
func TestBarred(t *testing.T) {
	s := newStage(t)
	var bars atomic.Bool
	bars.Store(true)
	s.r.client = interceptor.NewClient(s.client, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if o.GetName() == v1alpha1.PeeringNamespace(s.name) && bars.Load() {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, o.GetName(),
				errors.New("ValidatingAdmissionPolicy 'owners' with binding 'owners' denied request: namespaces are made by their owners"))
		}
		return c.Create(ctx, o, opts...)
	}})
	s.invite()
	p := s.until("it is shown", has(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonWaiting))
	said := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionResourcesAccepted).Message
	for _, want := range []string{"this cluster does not take namespace " + v1alpha1.PeeringNamespace(s.name), "namespaces are made by their owners", "the admission policy owners"} {
		if !strings.Contains(said, want) {
			t.Errorf("it says %q, not %q", said, want)
		}
	}
	bars.Store(false)
	s.until("it asks for resources", has(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonPending))
}
