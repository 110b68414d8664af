package peering

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// TestBeyond holds that a provider which shows more than is kept is reachable, and that it is
// said until it is over.
func TestBeyond(t *testing.T) {
	v := &visit{Peering: &v1alpha1.Peering{}}
	for _, beyond := range []error{errors.New("more than 2000 shadowobjects"), nil} {
		if !v.reach(fleet.State{Reachable: true, Reason: v1alpha1.ReasonPeerReachable, Beyond: beyond}) {
			t.Error("it is not reachable")
		}
		c := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionReachable)
		if c == nil || c.Status != "True" || strings.Contains(c.Message, "more than 2000 shadowobjects") != (beyond != nil) || beyond == nil && c.Message != "" {
			t.Errorf("%v: %+v", beyond, c)
		}
	}
}

// showTooMuch peers with a provider that then shows more offers than this cluster takes.
func (s *stage) showTooMuch() (offers []*v1alpha1.ResourceOffer) {
	s.t.Helper()
	s.offers = fleet.Bounds{Objects: 50}
	s.startFleet()
	s.restart(s.client)
	s.peer()
	for n := range 51 {
		offer := &v1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Namespace: s.tenant, Name: fmt.Sprintf("o%d", n)}}
		offer.Spec.Resources, offer.Spec.Expires = v1alpha1.ResourceList{"cpu": resource.MustParse("1")}, metav1.Now()
		if err := s.client.Create(s.t.Context(), offer); err != nil {
			s.t.Fatal(err)
		}
		offers = append(offers, offer)
	}
	s.until("it is too much", tooMuch)
	return offers
}

// tooMuch says whether a Peering says that its provider shows too much.
func tooMuch(p *v1alpha1.Peering) bool {
	c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReachable)
	return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "shows more than this cluster takes")
}

// TestAliveTooMuch holds that this cluster gives signs of life to a provider that shows more than is taken, and
// renews its credential there, also after a restart, and that all is well when it shows less, though the
// first credential would have ended meanwhile.
func TestAliveTooMuch(t *testing.T) {
	s := newStage(t)
	offers := s.showTooMuch()
	_, first := s.credential()
	for _, reason := range []string{"as it goes on", "after a restart"} {
		if reason == "after a restart" {
			s.startFleet()
			s.restart(s.client)
		}
		before := s.lastBeat()
		s.clock.SetTime(s.clock.Now().Add(2 * beatEvery))
		s.until(reason+": a heartbeat", func(p *v1alpha1.Peering) bool { return s.lastBeat().After(before) && tooMuch(p) })
		_, old := s.credential()
		s.clock.SetTime(old.renewAfter().Add(time.Second))
		s.until(reason+": it asks for a new certificate", func(*v1alpha1.Peering) bool { _, c := s.credential(); return len(c.NextKey) > 0 })
		_, asked := s.credential()
		s.until(reason+": the provider is asked", func(*v1alpha1.Peering) bool {
			i := s.identity()
			return s.exists(i) && i.Spec.Request == string(asked.NextRequest)
		})
		s.life += 3 * time.Hour
		if _, err := s.answer(string(asked.NextRequest)); err != nil {
			t.Fatal(err)
		}
		p := s.until(reason+": it is renewed, and too much", func(p *v1alpha1.Peering) bool {
			_, c := s.credential()
			return len(c.NextKey) == 0 && string(c.Key) == string(asked.NextKey) && tooMuch(p)
		})
		if ready(p) || !isTrue(p, v1alpha1.ConditionIdentityReady) {
			t.Errorf("%s: %+v", reason, p.Status.Conditions)
		}
	}
	if !s.clock.Now().After(first.NotAfter) {
		t.Errorf("the first credential, good until %s, has not ended", first.NotAfter)
	}
	if err := s.client.Delete(t.Context(), offers[0]); err != nil {
		t.Fatal(err)
	}
	s.until("all is well", ready)
}

// TestEndedTooMuch holds that a peering ends that its provider has ended while it shows too much.
func TestEndedTooMuch(t *testing.T) {
	s := newStage(t)
	s.showTooMuch()
	s.free(s.identity())
	s.untilGone()
	if !s.told(v1alpha1.ReasonEndedByProvider) {
		t.Error("nobody was told")
	}
}
