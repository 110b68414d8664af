// Package access answers who calls over HTTPS and whether he may: by client
// certificate, by bearer token or as a front proxy says, and then by what the API
// server allows. Answers are remembered for a short time; questions are few at a time,
// so that strangers cannot keep the API server busy through us. It gives no rights of
// its own, and nothing of a credential is ever logged or kept but its hash.
package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"

	"github.com/pelago-dev/pelago/internal/kube"
)

// What is remembered, and how many questions are open at the API server.
const (
	allowedFor     = time.Minute
	heldFor        = 2 * time.Minute // what was allowed, while nobody can say whether it still is
	refusedFor     = 10 * time.Second
	remembered     = 256
	questions      = 4
	questionLimit  = 10 * time.Second
	maxTokenLength = 8 << 10
)

// leaveTime is how long a server reads on of what it has refused: of a body that was
// announced, and that nobody looks at.
const leaveTime = time.Second

// Ask has the API server answer a review of authentication.k8s.io/v1 or authorization.k8s.io/v1: it
// creates that, and makes it what has become of it.
type Ask func(ctx context.Context, review kube.Object) error

// Options are what a Gate is made of.
type Options struct {
	// Ask asks the API server.
	Ask Ask
	// Authorities of client certificates; without them certificates count for nothing.
	Authorities *Authorities
	// Clock ages what is remembered; the real one if nil.
	Clock clock.PassiveClock
	// Logger is told of questions that the API server did not answer.
	Logger logr.Logger
	// Remembered is how many answers are kept of those who may, and as many of others; 256
	// if zero.
	Remembered int
	// Questions is how many may be open at the API server for callers with a token that
	// nobody knows, and as many for those with a certificate or a token that was good;
	// 4 if zero.
	Questions int
}

// Asked is what a caller wants to do: one of a resource and a path.
type Asked struct {
	// Resource and the verb on it.
	Resource *authorizationv1.ResourceAttributes
	// Path that is no resource, and the verb on it.
	Path *authorizationv1.NonResourceAttributes
}

// Gate says who may pass. It is safe for concurrent use.
type Gate struct {
	options Options
	// Places for questions: those of strangers, who hold some token, are counted apart
	// from those of callers with a certificate or a token that was good, who must not
	// suffer from the former.
	strangers, known chan struct{}
	group            singleflight.Group

	mu sync.Mutex
	// What was answered to those who may, and to others: tokens that somebody makes up
	// push out no good ones. One who may is kept after its time, until it is refused or
	// there is no room, as one whose token is not made up.
	allowed, refused map[key]answer
}

// key is the hash of a credential and of what was asked for with it.
type key [sha256.Size]byte

// answer is what a caller gets.
type answer struct {
	status int
	at     time.Time
}

// New makes a gate that remembers nothing yet.
func New(o Options) *Gate {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	o.Remembered, o.Questions = cmp.Or(o.Remembered, remembered), cmp.Or(o.Questions, questions)
	return &Gate{
		options: o, allowed: map[key]answer{}, refused: map[key]answer{},
		strangers: make(chan struct{}, o.Questions), known: make(chan struct{}, o.Questions),
	}
}

// Status is what a request gets that needs one of the things asked: 200 if it may,
// 401 if nobody is known to have sent it, 403 if he may not, and 503 if that cannot be
// found out now. A caller with a certificate of the cluster is who that says;
// otherwise a token counts.
func (g *Gate) Status(r *http.Request, asked ...Asked) int {
	if user, ok := g.certified(r); ok {
		text, err := json.Marshal(user)
		if err != nil {
			return http.StatusUnauthorized
		}
		return g.remembering(r.Context(), g.known, hash("certificate", text, asked), func(ctx context.Context) (int, error) {
			return g.authorize(ctx, user, asked)
		})
	}
	token, found := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if token = strings.TrimSpace(token); !found || token == "" || len(token) > maxTokenLength {
		return http.StatusUnauthorized
	}
	return g.remembering(r.Context(), g.strangers, hash("token", []byte(token), asked), func(ctx context.Context) (int, error) {
		user, known, err := g.identify(ctx, token)
		if err != nil || !known {
			return http.StatusUnauthorized, err
		}
		return g.authorize(ctx, user, asked)
	})
}

// Refuse answers a request that did not get 200, and ends its connection: strangers
// do not get to keep one, nor does one who announces a body that never comes.
func Refuse(w http.ResponseWriter, status int) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(leaveTime)) // of a connection
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Connection", "close")
	http.Error(w, http.StatusText(status), status)
}

// certified is the user of the request's client certificate.
func (g *Gate) certified(r *http.Request) (authenticationv1.UserInfo, bool) {
	if g.options.Authorities == nil || r.TLS == nil {
		return authenticationv1.UserInfo{}, false
	}
	return g.options.Authorities.client(r.TLS.PeerCertificates, g.options.Clock.Now())
}

// hash is the same for the same credential that asks for the same.
func hash(kind string, credential []byte, asked []Asked) key {
	h := sha256.New()
	sum := sha256.Sum256(credential)
	fmt.Fprintf(h, "%s %s ", kind, hex.EncodeToString(sum[:]))
	for _, a := range asked {
		fmt.Fprintf(h, "%q %q;", a.Resource.String(), a.Path.String())
	}
	return key(h.Sum(nil))
}

// remembering answers from memory, or with what ask finds out: one question for all
// who ask the same at a time. What it does not find out is not remembered; who was
// allowed is so for a little longer then.
func (g *Gate) remembering(ctx context.Context, places chan struct{}, k key, ask func(context.Context) (int, error)) int {
	now := g.options.Clock.Now()
	g.mu.Lock()
	good, was := g.allowed[k]
	bad, wasNot := g.refused[k]
	g.mu.Unlock()
	switch {
	case was && now.Sub(good.at) < allowedFor:
		return good.status
	case wasNot && now.Sub(bad.at) < refusedFor:
		return bad.status
	case was:
		places = g.known
	}
	status, err, _ := g.group.Do(string(k[:]), func() (any, error) {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), questionLimit)
		defer cancel()
		if !g.place(limited, places) {
			return http.StatusServiceUnavailable, nil
		}
		defer func() { <-places }()
		status, err := ask(limited)
		if err == nil {
			g.remember(k, status, now)
		}
		return status, err
	})
	if err != nil {
		g.options.Logger.Error(err, "request not checked")
		status = http.StatusServiceUnavailable
	}
	if status == http.StatusServiceUnavailable && was && g.options.Clock.Now().Sub(good.at) < heldFor {
		return good.status
	}
	return status.(int)
}

// place takes a place for a question. Those who are known wait for one; those with a
// token that anybody can have made up do not.
func (g *Gate) place(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	if places == g.strangers {
		return false
	}
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// remember keeps an answer, in the place of the oldest of its kind if there are many.
func (g *Gate) remember(k key, status int, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.allowed, k)
	delete(g.refused, k)
	kept := g.refused
	if status == http.StatusOK {
		kept = g.allowed
	}
	if len(kept) >= g.options.Remembered {
		var oldest key
		for other, a := range kept {
			if o, found := kept[oldest]; !found || a.at.Before(o.at) {
				oldest = other
			}
		}
		delete(kept, oldest)
	}
	kept[k] = answer{status: status, at: now}
}

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create,roleName=pelago-auth
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create,roleName=pelago-auth

// identify has the API server say whose token it is.
func (g *Gate) identify(ctx context.Context, token string) (authenticationv1.UserInfo, bool, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if err := g.options.Ask(ctx, review); err != nil {
		return authenticationv1.UserInfo{}, false, fmt.Errorf("asking whose token it is: %w", err)
	}
	return review.Status.User, review.Status.Authenticated, nil
}

// authorize has the API server say whether a user may do one of the things asked.
func (g *Gate) authorize(ctx context.Context, user authenticationv1.UserInfo, asked []Asked) (int, error) {
	extra := map[string]authorizationv1.ExtraValue{}
	for name, values := range user.Extra {
		extra[name] = authorizationv1.ExtraValue(values)
	}
	for _, a := range asked {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
			ResourceAttributes: a.Resource, NonResourceAttributes: a.Path,
		}}
		if err := g.options.Ask(ctx, review); err != nil {
			return 0, fmt.Errorf("asking what a user may do: %w", err)
		}
		if review.Status.Allowed {
			return http.StatusOK, nil
		}
	}
	return http.StatusForbidden, nil
}
