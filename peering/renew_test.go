package peering

import (
	"context"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

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
