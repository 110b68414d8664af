package auth

import (
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// tenancy is a consumer that has peered, and the reconciler that serves it.
type tenancy struct {
	*world
	rome  *consumer
	key   client.ObjectKey
	clock *clocktesting.FakeClock
	r     *renewal
}

func newTenancy(t *testing.T) *tenancy {
	w := newWorld(t)
	token, _ := w.invite()
	rome := newConsumer(t, w.name("rome"))
	if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); err != nil {
		t.Fatal(err)
	}
	clk := clocktesting.NewFakeClock(time.Now())
	return &tenancy{world: w, rome: rome, clock: clk,
		key: client.ObjectKey{Namespace: v1alpha1.TenantNamespace(w.name("rome")), Name: "consumer"},
		r: &renewal{cached: w.client, direct: w.client, home: w.home, issuer: w.shake.issuers[v1alpha1.CredentialCertificate],
			clock: clk, recorder: w.events, metrics: w.shake.metrics},
	}
}

func (n *tenancy) get() *v1alpha1.Identity {
	n.t.Helper()
	id := &v1alpha1.Identity{}
	if err := n.client.Get(n.ctx, n.key, id); err != nil {
		n.t.Fatal(err)
	}
	return id
}

func (n *tenancy) ask(change func(*v1alpha1.IdentitySpec)) {
	n.t.Helper()
	id := n.get()
	before := id.DeepCopy()
	change(&id.Spec)
	if err := n.client.Patch(n.ctx, id, client.MergeFrom(before)); err != nil {
		n.t.Fatal(err)
	}
}

func (n *tenancy) reconcile() reconcile.Result {
	n.t.Helper()
	res, err := n.r.Reconcile(n.ctx, reconcile.Request{NamespacedName: n.key})
	if err != nil {
		n.t.Errorf("reconciling: %v", err)
	}
	return res
}

func TestRenewal(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	before := n.get()
	n.reconcile()
	if got := n.get(); got.ResourceVersion != before.ResourceVersion {
		t.Error("nothing was asked for, and something was written")
	}
	n.rome.newKey(t)
	n.ask(func(s *v1alpha1.IdentitySpec) { s.Request = n.rome.spec.Request })
	n.reconcile()
	renewed := n.get()
	block, _ := pem.Decode([]byte(renewed.Status.Certificate))
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	hash, _ := keyHash(leaf.PublicKey)
	want, _ := keyHash(n.rome.key.Public())
	if hash != want || renewed.Status.RequestSHA256 != hashOf(n.rome.spec.Request) || conditionReason(renewed.Status.Conditions, v1alpha1.ConditionIssued) != "True Issued" {
		t.Errorf("not renewed: %+v", renewed.Status)
	}
	n.reconcile()
	if got := n.get(); got.ResourceVersion != renewed.ResourceVersion {
		t.Error("the second reconcile writes")
	}
	if _, _, csrs := n.leftovers(n.rome); csrs != 0 {
		t.Errorf("%d signing requests are left", csrs)
	}

	// The next one has to wait, and comes when the pause is over.
	n.rome.newKey(t)
	n.ask(func(s *v1alpha1.IdentitySpec) { s.Request = n.rome.spec.Request })
	if res := n.reconcile(); res.RequeueAfter <= 0 || res.RequeueAfter > renewalPause {
		t.Errorf("the second renewal at once: %+v", res)
	}
	if got := n.get().Status; got.Certificate != renewed.Status.Certificate || conditionReason(got.Conditions, v1alpha1.ConditionIssued) != "False Renewing" {
		t.Errorf("during the pause: %s", conditionReason(got.Conditions, v1alpha1.ConditionIssued))
	}
	n.clock.Step(renewalPause)
	n.reconcile()
	if got := n.get().Status; got.RequestSHA256 != hashOf(n.rome.spec.Request) {
		t.Error("not renewed after the pause")
	}
}

func TestRenewalRefused(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	first := n.get()
	admin := requestFor(t, n.rome.key, "system:admin")
	for name, test := range map[string]struct {
		change func(*v1alpha1.IdentitySpec)
		says   string
	}{
		"another user": {func(s *v1alpha1.IdentitySpec) { s.Request = admin }, "subject"},
		"rubbish":      {func(s *v1alpha1.IdentitySpec) { s.Request = "x" }, "PEM"},
		"another id":   {func(s *v1alpha1.IdentitySpec) { s.Cluster.ID, s.Request = newUUID(), admin }, "spec.cluster.id"},
	} {
		n.ask(test.change)
		if res := n.reconcile(); !res.IsZero() {
			t.Errorf("%s: tried again: %+v", name, res)
		}
		refused := n.get()
		c := refused.Status.Conditions
		if conditionReason(c, v1alpha1.ConditionIssued) != "False RequestRefused" || !strings.Contains(c[0].Message, test.says) || refused.Status.Certificate != first.Status.Certificate {
			t.Errorf("%s: %+v", name, c)
		}
		n.reconcile()
		if got := n.get(); got.ResourceVersion != refused.ResourceVersion {
			t.Errorf("%s: the second reconcile writes", name)
		}
		n.ask(func(s *v1alpha1.IdentitySpec) { *s = first.Spec; s.Request = first.Spec.Request + "\n" })
		n.ask(func(s *v1alpha1.IdentitySpec) { *s = first.Spec })
		n.reconcile()
		if got := conditionReason(n.get().Status.Conditions, v1alpha1.ConditionIssued); got != "True Issued" {
			t.Errorf("%s: taken back: %s", name, got)
		}
	}
	if _, _, csrs := n.leftovers(n.rome); csrs != 0 {
		t.Errorf("%d signing requests are left", csrs)
	}
}

// TestRenewalNotFor has Identities that get nothing, whatever they ask for.
func TestRenewalNotFor(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*testing.T, *tenancy){
		"no first credential": func(t *testing.T, n *tenancy) {
			id := n.get()
			id.Status = v1alpha1.IdentityStatus{}
			if err := n.client.Status().Update(n.ctx, id); err != nil {
				t.Fatal(err)
			}
		},
		"revoked": func(t *testing.T, n *tenancy) {
			id := n.get()
			id.Status.Conditions = append(id.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionRevoked, Status: "True",
				Reason: v1alpha1.ReasonEndedByProvider, LastTransitionTime: metav1.Now()})
			if err := n.client.Status().Update(n.ctx, id); err != nil {
				t.Fatal(err)
			}
		},
		"goodbye": func(t *testing.T, n *tenancy) {
			if err := n.client.Delete(n.ctx, n.get()); err != nil {
				t.Fatal(err)
			}
		},
		"tenant gone": func(t *testing.T, n *tenancy) {
			if err := n.client.Delete(n.ctx, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: n.name("rome")}}); err != nil {
				t.Fatal(err)
			}
		},
		"tenant ending": func(t *testing.T, n *tenancy) {
			tenant := &v1alpha1.Tenant{}
			if err := n.client.Get(n.ctx, client.ObjectKey{Name: n.name("rome")}, tenant); err != nil {
				t.Fatal(err)
			}
			tenant.Finalizers = []string{v1alpha1.FinalizerTenant}
			if err := n.client.Update(n.ctx, tenant); err != nil {
				t.Fatal(err)
			}
			if err := n.client.Delete(n.ctx, tenant); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTenancy(t)
			n.rome.newKey(t)
			n.ask(func(s *v1alpha1.IdentitySpec) { s.Request = n.rome.spec.Request })
			prepare(t, n)
			before := n.get()
			n.reconcile()
			if got := n.get(); got.ResourceVersion != before.ResourceVersion {
				t.Errorf("something was written: %+v", got.Status)
			}
			if _, _, csrs := n.leftovers(n.rome); csrs != 0 {
				t.Error("a certificate was asked for")
			}
		})
	}
}

func TestRenewalFollowsSettings(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	n.home.set("https://moved:6443")
	n.reconcile()
	if got := n.get().Status.ServerURL; got != "https://moved:6443" {
		t.Errorf("the address is %s", got)
	}
	n.home.set("")
	n.reconcile()
	if got := n.get().Status.ServerURL; got != "https://moved:6443" {
		t.Errorf("without a new address the last one stays, not %q", got)
	}
}

func TestRenewalSignerFails(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	n.setSigner(func(c *x509.Certificate) *x509.Certificate { c.Subject.CommonName = "system:admin"; return c })
	n.rome.newKey(t)
	n.ask(func(s *v1alpha1.IdentitySpec) { s.Request = n.rome.spec.Request })
	first := n.get()
	if _, err := n.r.Reconcile(n.ctx, reconcile.Request{NamespacedName: n.key}); err == nil {
		t.Error("no error for the back-off")
	}
	got := n.get()
	if conditionReason(got.Status.Conditions, v1alpha1.ConditionIssued) != "False SigningFailed" || got.Status.Certificate != first.Status.Certificate {
		t.Errorf("got %+v", got.Status.Conditions)
	}
	n.setSigner(func(c *x509.Certificate) *x509.Certificate { return c })
	n.clock.Step(renewalPause)
	n.reconcile()
	if got := n.get().Status.RequestSHA256; got != hashOf(n.rome.spec.Request) {
		t.Error("not renewed once the signer is right")
	}
}

func TestPauses(t *testing.T) {
	var p pauses
	now := time.Now()
	a, b := client.ObjectKey{Name: "a"}, client.ObjectKey{Name: "b"}
	if p.take(a, now) != 0 || p.take(b, now) != 0 || p.take(a, now.Add(4*time.Second)) != 6*time.Second {
		t.Error("a pause is per tenant and ten seconds long")
	}
	if p.take(a, now.Add(renewalPause)) != 0 || len(p.last) != 1 {
		t.Errorf("after a pause the next one begins, and old ones are forgotten: %d", len(p.last))
	}
}

// TestRenewalLeavesIssuedAlone holds that what a consumer says of itself alone makes no write of the answer.
func TestRenewalLeavesIssuedAlone(t *testing.T) {
	t.Parallel()
	n := newTenancy(t)
	n.reconcile()
	for i := range 5 {
		n.ask(func(s *v1alpha1.IdentitySpec) { s.Cluster.Version = fmt.Sprint("v0.9.", i) })
		before := n.get()
		n.reconcile()
		if got := n.get(); got.ResourceVersion != before.ResourceVersion {
			t.Fatalf("change %d was answered by a write: %+v", i, got.Status.Conditions)
		}
	}
}
