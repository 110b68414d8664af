package network

import (
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// retryLeast is the wait after one error, and retryMax bounds those after more: one peering's must
	// not keep back others.
	retryLeast = 50 * time.Millisecond
	retryMax   = 10 * time.Second
)

// retries are the pauses of a controller after what fails, longer each time in a row. Its reconciler rests
// between looks, and says so: controllers take for a success, after which nothing is left of how often
// something failed, whatever ends without an error. Who is told of a change looks whatever failed before,
// after a rest at most: it may help. The zero value has seen no failure.
type retries struct {
	mu     sync.Mutex
	failed map[ctrl.Request]int
	rests  map[ctrl.Request]bool
}

// rest is the result of what was not tried and will be in a while.
func (r *retries) rest(req ctrl.Request, wait time.Duration) ctrl.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rests == nil {
		r.rests = map[ctrl.Request]bool{}
	}
	r.rests[req] = true
	return ctrl.Result{RequeueAfter: wait}
}

// again is the result of what failed for a reason that is over in a moment, as a rule: it is tried soon.
func (r *retries) again(req ctrl.Request, soon time.Duration) ctrl.Result {
	return r.rest(req, max(soon, r.When(req)))
}

// retried tries soon what a cache was behind of, and with growing pauses what is wrong.
func (r *retries) retried(req ctrl.Request, err error, format string, args ...any) (ctrl.Result, error) {
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		return r.again(req, time.Second), nil
	}
	return ctrl.Result{}, fmt.Errorf(format+": %w", append(args, err)...)
}

// When counts a failure, and is how long to wait after it.
func (r *retries) When(req ctrl.Request) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failed == nil {
		r.failed = map[ctrl.Request]int{}
	}
	times := r.failed[req]
	r.failed[req]++
	return min(retryLeast<<min(times, 10), retryMax)
}

// Forget is called after all that ends without an error.
func (r *retries) Forget(req ctrl.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.rests[req] {
		delete(r.failed, req)
	}
	delete(r.rests, req)
}

// NumRequeues is how often something failed in a row.
func (r *retries) NumRequeues(req ctrl.Request) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed[req]
}
