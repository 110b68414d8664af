package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1 "k8s.io/api/certificates/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// reasonOf is the reason of a refusal, or the error if it is none.
func reasonOf(err error) string {
	var no *refusal
	switch {
	case err == nil:
		return "granted"
	case errors.As(err, &no):
		return no.reason
	}
	return err.Error()
}

func TestHandshake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, i := w.invite(func(i *v1alpha1.Invitation) {
		i.Spec.Tenant = &v1alpha1.TenantTerms{PodSecurity: v1alpha1.PodSecurityRestricted, Objects: map[string]int32{"resourcerequests.pelago.dev": 3}}
	})
	rome := newConsumer(t, w.name("rome"))
	got, err := w.shake.run(w.ctx, rome.applicant(t, token))
	if err != nil {
		t.Fatal(err)
	}
	s := got.Status
	if s.ServerURL != "https://milan:6443" || s.ServerCA != "CA of milan" || s.Cluster.ID != w.home.id ||
		s.TenantNamespace != v1alpha1.TenantNamespace(w.name("rome")) || s.CredentialType != v1alpha1.CredentialCertificate ||
		s.RequestSHA256 != hashOf(rome.spec.Request) || got.Token != "" || conditionReason(s.Conditions, v1alpha1.ConditionIssued) != "True Issued" {
		t.Errorf("unexpected answer: %+v", s)
	}
	if life := s.NotAfter.Sub(s.NotBefore.Time); life < 719*time.Hour || life > 721*time.Hour {
		t.Errorf("the credential lives %s", life)
	}
	id := &v1alpha1.Identity{}
	if err := w.client.Get(w.ctx, client.ObjectKey{Namespace: s.TenantNamespace, Name: "consumer"}, id); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(rome.spec, id.Spec); diff != "" || len(id.Finalizers) != 1 || id.Status.Certificate != s.Certificate {
		t.Errorf("the Identity is not what was said: %s", diff)
	}
	tenant := &v1alpha1.Tenant{}
	if err := w.client.Get(w.ctx, client.ObjectKey{Name: w.name("rome")}, tenant); err != nil {
		t.Fatal(err)
	}
	if tenant.Spec.PodSecurity != v1alpha1.PodSecurityRestricted || tenant.Spec.Objects["resourcerequests.pelago.dev"] != 3 {
		t.Errorf("the Tenant has other terms than its invitation: %+v", tenant.Spec)
	}
	if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(i), i); err != nil {
		t.Fatal(err)
	}
	if i.Status.Tenant != tenant.Name || i.Status.TenantUID != string(tenant.UID) || i.Status.BoundTo.ClusterID != rome.spec.Cluster.ID {
		t.Errorf("the invitation does not say who used it: %+v", i.Status)
	}
	again, err := w.shake.run(w.ctx, rome.applicant(t, token))
	if err != nil {
		t.Fatalf("the same request again: %v", err)
	}
	if again.Status.Certificate != s.Certificate {
		t.Error("the same request again gets another certificate")
	}
	if n, ids, csrs := w.leftovers(rome); n != 1 || ids != 1 || csrs != 0 {
		t.Errorf("%d tenants, %d identities, %d signing requests; want 1, 1, 0", n, ids, csrs)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.home.config.Identity.Type = v1alpha1.CredentialToken
	w.home.config.Identity.Lifetime = metav1.Duration{Duration: time.Hour}
	token, _ := w.invite()
	rome := newConsumer(t, w.name("rome"))
	got, err := w.shake.run(w.ctx, rome.applicant(t, token))
	if err != nil {
		t.Fatal(err)
	}
	if got.Token == "" || got.Status.CredentialType != v1alpha1.CredentialToken || got.Status.Certificate != "" {
		t.Errorf("no token: %+v", got.Status)
	}
	if life := got.Status.NotAfter.Sub(got.Status.NotBefore.Time); life < 59*time.Minute || life > 61*time.Minute {
		t.Errorf("the token lives %s", life)
	}
	// The same again, whatever became of the answer: as often as it likes, one token in each pause.
	made, looked := 1, 0
	clk := clocktesting.NewFakeClock(time.Now())
	w.shake.clock = clk
	w.shake.direct = interceptor.NewClient(w.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if _, is := obj.(*v1alpha1.Identity); is {
				looked++
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	for range 50 {
		again, err := w.shake.run(w.ctx, rome.applicant(t, token))
		var no *refusal
		switch {
		case err == nil && again.Token != "":
			made++
		case !errors.As(err, &no) || no.reason != v1alpha1.ReasonWaiting || no.retryAfter <= 0 || no.retryAfter > renewalPause:
			t.Fatalf("the same request again: %v", err)
		}
	}
	if made != 1 || looked > 2*attemptsAtOnce {
		t.Errorf("%d tokens were made and the identity read %d times, want 1 and not more than %d", made, looked, 2*attemptsAtOnce)
	}
	clk.Step(renewalPause)
	if again, err := w.shake.run(w.ctx, rome.applicant(t, token)); err != nil || again.Token == "" {
		t.Errorf("after the pause: %v", err)
	}
	if w.shake.attempts.allow("another", clk.Now().Add(time.Hour)); len(w.shake.attempts.paces) != 1 {
		t.Errorf("%d invitations are remembered, want 1", len(w.shake.attempts.paces))
	}
}

// TestRefusals has one row for everything an invited or uninvited cluster can do wrong.
func TestRefusals(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first, firstInvitation := w.invite()
	rome := newConsumer(t, w.name("rome"))
	if _, err := w.shake.run(w.ctx, rome.applicant(t, first)); err != nil {
		t.Fatal(err)
	}
	expired := func(i *v1alpha1.Invitation) { i.Spec.Expires = metav1.NewTime(time.Now().Add(-time.Minute)) }
	named := func(name string) func(i *v1alpha1.Invitation) {
		return func(i *v1alpha1.Invitation) { i.Spec.Consumer = name }
	}
	stranger := func(change func(*v1alpha1.IdentitySpec)) *consumer {
		return newConsumer(t, w.name("pisa")).with(t, change)
	}
	otherKey := rome.with(t, func(*v1alpha1.IdentitySpec) {})
	otherKey.newKey(t)
	for name, test := range map[string]struct {
		token  func() string
		from   *consumer
		want   string
		says   string
		reason string
	}{
		"wrong token": {newToken, newConsumer(t, w.name("pisa")), v1alpha1.ReasonInvitationRefused, "wrong, used or expired", "nobody was invited"},
		"no token":    {func() string { return "" }, newConsumer(t, w.name("pisa")), v1alpha1.ReasonInvitationRefused, "wrong, used or expired", "an empty token is a wrong one"},
		"hash as token": {func() string { return firstInvitation.Spec.TokenSHA256 }, newConsumer(t, w.name("pisa")), v1alpha1.ReasonInvitationRefused,
			"wrong, used or expired", "who can read invitations cannot use them"},
		"expired":                {func() string { s, _ := w.invite(expired); return s }, newConsumer(t, w.name("pisa")), v1alpha1.ReasonInvitationRefused, "wrong, used or expired", "it was good until a minute ago"},
		"used by another":        {func() string { return first }, newConsumer(t, w.name("pisa")), v1alpha1.ReasonInvitationRefused, "wrong, used or expired", "it is bound to rome"},
		"replay with other key":  {func() string { return first }, otherKey, v1alpha1.ReasonInvitationRefused, "wrong, used or expired", "it is bound to rome's key"},
		"replay with other id":   {func() string { return first }, rome.with(t, func(s *v1alpha1.IdentitySpec) { s.Cluster.ID = newUUID() }), v1alpha1.ReasonInvitationRefused, "wrong, used or expired", "it is bound to rome's id"},
		"replay with other UID":  {func() string { return first }, rome.with(t, func(s *v1alpha1.IdentitySpec) { s.PeeringUID = newUUID() }), v1alpha1.ReasonInvitationRefused, "wrong, used or expired", "it was for one peering"},
		"another's tenant":       {func() string { s, _ := w.invite(); return s }, otherKey, v1alpha1.ReasonDuplicate, "already peered as " + w.name("rome"), "a new token gives no right to rome's tenant, even to who knows its ids"},
		"another's user":         {func() string { s, _ := w.invite(); return s }, stranger(func(s *v1alpha1.IdentitySpec) { s.PeeringUID = rome.spec.PeeringUID }), v1alpha1.ReasonDuplicate, "spec.peeringUID", "two tenants would have one user"},
		"peered already":         {func() string { s, _ := w.invite(); return s }, rome.with(t, func(s *v1alpha1.IdentitySpec) { s.PeeringUID = newUUID() }), v1alpha1.ReasonDuplicate, "unpeer first", "one peering per direction and cluster"},
		"name taken":             {func() string { s, _ := w.invite(); return s }, newConsumer(t, w.name("rome")), v1alpha1.ReasonNameRefused, "--cluster-name", "rome is another cluster"},
		"name taken by inviter":  {func() string { s, _ := w.invite(named(w.name("rome"))); return s }, newConsumer(t, w.name("pisa")), v1alpha1.ReasonNameRefused, "--consumer", "rome is another cluster"},
		"name reserved":          {func() string { s, _ := w.invite(); return s }, newConsumer(t, "default"), v1alpha1.ReasonNameRefused, "reserved", "default means something else"},
		"name with a bad prefix": {func() string { s, _ := w.invite(); return s }, newConsumer(t, "pelago-x"), v1alpha1.ReasonNameRefused, "reserved word", "namespaces of ours begin so"},
		"itself":                 {func() string { s, _ := w.invite(); return s }, stranger(func(s *v1alpha1.IdentitySpec) { s.Cluster.ID = w.home.id }), v1alpha1.ReasonInvalid, "with itself", "the line was run on the provider"},
		"too old": {func() string { s, _ := w.invite(); return s }, stranger(func(s *v1alpha1.IdentitySpec) {
			s.Cluster.Features, s.Cluster.Version = []string{"offers/v1"}, "v0.1.0"
		}), v1alpha1.ReasonUnsupported, "v0.1.0", "it does not know peering/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			n, ids, _ := w.leftovers(test.from)
			_, err := w.shake.run(w.ctx, test.from.applicant(t, test.token()))
			if got := reasonOf(err); got != test.want || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: got %s (%v), want %s with %q", test.reason, got, err, test.want, test.says)
			}
			if n2, ids2, csrs := w.leftovers(test.from); n2 != n || ids2 != ids || csrs != 0 {
				t.Errorf("%s: left %d tenants, %d identities, %d signing requests; there were %d, %d, 0", test.reason, n2, ids2, csrs, n, ids)
			}
		})
	}
}

// TestRefusedInvitationStaysGood: what is refused for its name can be tried again
// with the same invitation, even by a Peering that was made anew with another key.
func TestRefusedInvitationStaysGood(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, _ := w.invite()
	if _, err := w.shake.run(w.ctx, newConsumer(t, "default").applicant(t, token)); reasonOf(err) != v1alpha1.ReasonNameRefused {
		t.Fatalf("got %v", err)
	}
	if _, err := w.shake.run(w.ctx, newConsumer(t, w.name("rome")).applicant(t, token)); err != nil {
		t.Errorf("a second try with a better name: %v", err)
	}
}

// TestVoid: an invitation is worth nothing once its Tenant is gone, and the key it is
// bound to is worth nothing once the consumer has renewed.
func TestVoid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, _ := w.invite()
	rome := newConsumer(t, w.name("rome"))
	if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); err != nil {
		t.Fatal(err)
	}
	id := &v1alpha1.Identity{}
	id.Namespace, id.Name = v1alpha1.TenantNamespace(w.name("rome")), "consumer"
	if err := w.client.Get(w.ctx, client.ObjectKeyFromObject(id), id); err != nil {
		t.Fatal(err)
	}
	renewed := rome.with(t, func(*v1alpha1.IdentitySpec) {})
	renewed.newKey(t)
	id.Spec.Request = renewed.spec.Request
	if err := w.client.Update(w.ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); reasonOf(err) != v1alpha1.ReasonInvitationRefused {
		t.Errorf("the first key still works after a renewal: %v", err)
	}
	tenant := &v1alpha1.Tenant{}
	tenant.Name = w.name("rome")
	if err := w.client.Delete(w.ctx, tenant); err != nil {
		t.Fatal(err)
	}
	if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); reasonOf(err) != v1alpha1.ReasonInvitationRefused {
		t.Errorf("the invitation outlives its tenant: %v", err)
	}
	if n, _, _ := w.leftovers(rome); n != 0 {
		t.Errorf("a void invitation has made %d tenants", n)
	}
}

// TestRace: two clusters come with one token at the same time.
func TestRace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for round := range 5 {
		token, _ := w.invite()
		rivals := []*consumer{newConsumer(t, fmt.Sprintf("a%d%s", round, w.suffix)), newConsumer(t, fmt.Sprintf("b%d%s", round, w.suffix))}
		errs := make([]error, len(rivals))
		var group sync.WaitGroup
		for n, c := range rivals {
			a := c.applicant(t, token)
			group.Go(func() { _, errs[n] = w.shake.run(w.ctx, a) })
		}
		group.Wait()
		won, tenants := 0, 0
		for n, c := range rivals {
			if errs[n] == nil {
				won++
			} else if reasonOf(errs[n]) != v1alpha1.ReasonInvitationRefused {
				t.Errorf("the loser gets %v", errs[n])
			}
			made, _, _ := w.leftovers(c)
			tenants += made
		}
		if won != 1 || tenants != 1 {
			t.Errorf("%d won and %d tenants were made, want 1 and 1", won, tenants)
		}
	}
}

// TestTwice: one cluster sends the same request twice at the same time.
func TestTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, _ := w.invite()
	rome := newConsumer(t, w.name("rome"))
	var group sync.WaitGroup
	for range 4 {
		a := rome.applicant(t, token)
		group.Go(func() {
			if _, err := w.shake.run(w.ctx, a); err != nil && reasonOf(err) != v1alpha1.ReasonWaiting {
				t.Errorf("got %v", err)
			}
		})
	}
	group.Wait()
	if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	if n, ids, csrs := w.leftovers(rome); n != 1 || ids != 1 || csrs != 0 {
		t.Errorf("%d tenants, %d identities, %d signing requests; want 1, 1, 0", n, ids, csrs)
	}
}

// TestTwins: two Tenants of one user were made at the same time, by replicas that did
// not see each other. Neither gets a credential.
func TestTwins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	rome, thief := newConsumer(t, w.name("rome")), newConsumer(t, w.name("thief"))
	thief = thief.with(t, func(s *v1alpha1.IdentitySpec) { s.PeeringUID = rome.spec.PeeringUID })
	token, i := w.invite()
	// The other replica's Tenant appears between the first look and the second one.
	w.shake.direct = interceptor.NewClient(w.client, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if _, is := obj.(*v1alpha1.Tenant); is {
				other := newTenant(w.name("rome"), &v1alpha1.Invitation{}, rome.applicant(t, ""), w.home)
				if err := c.Create(ctx, other); err != nil {
					return err
				}
			}
			return c.Create(ctx, obj, opts...)
		},
	})
	if _, err := w.shake.run(w.ctx, thief.applicant(t, token)); reasonOf(err) != v1alpha1.ReasonDuplicate {
		t.Errorf("invitation %s: got %v, want a refusal", i.Name, err)
	}
	if _, ids, csrs := w.leftovers(thief); ids != 0 || csrs != 0 {
		t.Errorf("%d identities and %d signing requests for a user that is another's", ids, csrs)
	}
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, _ := w.invite()
	rome := newConsumer(t, w.name("rome"))
	w.home.set("")
	if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); reasonOf(err) != v1alpha1.ReasonWaiting || !strings.Contains(err.Error(), "apiServer.url") {
		t.Errorf("a provider without an address: %v", err)
	}
	w.home.set("https://milan:6443")
	w.mu.Lock()
	w.still = true
	w.mu.Unlock()
	if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); reasonOf(err) != v1alpha1.ReasonWaiting || !strings.Contains(err.Error(), v1alpha1.ConditionNamespaceReady) {
		t.Errorf("a Tenant that nobody looks after: %v", err)
	}
	w.mu.Lock()
	w.still = false
	w.mu.Unlock()
	tenant := &v1alpha1.Tenant{}
	if err := w.client.Get(w.ctx, client.ObjectKey{Name: w.name("rome")}, tenant); err != nil {
		t.Fatal(err)
	}
	w.settle(tenant)
	if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); err != nil {
		t.Errorf("once all is well: %v", err)
	}
}

// TestSignerFails: no credential that is not exactly what was asked for.
func TestSignerFails(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, _ := w.invite()
	rome := newConsumer(t, w.name("rome"))
	w.setSigner(func(c *x509.Certificate) *x509.Certificate { c.NotAfter = c.NotAfter.Add(24 * time.Hour); return c })
	_, err := w.shake.run(w.ctx, rome.applicant(t, token))
	if reasonOf(err) != v1alpha1.ReasonWaiting || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("a certificate that lives too long: %v", err)
	}
	if _, ids, csrs := w.leftovers(rome); ids != 1 || csrs != 0 {
		t.Errorf("%d identities, %d signing requests; want 1, 0", ids, csrs)
	}
	id := &v1alpha1.Identity{}
	if err := w.client.Get(w.ctx, client.ObjectKey{Namespace: v1alpha1.TenantNamespace(w.name("rome")), Name: "consumer"}, id); err != nil {
		t.Fatal(err)
	}
	if got := conditionReason(id.Status.Conditions, v1alpha1.ConditionIssued); got != "False SigningFailed" || id.Status.Certificate != "" {
		t.Errorf("the Identity says %s", got)
	}
	w.setSigner(func(c *x509.Certificate) *x509.Certificate { return c })
	if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); err != nil {
		t.Errorf("once the signer is right: %v", err)
	}
}

// TestForeignSigningRequest: somebody has made the signing request before us.
func TestForeignSigningRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.shake.issuers[v1alpha1.CredentialCertificate].(*certificates)
	rome := newConsumer(t, w.name("rome"))
	tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: w.name("rome"), UID: "1"}}
	o := order{tenant: tenant, request: rome.applicant(t, "").request, lifetime: time.Hour}
	if _, err := c.ask(w.ctx, o, expected{name: signingRequestName(o), seconds: 3600}); err != nil {
		t.Fatal(err)
	}
	c.self = "system:serviceaccount:pelago-system:pelago-auth" // somebody else than the test's user
	if _, err := c.issue(w.ctx, o); !errors.Is(err, errForeign) {
		t.Errorf("got %v, want a refusal", err)
	}
	csr := &certificatesv1.CertificateSigningRequest{}
	if err := w.client.Get(w.ctx, client.ObjectKey{Name: signingRequestName(o)}, csr); err != nil || hasApproval(csr) {
		t.Errorf("the foreign request is gone or approved: %v", err)
	}
	if !cmp.Equal(csr.Spec.ExpirationSeconds, ptr.To(int32(3600))) {
		t.Errorf("the lifetime is %v", csr.Spec.ExpirationSeconds)
	}
}
