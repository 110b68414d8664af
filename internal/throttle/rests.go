package throttle

import (
	"math/rand/v2"
	"sync"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
)

const (
	// least is the pause after one failure.
	least = 50 * time.Millisecond
	// RestsMost bounds the pauses after more: what fails for one peering must not keep back others, and what is mended
	// is soon seen.
	RestsMost = 10 * time.Second
)

// Rests are the pauses of a controller that rests between looks: after what fails longer each time in a row, each
// object for itself. Its reconciler has to say by Rest that it rests: controllers take for a success, after which
// nothing is left of how often something failed, whatever ends without an error. Who is told of a change
// looks whatever failed before, after a rest at most: it may help.
//
// It is for controller.Options, and safe for concurrent use. The zero value has seen no failure.
type Rests struct {
	mu     sync.Mutex
	failed map[ctrl.Request]int
	rests  map[ctrl.Request]bool
}

// Rest is the result of what was not tried and will be in a while.
func (l *Rests) Rest(req ctrl.Request, wait time.Duration) ctrl.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rests == nil {
		l.rests = map[ctrl.Request]bool{}
	}
	l.rests[req] = true
	return ctrl.Result{RequeueAfter: wait}
}

// Again is the result of what failed for a reason that is over in a moment, as a rule: it is tried soon,
// and later each time.
func (l *Rests) Again(req ctrl.Request, soon time.Duration) ctrl.Result {
	return l.Rest(req, max(soon, l.When(req)))
}

// When counts a failure, and is how long to wait after it.
func (l *Rests) When(req ctrl.Request) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = map[ctrl.Request]int{}
	}
	times := l.failed[req]
	l.failed[req]++
	d := min(least<<min(times, 20), RestsMost)
	return d - rand.N(d/5) // so that not all come at once
}

// Forget is called after all that ends without an error.
func (l *Rests) Forget(req ctrl.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.rests[req] {
		delete(l.failed, req)
	}
	delete(l.rests, req)
}

// NumRequeues is how often something failed in a row.
func (l *Rests) NumRequeues(req ctrl.Request) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed[req]
}
