package vitals

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What is remembered of tokens, and how many questions are open at the API server.
const (
	allowedFor     = time.Minute
	refusedFor     = 10 * time.Second
	remembered     = 256
	questions      = 4
	questionLimit  = 10 * time.Second
	maxTokenLength = 8 << 10
)

// answer is what a request with a token gets.
type answer struct {
	status int
	until  time.Time
}

// gate lets requests pass that may read what is behind it: the token's user must have
// the verb get on the path, as the API server says. It remembers answers for a short
// time, by the token's hash.
type gate struct {
	client client.Client
	clock  clock.PassiveClock
	logger logr.Logger
	behind http.Handler
	open   chan struct{} // one place per question at the API server

	mu      sync.Mutex
	answers map[[sha256.Size]byte]answer
}

func newGate(c client.Client, clock clock.PassiveClock, logger logr.Logger, behind http.Handler) *gate {
	return &gate{
		client: c, clock: clock, logger: logger, behind: behind,
		open: make(chan struct{}, questions), answers: map[[sha256.Size]byte]answer{},
	}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token = strings.TrimSpace(token); !found || token == "" || len(token) > maxTokenLength {
		refuse(w, http.StatusUnauthorized)
		return
	}
	if status := g.status(r.Context(), token, r.URL.Path); status != http.StatusOK {
		refuse(w, status)
		return
	}
	g.behind.ServeHTTP(w, r)
}

func refuse(w http.ResponseWriter, status int) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	http.Error(w, http.StatusText(status), status)
}

// status is what a token gets at a path; the gate guards one path only.
func (g *gate) status(ctx context.Context, token, path string) int {
	key := sha256.Sum256([]byte(token))
	now := g.clock.Now()
	g.mu.Lock()
	known, found := g.answers[key]
	g.mu.Unlock()
	if found && now.Before(known.until) {
		return known.status
	}
	select {
	case g.open <- struct{}{}:
		defer func() { <-g.open }()
	default: // strangers must not keep the API server busy through us
		return http.StatusServiceUnavailable
	}
	ctx, cancel := context.WithTimeout(ctx, questionLimit)
	defer cancel()
	status, err := g.ask(ctx, token, path)
	if err != nil {
		g.logger.Error(err, "request for metrics not checked")
		return http.StatusServiceUnavailable
	}
	g.remember(key, status, now)
	return status
}

// remember keeps an answer, in the place of an old one if there are many.
func (g *gate) remember(key [sha256.Size]byte, status int, now time.Time) {
	keep := refusedFor
	if status == http.StatusOK {
		keep = allowedFor
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.answers) >= remembered {
		for old, a := range g.answers {
			if !now.Before(a.until) {
				delete(g.answers, old)
			}
		}
		for old := range g.answers { // still full: any of them
			if len(g.answers) < remembered {
				break
			}
			delete(g.answers, old)
		}
	}
	g.answers[key] = answer{status: status, until: now.Add(keep)}
}

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create,roleName=pelago-auth
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create,roleName=pelago-auth

// ask has the API server say whose token it is, and whether he may read path.
func (g *gate) ask(ctx context.Context, token, path string) (int, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := g.client.Create(ctx, review); err != nil {
		return 0, fmt.Errorf("asking whose token it is: %w", err)
	}
	if !review.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := review.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	access := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"},
	}}
	if err := g.client.Create(ctx, access); err != nil {
		return 0, fmt.Errorf("asking what a user may do: %w", err)
	}
	if !access.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
