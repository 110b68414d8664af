package peering

import (
	"context"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// makeAgain takes the Peering away without a goodbye, and makes it as a backup has it.
func (s *stage) makeAgain() {
	s.t.Helper()
	again := s.peering()
	s.dropPeering()
	again.ObjectMeta = metav1.ObjectMeta{Name: again.Name}
	if err := s.client.Create(s.t.Context(), again); err != nil {
		s.t.Fatal(err)
	}
}

// TestMadeAgain holds that a Peering which is made again, as by a restore, leaves the
// credential of the earlier one alone and says what to do, until it has an invitation
// of its own.
func TestMadeAgain(t *testing.T) {
	s := newStage(t)
	s.peer()
	old, _ := s.credential()
	s.makeAgain()
	p := s.until("it is stalled", has(v1alpha1.ConditionStalled, v1alpha1.ReasonInvitationMissing))
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionIdentityReady)
	for _, part := range []string{old.Name, "pelago unpeer " + s.name + " --force", "the provider's owner run pelago unpeer", "a new invitation"} {
		if c == nil || !strings.Contains(c.Message, part) {
			t.Errorf("IdentityReady does not name %q: %+v", part, c)
		}
	}
	if now, _ := s.credential(); !reflect.DeepEqual(now.Data, old.Data) {
		t.Fatal("the credential of the earlier Peering was replaced")
	}
	s.makeToken(token)
	s.until("it is introduced", has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonIssued))
	if _, cred := s.credential(); cred.UID != string(p.UID) {
		t.Errorf("the credential is of Peering %s, want %s", cred.UID, p.UID)
	}
}

// TestMadeAgainRefused holds that a Peering which is made again is not ended by what the
// connection of the earlier one has shown, while the provider refuses the new credential,
// as an API server does that has just started.
func TestMadeAgainRefused(t *testing.T) {
	s := newStage(t)
	var mu sync.Mutex
	var lines []net.Conn
	s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			lines = append(lines, c)
		}
		return c, err
	}
	s.startFleet()
	s.restart(s.client)
	s.peer()
	old, _ := s.fleet.Peer(s.name)
	s.makeAgain()
	if err := s.client.Delete(t.Context(), s.identity()); err != nil {
		t.Fatal(err)
	}
	await(t, "the earlier connection shows no Identity", func() bool {
		return apierrors.IsNotFound(old.Reader().Get(t.Context(), client.ObjectKeyFromObject(s.identity()), s.identity()))
	})
	if err := s.client.Delete(t.Context(), roleBinding(s.tenant)); err != nil {
		t.Fatal(err)
	}
	if err := s.grant("nobody"); err != nil { // and the endpoint, which grants once, grants no more
		t.Fatal(err)
	}
	mu.Lock()
	for _, c := range lines {
		c.Close()
	}
	mu.Unlock()
	await(t, "the earlier connection is refused", func() bool { return old.State().Reason == v1alpha1.ReasonForbidden })
	s.makeToken(token)
	p := s.until("the refusal is shown", func(p *v1alpha1.Peering) bool {
		return p == nil || p.DeletionTimestamp != nil || has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonForbidden)(p)
	})
	if p == nil || p.DeletionTimestamp != nil {
		t.Fatal("it was ended by what is of the earlier one")
	}
	if err := s.client.Delete(t.Context(), roleBinding(s.tenant)); err != nil {
		t.Fatal(err)
	}
	if err := s.grant(s.auth.lastSpec.PeeringUID); err != nil {
		t.Fatal(err)
	}
	s.until("it goes on", has(v1alpha1.ConditionReady, v1alpha1.ReasonReady))
}

// await polls until something is so.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline, tick := time.After(time.Minute), time.NewTicker(10*time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline:
			t.Fatalf("waiting until %s: not so after a minute", what)
		case <-tick.C:
		}
	}
}

// TestMadeAgainAndEnded holds that ending a Peering that was made again leaves nothing
// here, and tells that the provider has not been told.
func TestMadeAgainAndEnded(t *testing.T) {
	s := newStage(t)
	s.peer()
	s.makeAgain()
	p := s.until("it is stalled", has(v1alpha1.ConditionStalled, v1alpha1.ReasonInvitationMissing))
	s.events()
	s.delete(p)
	s.untilGone()
	if !s.told("of an earlier Peering") {
		t.Error("nobody was told that the provider has not been told")
	}
	secrets := &corev1.SecretList{}
	if err := s.client.List(t.Context(), secrets, client.InNamespace(s.namespace)); err != nil || len(secrets.Items) > 0 {
		t.Errorf("%d secrets are left, %v", len(secrets.Items), err)
	}
}

// TestSameSecretName: a Secret that was made for another Peering under the name of one
// that has been used is left alone, and one that is this Peering's is not.
func TestSameSecretName(t *testing.T) {
	s := newStage(t)
	s.peer()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "invitation"}}
	for _, c := range []struct {
		reason, token, peering string
		left                   bool
	}{
		{"the token that was used, applied again", token, "", false},
		{"another one, for this Peering", "another", s.name, false},
		{"another one", "another", "", true},
	} {
		s.makeToken(c.token)
		if c.peering != "" {
			if !s.exists(secret) {
				t.Fatal("the Secret is not there")
			}
			secret.Labels = map[string]string{v1alpha1.LabelPeering: c.peering}
			if err := s.client.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.reconcile(); err != nil {
			t.Fatal(err)
		}
		if left := s.exists(secret); left != c.left {
			t.Errorf("%s: it is there: %v", c.reason, left)
		}
	}
	s.delete(s.peering())
	s.untilGone()
	if !s.exists(secret) {
		t.Error("the other one's Secret went with the Peering")
	}
}
