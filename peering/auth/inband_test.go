package auth

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestHandshakeInBand holds that who comes by an invitation in band is told to stay in the tunnel: where
// the API server is by its name inside, with the authority of pods here, though nobody outside could be
// told of an address.
func TestHandshakeInBand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.home.set("")
	token, _ := w.invite(func(i *v1alpha1.Invitation) {
		i.Spec.InBand = &v1alpha1.InvitationInBand{PublicKey: "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="}
	})
	rome := newConsumer(t, w.name("rome"))
	got, err := w.shake.run(w.ctx, rome.applicant(t, token))
	if err != nil {
		t.Fatal(err)
	}
	if s := got.Status; s.ServerURL != v1alpha1.InBandServer || s.ServerCA != "inside" || s.ProxyURL != "" {
		t.Errorf("the API server is at %s, of %q, by %q", s.ServerURL, s.ServerCA, s.ProxyURL)
	}
	tenant := &v1alpha1.Tenant{}
	if err := w.client.Get(w.ctx, client.ObjectKey{Name: w.name("rome")}, tenant); err != nil || !tenant.Spec.InBand {
		t.Errorf("the tenant is not in band: %+v, %v", tenant.Spec, err)
	}
	for _, change := range []string{`{"spec":{"inBand":null}}`, `{"spec":{"inBand":false}}`} {
		if err := w.client.Patch(w.ctx, tenant.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(change))); err == nil || !strings.Contains(err.Error(), "cannot be changed") {
			t.Errorf("%s: %v, want that it cannot be changed", change, err)
		}
	}
	plain, _ := w.invite()
	if _, err := w.shake.run(w.ctx, newConsumer(t, w.name("turin")).applicant(t, plain)); reasonOf(err) != v1alpha1.ReasonWaiting {
		t.Errorf("another one without an address to be told is %s", reasonOf(err))
	}
}
