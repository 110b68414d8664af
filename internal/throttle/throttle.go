// Package throttle says when a controller works on what: how soon it tries again what has failed, and how
// many of its workers one peer may keep busy. It knows nothing of what the work is.
package throttle

import (
	"math/rand/v2"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// first is when what has failed is tried again the first time, about, and latest the most that this grows to.
	first  = 100 * time.Millisecond
	latest = 30 * time.Second
)

// limiter spaces out what failed. Nothing else is held back.
type limiter struct {
	workqueue.TypedRateLimiter[reconcile.Request]
}

// NewLimiter is the back-off of a controller: from a tenth of a second to half a minute, so that what is
// mended is soon seen, and spread, so that not all comes at once. Each controller has one of its own.
func NewLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return limiter{workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, latest)}
}

// When says how long to wait before the next attempt.
func (l limiter) When(r reconcile.Request) time.Duration {
	d := l.TypedRateLimiter.When(r)
	return d/2 + rand.N(d/2)
}
