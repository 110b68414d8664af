package peering

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/internal/status"
)

// TestHandshake goes from an invitation to Ready against a real API server with a
// certificate it believes, and looks at all that came of it.
func TestHandshake(t *testing.T) {
	s := newStage(t)
	p := s.peer()

	if s.exists(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "invitation"}}) {
		t.Error("the used token is still there")
	}
	secret, cred := s.credential()
	if secret.Labels[v1alpha1.LabelPeering] != s.name || secret.Labels[v1alpha1.LabelManagedBy] == "" {
		t.Errorf("labels of the credential: %v", secret.Labels)
	}
	if len(s.auth.keys) != 1 || !s.auth.keys[string(cred.Request)] {
		t.Errorf("%d keys were introduced, want the one that is stored", len(s.auth.keys))
	}
	if diff := cmp.Diff([]v1alpha1.Role{v1alpha1.RoleConsumer}, p.Status.Roles); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"offers/v1", "peering/v1"}, p.Status.Features); diff != "" {
		t.Errorf("features: what both know: %s", diff)
	}
	st := p.Status
	if st.Remote == nil || st.Remote.Name != "milan" || st.TenantNamespace != s.tenant || st.ServerURL == "" || st.Credential == nil || st.LastContact == nil {
		t.Errorf("status is not complete: %+v", st)
	}
	if st.ObservedGeneration != p.Generation {
		t.Errorf("observed generation %d, want %d", st.ObservedGeneration, p.Generation)
	}
	for _, c := range st.Conditions {
		if c.Status != metav1.ConditionTrue || c.Type == v1alpha1.ConditionStalled || c.Type == v1alpha1.ConditionReconciling {
			t.Errorf("condition %s %s %s", c.Type, c.Status, c.Reason)
		}
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: v1alpha1.IdentityName}}
	if !s.exists(lease) || lease.Spec.RenewTime == nil {
		t.Error("no heartbeat")
	}
	identity := s.identity()
	if !s.exists(identity) || identity.Spec.Cluster.Version != "v0.3.0" {
		t.Errorf("the provider knows version %q of this cluster", identity.Spec.Cluster.Version)
	}
	text, _ := json.Marshal(p)
	s.secrets(cred, text, []byte(strings.Join(s.events(), "\n")), []byte(strings.Join(s.logs, "\n")))
}

// TestSteady holds that a peering that is as it should be writes nothing.
func TestSteady(t *testing.T) {
	s := newStage(t)
	p := s.peer()
	secret, _ := s.credential()
	for range 3 {
		if res, err := s.reconcile(); err != nil || res.RequeueAfter < 30*time.Second {
			t.Fatalf("result %v, %v; want nothing to do for a while", res, err)
		}
	}
	again, _ := s.credential()
	if now := s.peering(); now.ResourceVersion != p.ResourceVersion || again.ResourceVersion != secret.ResourceVersion {
		t.Errorf("something was written: %s", cmp.Diff(p, now))
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: v1alpha1.IdentityName}}
	s.exists(lease)
	first := lease.Spec.RenewTime.Time
	s.clock.SetTime(s.clock.Now().Add(time.Minute))
	s.reconcile()
	if s.exists(lease); lease.Spec.RenewTime.Sub(first) < 50*time.Second {
		t.Errorf("heartbeat at %s after one at %s", lease.Spec.RenewTime, first)
	}
}

// TestCrash ends the program right after its writes: the handshake completes with the
// first key, and leaves nothing twice; so does the farewell.
func TestCrash(t *testing.T) {
	for _, direction := range []string{"handshake", "farewell"} {
		t.Run(direction, func(t *testing.T) {
			kubetest.CrashPoints(t, func(after int) (int, bool) {
				return crash(newStage(t), direction == "farewell", after+1)
			})
		})
	}
}

// crash ends the program right after its n-th write of the handshake or of the farewell,
// and checks what becomes of it.
func crash(s *stage, farewell bool, n int) (writes int, died bool) {
	s.t.Helper()
	killed := errors.New("killed")
	after := func(err error) error {
		if writes++; err == nil && writes == n {
			died = true
			return killed
		}
		return err
	}
	failing := interceptor.NewClient(s.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return after(c.Create(ctx, obj, opts...))
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return after(c.Update(ctx, obj, opts...))
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return after(c.Patch(ctx, obj, patch, opts...))
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return after(c.Delete(ctx, obj, opts...))
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, part string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return after(c.SubResource(part).Patch(ctx, obj, patch, opts...))
		},
	})
	if farewell {
		s.delete(s.peer())
	} else {
		s.invite()
	}
	s.restart(failing)
	s.survive(killed, farewell, &died)
	s.restart(s.client)
	if farewell {
		s.untilGone()
		s.expectNothing()
		return writes, died
	}
	s.until("there is a request", has(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonPending))
	s.accept()
	s.until("it is ready", ready)
	_, cred := s.credential()
	if len(s.auth.keys) != 1 || !s.auth.keys[string(cred.Request)] {
		s.t.Errorf("killed after write %d: %d keys were introduced", n, len(s.auth.keys))
	}
	return writes, died
}

// survive looks until a write was followed by death, or until all is done without.
func (s *stage) survive(killed error, ends bool, died *bool) {
	s.t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !*died {
		if _, err := s.reconcile(); err != nil && !errors.Is(err, killed) {
			s.t.Fatal(err)
		}
		s.finalize(v1alpha1.PeeringNamespace(s.name))
		p := s.peering()
		if ends && p == nil || !ends && has(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonPending)(p) {
			return
		}
		select {
		case <-deadline:
			s.t.Fatal("neither killed nor done after 20 s")
		case <-tick.C:
		}
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
	before := p.DeepCopy()
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

// TestRenewal replaces the credential at two thirds of its life while calls run
// without one failure; the new key is stored before it is used.
func TestRenewal(t *testing.T) {
	s := newStage(t)
	s.peer()
	_, old := s.credential()
	peer, _ := s.fleet.Peer(s.name)
	stop, failed := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(failed)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := peer.Client().Get(context.Background(), client.ObjectKeyFromObject(s.identity()), s.identity()); err != nil {
				failed <- err
				return
			}
		}
	}()
	s.clock.SetTime(old.renewAfter().Add(-time.Minute))
	s.reconcile()
	if _, c := s.credential(); len(c.NextKey) > 0 {
		t.Error("renewed too early")
	}
	s.clock.SetTime(old.renewAfter().Add(time.Second))
	s.until("it asks for a new one", has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonRenewing))
	_, asked := s.credential()
	identity := s.identity()
	s.exists(identity)
	if len(asked.NextKey) == 0 || string(asked.Key) != string(old.Key) || identity.Spec.Request != string(asked.NextRequest) {
		t.Fatal("the next key is not beside the one in use, or not asked for")
	}
	s.restart(s.client) // a restart now asks for the same
	s.reconcile()
	s.life = 3 * time.Hour
	if _, err := s.answer(identity.Spec.Request); err != nil {
		t.Fatal(err)
	}
	s.until("it is renewed", func(*v1alpha1.Peering) bool { _, c := s.credential(); return len(c.NextKey) == 0 })
	_, c := s.credential()
	if string(c.Key) != string(asked.NextKey) || !c.NotAfter.After(old.NotAfter) {
		t.Error("key and certificate were not taken together")
	}
	s.until("it is as it was", func(p *v1alpha1.Peering) bool {
		return ready(p) && has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonIssued)(p) && p.Status.Credential.NotAfter.After(old.NotAfter)
	})
	close(stop)
	if err := <-failed; err != nil {
		t.Errorf("a call failed: %v", err)
	}
	if !s.told("CredentialRenewed") {
		t.Error("nobody was told")
	}
	s.clock.SetTime(c.NotAfter)
	p := s.until("its end is shown", has(v1alpha1.ConditionStalled, v1alpha1.ReasonExpired))
	if ready(p) {
		t.Error("ready with an expired credential")
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

// TestProvide mirrors a Tenant, and ends it with the Peering.
func TestProvide(t *testing.T) {
	s := newStage(t)
	tenant := &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Finalizers: []string{v1alpha1.FinalizerTenant}},
		Spec:       v1alpha1.TenantSpec{ClusterID: s.auth.clusterID, PeeringUID: remoteID},
	}
	if err := s.client.Create(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.free(tenant) })
	p := &v1alpha1.Peering{
		ObjectMeta: metav1.ObjectMeta{Name: s.name},
		Spec:       v1alpha1.PeeringSpec{ClusterID: s.auth.clusterID, Provide: &v1alpha1.Provide{Tenant: s.name}},
	}
	if err := s.client.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	s.until("it waits", has(v1alpha1.ConditionReady, v1alpha1.ReasonPending))
	before := tenant.DeepCopy()
	status.True(&tenant.Status.Conditions, 1, v1alpha1.ConditionReady, v1alpha1.ReasonReady, "")
	status.True(&tenant.Status.Conditions, 1, v1alpha1.ConditionConsumerAlive, v1alpha1.ReasonReady, "")
	now := metav1.Now()
	tenant.Status.LastContact = &now
	tenant.Status.Cluster = &v1alpha1.ClusterInfo{ID: s.auth.clusterID, Name: "athens", Features: []string{"peering/v1"}}
	if err := s.client.Status().Patch(t.Context(), tenant, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	p = s.until("it is ready", ready)
	if p.Status.Remote == nil || p.Status.Remote.Name != "athens" || p.Status.LastContact == nil || p.Status.Roles[0] != v1alpha1.RoleProvider {
		t.Errorf("status %+v", p.Status)
	}
	version := p.ResourceVersion
	s.reconcile()
	if p = s.peering(); p.ResourceVersion != version {
		t.Error("a second look wrote something")
	}
	p.Annotations = map[string]string{v1alpha1.AnnotationForce: "true"}
	if err := s.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	s.delete(p)
	s.until("the tenant is told", func(*v1alpha1.Peering) bool {
		return s.exists(tenant) && tenant.DeletionTimestamp != nil && forced(tenant)
	})
	if s.peering() == nil {
		t.Fatal("it did not wait for its tenant")
	}
	s.free(tenant)
	s.until("it is gone", gone)
}
