package auth

import (
	"errors"
	"reflect"
	"slices"
	"strings"
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

// TestNoLeader: as long as no manager has said what it knows, nobody is let in to be told, and who is in keeps what
// it was told before.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	token, _ := w.invite()
	rome := newConsumer(t, w.name("rome"))
	w.home.knows()
	_, err := w.shake.run(w.ctx, rome.applicant(t, token))
	if refused := (*refusal)(nil); !errors.As(err, &refused) || refused.reason != v1alpha1.ReasonWaiting || !strings.Contains(refused.message, "no manager of this cluster leads yet") {
		t.Errorf("answered %v", err)
	}
	w.home.knows(v1alpha1.FeaturePeering)
	if _, err := w.shake.run(w.ctx, rome.applicant(t, token)); err != nil {
		t.Errorf("not let in later: %v", err)
	}

	n := newTenancy(t)
	told := n.get().Status.Cluster
	n.home.knows()
	n.home.set("https://milan:7443")
	n.reconcile()
	if got := n.get().Status; got.ServerURL != "https://milan:7443" || !reflect.DeepEqual(got.Cluster, told) {
		t.Errorf("told of %+v at %s, before %+v", got.Cluster, got.ServerURL, told)
	}
	n.home.knows(v1alpha1.FeaturePeering, v1alpha1.FeatureParts)
	n.reconcile()
	if got := n.get().Status.Cluster; !slices.Contains(got.Features, v1alpha1.FeatureParts) {
		t.Errorf("not told of what the next manager knows: %+v", got)
	}
}
