package peering

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

// TestFarewell unpeers: the provider is told, and nothing is left.
func TestFarewell(t *testing.T) {
	s := newStage(t)
	p := s.peer()
	identity := s.identity()
	s.exists(identity)
	identity.Finalizers = []string{v1alpha1.FinalizerGoodbye}
	if err := s.client.Update(t.Context(), identity); err != nil {
		t.Fatal(err)
	}
	s.delete(p)
	s.until("the provider was told", func(*v1alpha1.Peering) bool { return s.exists(identity) && identity.DeletionTimestamp != nil })
	s.finalize(v1alpha1.PeeringNamespace(s.name))
	for range 3 {
		s.reconcile()
	}
	if p := s.peering(); p == nil || !slices.Contains(p.Finalizers, v1alpha1.FinalizerConsume) || !has(v1alpha1.ConditionReady, v1alpha1.ReasonTerminating)(p) {
		t.Error("it did not wait for the provider to let go")
	}
	s.free(identity)
	s.untilGone()
	s.expectNothing()
}

// TestConsumeRemoved holds that a Peering that also provides stays, and can consume
// again.
func TestConsumeRemoved(t *testing.T) {
	s := newStage(t)
	p := s.peer()
	_, ended := s.credential()
	before, consume := p.DeepCopy(), p.Spec.Consume
	p.Spec.Consume, p.Spec.Provide = nil, &v1alpha1.Provide{Tenant: "nobody"}
	if err := s.client.Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.until("consuming has ended", func(p *v1alpha1.Peering) bool {
		s.finalize(v1alpha1.PeeringNamespace(s.name))
		return !slices.Contains(p.Finalizers, v1alpha1.FinalizerConsume)
	})
	s.expectNothing()
	p = s.until("it says so", has(v1alpha1.ConditionReady, v1alpha1.ReasonWaiting))
	if p.Status.Credential != nil || has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonIssued)(p) {
		t.Errorf("status speaks of what is over: %+v", p.Status)
	}
	before = p.DeepCopy()
	p.Spec.Consume = consume
	if err := s.client.Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.makeToken(token)
	s.until("it consumes again", has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonIssued))
	if _, again := s.credential(); again.user() == ended.user() || again.UID != ended.UID {
		t.Errorf("the credential that has ended is good again: both are %s", ended.user())
	}
}

// TestConsumeRemovedElsewhere holds that a provider which the owner reaches by another
// address than it says is told too when the Peering does not consume any more, also by
// a process that knows of nothing else than what is stored.
func TestConsumeRemovedElsewhere(t *testing.T) {
	s := newStage(t)
	s.auth.bend = func(i *v1alpha1.IdentityStatus) { i.ServerURL = "https://127.0.0.1:1" }
	p := s.peer(func(p *v1alpha1.Peering) { p.Spec.Consume.ServerURL = s.server.Config.Host })
	before := p.DeepCopy()
	p.Spec.Consume, p.Spec.Provide = nil, &v1alpha1.Provide{Tenant: "nobody"}
	if err := s.client.Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.fleet.Remove(s.name)
	s.restart(s.client)
	s.until("consuming has ended", func(p *v1alpha1.Peering) bool {
		s.finalize(v1alpha1.PeeringNamespace(s.name))
		return !slices.Contains(p.Finalizers, v1alpha1.FinalizerConsume)
	})
	s.expectNothing()
}

// TestLeaveTooMuch unpeers from a provider that shows more than this cluster takes.
func TestLeaveTooMuch(t *testing.T) {
	s := newStage(t)
	s.showTooMuch()
	s.delete(s.peering())
	s.untilGone()
	if s.exists(s.identity()) {
		t.Error("the provider was not told")
	}
}

// TestEndedByProvider holds that a revoked identity cleans up this side.
func TestEndedByProvider(t *testing.T) {
	s := newStage(t)
	s.peer()
	identity := s.identity()
	s.exists(identity)
	before := identity.DeepCopy()
	status.True(&identity.Status.Conditions, 1, v1alpha1.ConditionRevoked, v1alpha1.ReasonEndedByProvider, "")
	if err := s.client.Status().Patch(t.Context(), identity, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	s.untilGone()
	s.expectNothing()
	if !s.told(v1alpha1.ReasonEndedByProvider) {
		t.Error("nobody was told")
	}
}

// TestForce unpeers from a provider that does not answer: without force it stays and
// says how, with force home is clean at once but for a tombstone, which delivers.
func TestForce(t *testing.T) {
	s := newStage(t)
	p := s.peer()
	secret, cred := s.credential()
	server := cred.Server
	cred.Server = "https://127.0.0.1:1"
	secret.Data = cred.store()
	if err := s.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	s.fleet.Remove(s.name)
	s.delete(p)
	p = s.until("it says how to force", func(p *v1alpha1.Peering) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == v1alpha1.ConditionReady && strings.Contains(c.Message, "--force") {
				return true
			}
		}
		return false
	})
	before := p.DeepCopy()
	p.Annotations = map[string]string{v1alpha1.AnnotationForce: "true"}
	if err := s.client.Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.reconcile(); err != nil || s.peering() != nil {
		t.Fatalf("it is still there after one look: %v", err)
	}
	secrets := &corev1.SecretList{}
	if err := s.client.List(t.Context(), secrets, client.InNamespace(s.namespace)); err != nil || len(secrets.Items) != 1 {
		t.Fatalf("%d secrets, %v; want the tombstone", len(secrets.Items), err)
	}
	stone := &secrets.Items[0]
	if stone.Labels[v1alpha1.LabelTombstone] != s.name {
		t.Errorf("labels %v", stone.Labels)
	}
	digger := &tombstones{s.r}
	request := requestFor(stone)
	res, err := digger.Reconcile(t.Context(), request)
	if err != nil || res.RequeueAfter <= 0 || res.RequeueAfter > time.Second || !s.exists(stone) {
		t.Fatalf("undelivered: %v, %v", res, err)
	}
	stone.Data[keyServer] = []byte(server)
	if err := s.client.Update(t.Context(), stone); err != nil {
		t.Fatal(err)
	}
	s.clock.SetTime(s.clock.Now().Add(time.Minute))
	if _, err := digger.Reconcile(t.Context(), request); err != nil || s.exists(stone) || s.exists(s.identity()) {
		t.Errorf("not delivered: %v", err)
	}
}

func (s *stage) delete(p *v1alpha1.Peering) {
	s.t.Helper()
	if err := s.client.Delete(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
}

// untilGone looks until the Peering is gone, and plays the namespace controller.
func (s *stage) untilGone() {
	s.t.Helper()
	s.until("it is gone", func(p *v1alpha1.Peering) bool {
		s.finalize(v1alpha1.PeeringNamespace(s.name))
		return gone(p)
	})
}

// expectNothing fails if anything of the Peering is left at the consumer, or its
// Identity at the provider.
func (s *stage) expectNothing() {
	s.t.Helper()
	secrets := &corev1.SecretList{}
	if err := s.client.List(s.t.Context(), secrets, client.InNamespace(s.namespace)); err != nil || len(secrets.Items) > 0 {
		s.t.Errorf("%d secrets are left, %v", len(secrets.Items), err)
	}
	if s.exists(s.identity()) {
		s.t.Error("the identity is left at the provider")
	}
	if s.exists(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringNamespace(s.name)}}) {
		s.t.Error("the namespace of the requests is left")
	}
	if _, ok := s.fleet.Peer(s.name); ok {
		s.t.Error("the connection is left")
	}
}
