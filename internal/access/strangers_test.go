package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/pelago-dev/pelago/internal/kube"
)

// cluster is an API server that knows one token, and lets one hang.
type cluster struct {
	good          string
	fault         error
	asked         int // about the good one
	hanging, goOn chan struct{}
}

func (c *cluster) ask(_ context.Context, o kube.Object) error {
	switch review := o.(type) {
	case *authorizationv1.SubjectAccessReview:
		review.Status.Allowed = true
	case *authenticationv1.TokenReview:
		switch review.Spec.Token {
		case "hanging":
			close(c.hanging)
			<-c.goOn
		case "friend":
			c.asked++
			review.Status.Authenticated = c.good == "friend"
			return c.fault
		}
	}
	return nil
}

// TestStrangersPushNobodyOut holds that tokens that somebody makes up neither take the place of a good answer nor
// keep a good token from being asked about again.
func TestStrangersPushNobodyOut(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	c := &cluster{good: "friend", hanging: make(chan struct{}), goOn: make(chan struct{})}
	g := New(Options{Ask: c.ask, Clock: now, Remembered: 4, Questions: 1})
	ask := func(why string, want, questions int) {
		t.Helper()
		c.asked = 0
		if got := g.Status(bearer("friend"), read); got != want || c.asked != questions {
			t.Errorf("%s: got %d after %d questions, want %d after %d", why, got, c.asked, want, questions)
		}
	}
	ask("at first", http.StatusOK, 1)
	for i := range 100 {
		if got := g.Status(bearer(fmt.Sprint("stranger", i)), read); got != http.StatusUnauthorized {
			t.Fatalf("a stranger got %d", got)
		}
	}
	ask("after a hundred strangers", http.StatusOK, 0)

	hangs := make(chan int)
	go func() { hangs <- g.Status(bearer("hanging"), read) }()
	<-c.hanging
	if got := g.Status(bearer("another"), read); got != http.StatusServiceUnavailable {
		t.Fatalf("while a stranger hangs another one got %d", got)
	}
	ask("while a stranger hangs", http.StatusOK, 0)
	now.SetTime(now.Now().Add(allowedFor))
	ask("and its answer is old", http.StatusOK, 1)
	now.SetTime(now.Now().Add(time.Hour))
	ask("and very old", http.StatusOK, 1)
	now.SetTime(now.Now().Add(allowedFor))
	c.good = ""
	ask("and it is good no more", http.StatusUnauthorized, 1)
	now.SetTime(now.Now().Add(refusedFor))
	ask("and thus unknown", http.StatusServiceUnavailable, 0)
	close(c.goOn)
	if got := <-hangs; got != http.StatusUnauthorized {
		t.Errorf("who hung got %d", got)
	}
}

// TestHeld holds that what was allowed is so for a little longer while the API server says nothing, and that its
// word counts at once.
func TestHeld(t *testing.T) {
	for _, c := range []struct {
		reason string
		age    time.Duration
		fault  error
		good   string
		want   int
	}{
		{"no word, and old", allowedFor, errors.New("away"), "friend", http.StatusOK},
		{"no word for long", heldFor, errors.New("away"), "friend", http.StatusServiceUnavailable},
		{"its word", allowedFor, nil, "", http.StatusUnauthorized},
	} {
		now := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
		s := &cluster{good: "friend"}
		g := New(Options{Ask: s.ask, Clock: now})
		if got := g.Status(bearer("friend"), read); got != http.StatusOK {
			t.Fatalf("at first: got %d", got)
		}
		now.SetTime(now.Now().Add(c.age))
		s.fault, s.good = c.fault, c.good
		if got := g.Status(bearer("friend"), read); got != c.want || s.asked != 2 {
			t.Errorf("%s: got %d after %d questions, want %d after 2", c.reason, got, s.asked, c.want)
		}
		if s.fault, s.good = nil, ""; c.want != http.StatusUnauthorized {
			if got := g.Status(bearer("friend"), read); got != http.StatusUnauthorized {
				t.Errorf("%s, then its word: got %d", c.reason, got)
			}
		}
	}
}
