package auth

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"strconv"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// handshakeLimit bounds all that is done for one request. It is more than the waits
// in it, and less than the time in which a response must be written.
const handshakeLimit = 25 * time.Second

// endpoint answers requests. It says nothing to those that are not applications.
type endpoint struct {
	shake   *handshake
	clock   clock.PassiveClock
	metrics *metrics
}

// failure is the body of every answer that is not 200.
type failure struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// ServeHTTP answers one request.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	if r.URL.Path != v1alpha1.AuthPath {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return
	}
	begin := e.clock.Now()
	ctx, cancel := context.WithTimeout(r.Context(), handshakeLimit)
	defer cancel()
	got, err := e.serve(ctx, w, r)
	if err != nil {
		e.fail(ctx, w, err)
	} else {
		write(w, http.StatusOK, got)
	}
	e.metrics.seconds.Observe(e.clock.Since(begin).Seconds())
}

func (e *endpoint) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) (*reply, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, e.shake.limited(invalid("body: not received, or more than %d bytes", maxBody))
	}
	a, err := parse(body)
	if err != nil {
		return nil, e.shake.limited(err)
	}
	return e.shake.run(ctx, a)
}

// fail writes a refusal. What is not one is ours to know: the applicant learns only
// that it may try again.
func (e *endpoint) fail(ctx context.Context, w http.ResponseWriter, err error) {
	var no *refusal
	if !errors.As(err, &no) {
		if !errors.Is(ctx.Err(), context.Canceled) {
			log.FromContext(ctx).Error(plain(err), "handshake not finished")
		}
		no = waiting("the provider could not finish just now; try again")
	}
	e.metrics.refused.WithLabelValues(no.reason).Inc()
	if no.reason == v1alpha1.ReasonInvitationRefused {
		e.metrics.invitations.WithLabelValues("refused").Inc()
	}
	log.FromContext(ctx).V(1).Info("application not granted", "reason", no.reason)
	if no.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(no.retryAfter.Seconds()))))
	}
	write(w, no.status, failure{Reason: no.reason, Message: no.message})
}

// final reports whether err refuses an attempt for what it brought: a token or a form
// that will be as wrong the next time.
func final(err error) bool {
	var no *refusal
	return errors.As(err, &no) && (no.status == http.StatusForbidden || no.status == http.StatusBadRequest)
}

// write sends a body. When that fails, the applicant is gone and will come again.
func write(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text)
}
