package access

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/pelago-dev/pelago/internal/kube"
)

// asked counts the questions about tokens and answers them as if there were a server.
func asked(count *atomic.Int64, answer func(token string) error) Ask {
	return func(_ context.Context, o kube.Object) error {
		if review, ok := o.(*authenticationv1.TokenReview); ok {
			count.Add(1)
			return answer(review.Spec.Token)
		}
		return nil
	}
}

func bearer(token string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	return r
}

var read = Asked{Path: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}}

func TestGateRemembers(t *testing.T) {
	now := testingclock.NewFakePassiveClock(time.Unix(1e9, 0))
	var count atomic.Int64
	var fault error
	g := New(Options{Ask: asked(&count, func(string) error { return fault }), Clock: now})
	ask := func(token string, want int, questions int64) {
		t.Helper()
		count.Store(0)
		if got := g.Status(bearer(token), read); got != want || count.Load() != questions {
			t.Errorf("got %d after %d questions, want %d after %d", got, count.Load(), want, questions)
		}
	}
	ask("a", http.StatusUnauthorized, 1)
	ask("a", http.StatusUnauthorized, 0)
	now.SetTime(now.Now().Add(refusedFor))
	fault = errors.New("the API server is away")
	ask("a", http.StatusServiceUnavailable, 1)
	ask("a", http.StatusServiceUnavailable, 1) // a failure is not remembered
	fault = nil
	for i := range 3 * remembered {
		ask(fmt.Sprint("stranger", i), http.StatusUnauthorized, 1)
	}
	if len(g.refused) != remembered {
		t.Errorf("%d refusals are kept, at most %d", len(g.refused), remembered)
	}
	g.remember(hash("token", []byte("friend"), []Asked{read}), http.StatusOK, now.Now())
	now.SetTime(now.Now().Add(allowedFor - 1))
	ask("friend", http.StatusOK, 0)
	now.SetTime(now.Now().Add(1))
	ask("friend", http.StatusUnauthorized, 1)
}

// A flood of strangers must not become a flood of questions, nor keep out those who
// hold a certificate.
func TestGateBoundsQuestions(t *testing.T) {
	var count atomic.Int64
	ca := newAuthority(t)
	trusted := &Authorities{}
	if err := trusted.Set(map[string]string{keyClientCA: ca.pem()}); err != nil {
		t.Fatal(err)
	}
	g := New(Options{Ask: asked(&count, func(string) error { return nil }), Authorities: trusted})
	for range questions {
		g.strangers <- struct{}{}
	}
	if got := g.Status(bearer("x"), read); got != http.StatusServiceUnavailable || count.Load() != 0 {
		t.Errorf("got %d after %d questions, want 503 after none", got, count.Load())
	}
	r := bearer("x")
	r.TLS = &tls.ConnectionState{PeerCertificates: ca.user(t, "admin", "ops")}
	if got := g.Status(r, read); got != http.StatusForbidden {
		t.Errorf("a caller with a certificate got %d, want an answer", got)
	}
}

// The same credential that asks for something else is asked about again.
func TestHashTellsApart(t *testing.T) {
	node := func(name, part string) Asked {
		return Asked{Resource: &authorizationv1.ResourceAttributes{Resource: "nodes", Name: name, Subresource: part, Verb: "get"}}
	}
	seen := map[[sha256.Size]byte]string{}
	for _, kind := range []string{"token", "certificate"} {
		for _, credential := range []string{"a", "b"} {
			for _, want := range [][]Asked{{read}, {node("milan", "proxy")}, {node("milan", "stats")}, {node("rome", "proxy")}, {node("milan", "pods"), node("milan", "proxy")}, {}} {
				text := fmt.Sprint(kind, credential, want)
				h := hash(kind, []byte(credential), want)
				if before, found := seen[h]; found {
					t.Errorf("%s is taken for %s", text, before)
				}
				seen[h] = text
			}
		}
	}
}

// Allowed is who may do one of the things asked, whichever; the user's groups are told.
func TestGateAsks(t *testing.T) {
	ca := newAuthority(t)
	trusted := &Authorities{}
	if err := trusted.Set(map[string]string{keyClientCA: ca.pem()}); err != nil {
		t.Fatal(err)
	}
	var specs []authorizationv1.SubjectAccessReviewSpec
	ask := func(_ context.Context, o kube.Object) error {
		review := o.(*authorizationv1.SubjectAccessReview)
		specs = append(specs, review.Spec)
		review.Status.Allowed = review.Spec.ResourceAttributes.Subresource == "proxy"
		return nil
	}
	g := New(Options{Ask: ask, Authorities: trusted})
	r := httptest.NewRequest(http.MethodGet, "/pods", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: ca.user(t, "admin", "ops")}
	either := []Asked{{Resource: &authorizationv1.ResourceAttributes{Subresource: "pods"}}, {Resource: &authorizationv1.ResourceAttributes{Subresource: "proxy"}}}
	for range 2 {
		if got := g.Status(r, either...); got != http.StatusOK || len(specs) != 2 {
			t.Fatalf("got %d after %d questions", got, len(specs))
		}
	}
	if s := specs[0]; s.User != "admin" || len(s.Groups) != 2 || s.Groups[0] != "ops" || s.Groups[1] != groupAll {
		t.Errorf("asked about %q of %q", s.User, s.Groups)
	}
	if got := g.Status(r); got != http.StatusForbidden {
		t.Errorf("who asks for nothing gets %d", got)
	}
}
