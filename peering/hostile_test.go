package peering

import (
	"context"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestTokenTimes holds that neither a fast clock here nor a rounded life makes tokens
// live shorter each time.
func TestTokenTimes(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	cases := []struct {
		reason          string
		stored          time.Duration // life of the token there is
		given           int64         // seconds; 0 is not said
		end             time.Duration // of the new one, from now
		asks, life, off time.Duration
		ok              bool
	}{
		{"as before", time.Hour, 3600, time.Hour, time.Hour, time.Hour, 0, true},
		{"a life that is not of whole minutes", time.Hour - 700*time.Millisecond, 3600, time.Hour, time.Hour, time.Hour, 0, true},
		{"this clock is fast", time.Hour, 3600, 50 * time.Minute, time.Hour, time.Hour, -10 * time.Minute, true},
		{"this clock is slow", time.Hour, 3600, 70 * time.Minute, time.Hour, time.Hour, 10 * time.Minute, true},
		{"never less than an API server gives", time.Minute, 600, 10 * time.Minute, 10 * time.Minute, 10 * time.Minute, 0, true},
		{"less than was asked for", 24 * time.Hour, 3600, time.Hour, 24 * time.Hour, time.Hour, 0, true},
		{"more than was asked for", time.Hour, 1 << 60, time.Hour, time.Hour, time.Hour, 0, true},
		{"nothing said", time.Hour, 0, time.Hour, time.Hour, time.Hour, 0, true},
		{"too short a life", time.Hour, 60, time.Hour, time.Hour, time.Minute, 0, false},
		{"too soon an end", time.Hour, 3600, time.Minute, time.Hour, time.Hour, 0, false},
	}
	for _, c := range cases {
		asked := tokenLife(&credential{NotBefore: now, NotAfter: now.Add(c.stored)})
		given := &authenticationv1.TokenRequest{}
		given.Status.ExpirationTimestamp = metav1.NewTime(now.Add(c.end))
		if c.given != 0 {
			given.Spec.ExpirationSeconds = &c.given
		}
		from, end, ok := tokenTimes(given, asked, now)
		if ok != c.ok || asked != c.asks || end.Sub(from) != c.life || ok && c.off != 0 && !from.Equal(now.Add(c.off)) {
			t.Errorf("%s: asked for %s, from %s to %s, %v", c.reason, asked, from, end, ok)
		}
	}
}

func TestRetries(t *testing.T) {
	limiter, request := retries(), ctrl.Request{}
	var wait time.Duration
	for range 100 {
		wait = limiter.When(request)
	}
	if wait != retryMax || retryMax > beatEvery {
		t.Errorf("waits %s after 100 errors", wait)
	}
}

// say changes what the provider says in the Identity's status.
func (s *stage) say(change func(*v1alpha1.IdentityStatus)) {
	s.t.Helper()
	identity := s.identity()
	s.exists(identity)
	before := identity.DeepCopy()
	change(&identity.Status)
	if err := s.client.Status().Patch(s.t.Context(), identity, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

// TestAddress keeps the address that works until another one has been seen to work,
// and tries another one once a minute.
func TestAddress(t *testing.T) {
	s := newStage(t)
	s.peer()
	_, old := s.credential()
	s.say(func(i *v1alpha1.IdentityStatus) { i.ServerURL = "https://127.0.0.1:1" })
	said := func(p *v1alpha1.Peering) bool {
		for _, c := range p.Status.Conditions {
			if c.Type == v1alpha1.ConditionReachable && c.Status == metav1.ConditionTrue && c.Message != "" {
				return true
			}
		}
		return false
	}
	s.until("it says that the address does not work", said)
	if p := s.peering(); !ready(p) || p.Status.ServerURL != old.Server {
		t.Errorf("server %s, conditions %+v", p.Status.ServerURL, p.Status.Conditions)
	}
	s.restart(s.client) // what is stored works
	if _, c := s.credential(); c.Server != old.Server {
		t.Errorf("stored the address %s", c.Server)
	}
	s.until("it was tried again", said)

	good := old.Server + "/"
	s.say(func(i *v1alpha1.IdentityStatus) { i.ServerURL = good })
	s.untilPolled("the watch has it", func() bool {
		peer, _ := s.fleet.Peer(s.name)
		identity := &v1alpha1.Identity{}
		err := peer.Reader().Get(context.Background(), client.ObjectKeyFromObject(s.identity()), identity)
		return err == nil && identity.Status.ServerURL == good
	})
	s.reconcile()
	if _, c := s.credential(); c.Server != old.Server {
		t.Error("an address was taken within a minute of the last")
	}
	s.clock.SetTime(s.clock.Now().Add(seldom))
	s.until("the good address is taken", func(p *v1alpha1.Peering) bool { return p.Status.ServerURL == good && ready(p) })
}

// untilPolled waits for what happens without a look.
func (s *stage) untilPolled(what string, so func() bool) {
	s.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline:
			s.t.Fatalf("waiting until %s: not so after a minute", what)
		case <-tick.C:
		}
	}
}

func (s *stage) lastBeat() time.Time {
	s.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: v1alpha1.IdentityName}}
	s.exists(lease)
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

// TestBeatWhateverElse sends the heartbeat and renews while what the provider says is
// not usable and it does not take what this cluster says; and renews once a minute at
// most.
func TestBeatWhateverElse(t *testing.T) {
	s := newStage(t)
	s.peer()
	_, old := s.credential()
	s.say(func(i *v1alpha1.IdentityStatus) { i.Cluster.ID = homeID })
	s.until("what the provider says is not usable", has(v1alpha1.ConditionCompatible, v1alpha1.ReasonInvalid))
	beat := func(reason string) {
		s.t.Helper()
		before := s.lastBeat()
		s.clock.SetTime(s.clock.Now().Add(2 * beatEvery))
		if _, err := s.reconcile(); err != nil || !s.lastBeat().After(before) {
			t.Errorf("%s: no heartbeat, error %v", reason, err)
		}
	}
	beat("an unusable status")
	s.home.info.Name = "Not A Name!" // the API server there refuses it
	beat("an identity that is refused")

	p := s.peering()
	s.r.memory.of(p.UID, func(m *recollection) { m.renewed = old.renewAfter().Add(time.Second) })
	s.clock.SetTime(old.renewAfter().Add(2 * time.Second))
	s.reconcile()
	if _, c := s.credential(); len(c.NextKey) > 0 {
		t.Error("renewed twice in a minute")
	}
	s.clock.SetTime(s.clock.Now().Add(seldom))
	s.reconcile()
	if _, c := s.credential(); len(c.NextKey) == 0 {
		t.Error("an unusable status keeps from renewing")
	}
}
