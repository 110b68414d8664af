package peering

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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
	if c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionIdentityReady); !strings.Contains(c.Message, "the provider's owner run pelago unpeer") {
		t.Errorf("the provider takes a new invitation only when the tenant has gone: %s", c.Message)
	}
	if res, err := s.reconcile(); err != nil || res.RequeueAfter <= 0 || res.RequeueAfter > renewAgain {
		t.Errorf("after its end it is looked at again in %s, %v", res.RequeueAfter, err)
	}
	s.clock.SetTime(c.NotAfter.Add(-time.Minute)) // the clock was wrong
	s.until("it goes on", ready)
}

// TestRenewalOfEarlierBuild holds that a credential whose user has the UID of the Peering
// is renewed for that, and that what an earlier build has asked for a user of another
// credential, which no provider grants, is asked anew.
func TestRenewalOfEarlierBuild(t *testing.T) {
	s := newStage(t)
	p := s.peer()
	secret, cred := s.credential()
	_, earlier, err := newKey(rand.Reader, string(p.UID))
	if err != nil {
		t.Fatal(err)
	}
	if c := (&credential{UID: string(p.UID), Request: earlier}); c.user() != v1alpha1.UserPrefix+string(p.UID) {
		t.Errorf("the user is %s", c.user())
	}
	cred.NextKey, cred.NextRequest = cred.Key, earlier
	secret.Data = cred.store()
	if err := s.client.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	s.clock.SetTime(cred.renewAfter().Add(time.Second))
	s.until("it asks for a new one", has(v1alpha1.ConditionIdentityReady, v1alpha1.ReasonRenewing))
	identity := s.identity()
	if s.exists(identity); userOf([]byte(identity.Spec.Request)) != v1alpha1.UserPrefix+identity.Spec.PeeringUID {
		t.Errorf("it asks for %s, is %s", userOf([]byte(identity.Spec.Request)), identity.Spec.PeeringUID)
	}
}

// TestFarewellByWrongClock holds that a goodbye is said with a credential that has ended by this
// cluster's clock alone, and given up where nobody takes it.
func TestFarewellByWrongClock(t *testing.T) {
	for _, c := range []struct {
		reason         string
		forced, silent bool
	}{{"unpeered", false, false}, {"forced", true, false}, {"nobody answers", false, true}, {"forced, and nobody answers", true, true}} {
		s := newStage(t)
		p := s.peer()
		secret, cred := s.credential()
		ahead := 30 * time.Minute // more would leave nothing to a tombstone
		if !c.forced {
			ahead = 24 * time.Hour
		}
		s.clock.SetTime(cred.NotAfter.Add(ahead))
		if c.silent {
			cred.Server = "https://127.0.0.1:1"
			secret.Data = cred.store()
			if err := s.client.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			s.fleet.Remove(s.name)
		}
		if c.forced {
			before := p.DeepCopy()
			p.Annotations = map[string]string{v1alpha1.AnnotationForce: "true"}
			if err := s.client.Patch(t.Context(), p, client.MergeFrom(before)); err != nil {
				t.Fatal(err)
			}
		}
		s.delete(p)
		s.events()
		s.untilGone()
		secrets := &corev1.SecretList{}
		if err := s.client.List(t.Context(), secrets, client.InNamespace(s.namespace)); err != nil || (len(secrets.Items) > 0) != c.forced {
			t.Errorf("%s: %d Secrets, %v", c.reason, len(secrets.Items), err)
		}
		s.clock.SetTime(cred.NotAfter.Add(24 * time.Hour))
		for i := range secrets.Items {
			stone := &secrets.Items[i]
			if _, err := (&tombstones{s.r}).Reconcile(t.Context(), requestFor(stone)); err != nil || s.exists(stone) {
				t.Errorf("%s: the tombstone is left, %v", c.reason, err)
			}
		}
		if s.exists(s.identity()) != c.silent || s.told(v1alpha1.ReasonExpired) != c.silent {
			t.Errorf("%s: the goodbye was heard or not, or told or not, otherwise than it was", c.reason)
		}
	}
}

// TestRenewalWhereverTheProviderIs holds that a certificate is taken whatever the provider says beside it of its
// authority, and that this is followed where it can be, and else said.
func TestRenewalWhereverTheProviderIs(t *testing.T) {
	s := newStage(t)
	rotated := "# new\n" + bundle(t, 10) + string(s.cluster.pem) + "# the end of the bundle\n"
	s.peer()
	for _, c := range []struct {
		reason, ca, said string
		followed         bool
	}{
		{"a bundle of eleven, with comments", rotated, "", true},
		{"no certificate", "nothing", "serverCA: no certificate in PEM; what works is kept", false},
	} {
		_, old := s.credential()
		s.clock.SetTime(old.renewAfter().Add(2 * seldom))
		s.until("it asks for a new one", func(*v1alpha1.Peering) bool { _, c := s.credential(); return len(c.NextKey) > 0 })
		_, asked := s.credential()
		s.until("the provider has heard", func(*v1alpha1.Peering) bool {
			identity := s.identity()
			return s.exists(identity) && identity.Spec.Request == string(asked.NextRequest)
		})
		s.life += 2 * time.Hour
		s.auth.bend = func(i *v1alpha1.IdentityStatus) { i.ServerCA = c.ca }
		if _, err := s.answer(string(asked.NextRequest)); err != nil {
			t.Fatal(err)
		}
		s.until(c.reason+": it is renewed", func(*v1alpha1.Peering) bool { _, c := s.credential(); return len(c.NextKey) == 0 })
		s.until(c.reason+": it is followed or said", func(p *v1alpha1.Peering) bool {
			reachable := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReachable)
			_, cred := s.credential()
			return ready(p) && strings.HasSuffix(reachable.Message, c.said) && (string(cred.CA) == c.ca) == c.followed
		})
		if _, cred := s.credential(); string(cred.CA) != rotated || cred.Server != old.Server {
			t.Errorf("%s: what works was not kept", c.reason)
		}
	}
}
