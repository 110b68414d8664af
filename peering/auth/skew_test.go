package auth

import (
	"testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestLaterFields: what a later build has written into an invitation or an Identity stays
// when this one uses the invitation or renews the credential.
func TestLaterFields(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, i := w.invite()
	kept := kubetest.Later(t, w.client, i, "status") // its spec cannot be changed
	rome := newConsumer(t, w.name("rome"))
	if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); err != nil {
		t.Fatal(err)
	}
	kept()

	n := newTenancy(t)
	kept = kubetest.Later(t, n.client, n.get())
	n.rome.newKey(t)
	n.ask(func(s *v1alpha1.IdentitySpec) { s.Request = n.rome.spec.Request })
	n.reconcile()
	if n.get().Status.RequestSHA256 != hashOf(n.rome.spec.Request) {
		t.Error("not renewed")
	}
	kept()
}
