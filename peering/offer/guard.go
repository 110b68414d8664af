package offer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// readLimit is how long a reader may take.
	readLimit = 2 * time.Second
	// maxRemembered bounds for how many consumers answers are kept.
	maxRemembered = 4096
)

var (
	errSlow     = errors.New("the reader does not answer in time")
	errPanicked = errors.New("the reader panicked")
	errNonsense = errors.New("the answer is nonsense")
)

// guard keeps harm away that a reader may do: it bounds its time, catches panics,
// checks its answers, and keeps the last good one.
type guard struct {
	name    string
	inner   ResourceReader
	clock   clock.Clock
	failure func(reader string)

	mu   sync.Mutex
	last map[string]Resources
	busy map[string]*reading
}

// reading is one call of the reader. Its answer may be read once it is done.
type reading struct {
	began     time.Time
	cancel    context.CancelFunc
	done      chan struct{}
	resources Resources
	err       error
}

func newGuard(name string, inner ResourceReader, c clock.Clock, failure func(string)) *guard {
	return &guard{name: name, inner: inner, clock: c, failure: failure, last: map[string]Resources{}, busy: map[string]*reading{}}
}

// Read answers like the reader behind it, or with its last good answer and a problem.
// The error wraps errUnknown: there is no good answer yet.
func (g *guard) Read(ctx context.Context, c Consumer) (Resources, error) {
	answer, err := g.ask(ctx, c)
	if err == nil {
		return answer, nil
	}
	g.failure(g.name)
	g.mu.Lock()
	answer, known := g.last[c.ClusterID]
	g.mu.Unlock()
	if !known {
		return Resources{}, fmt.Errorf("%w: reader %s: %w", errUnknown, g.name, err)
	}
	log.FromContext(ctx).V(1).Info("kept the last answer of a reader", "reader", g.name, "error", err.Error())
	answer.Problem, answer.Again = problem(err), retryUnknown
	return answer, nil
}

// problem is what a consumer may know of an error.
func problem(err error) string {
	cause := "it fails"
	for _, known := range []error{errSlow, errPanicked, errNonsense} {
		if errors.Is(err, known) {
			cause = known.Error()
		}
	}
	return "the figures are the last good ones of the provider's reader: " + cause
}

// ask calls the reader, at most once at a time for each consumer: what hangs is not
// piled upon. An answer that was begun before somebody asked may be of before the change
// that he asks for: he waits for its end, and has one of later, together with all who
// wait.
func (g *guard) ask(ctx context.Context, c Consumer) (Resources, error) {
	var before *reading
	for {
		g.mu.Lock()
		r := g.busy[c.ClusterID]
		if r == nil {
			r = g.begin(ctx, c)
		} else if before == nil {
			before = r
		}
		g.mu.Unlock()
		if !g.await(ctx, r) {
			return Resources{}, errSlow
		}
		if r != before {
			return r.resources, r.err
		}
	}
}

// begin has the reader called. The caller holds the lock.
func (g *guard) begin(ctx context.Context, c Consumer) *reading {
	r := &reading{began: g.clock.Now(), done: make(chan struct{}), err: errPanicked}
	ctx, r.cancel = context.WithCancel(ctx)
	g.busy[c.ClusterID] = r
	go func() {
		defer func() {
			if p := recover(); p != nil {
				r.err = errPanicked
			}
			g.finish(c, r)
		}()
		if r.resources, r.err = g.inner.Read(ctx, c); r.err == nil {
			r.err = sane(r.resources)
		}
	}()
	return r
}

// await says whether a reading is done in time. One that is overdue is not waited for.
func (g *guard) await(ctx context.Context, r *reading) bool {
	left := readLimit - g.clock.Since(r.began)
	if left <= 0 {
		return false
	}
	timer := g.clock.NewTimer(left)
	defer timer.Stop()
	select {
	case <-r.done:
		return true
	case <-timer.C():
		r.cancel()
	case <-ctx.Done():
	}
	return false
}

func (g *guard) finish(c Consumer, r *reading) {
	r.cancel()
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.busy, c.ClusterID)
	if _, known := g.last[c.ClusterID]; r.err == nil && (known || len(g.last) < maxRemembered) {
		g.last[c.ClusterID] = r.resources
	}
	close(r.done)
}

// Notify passes on to the reader.
func (g *guard) Notify(changed func(clusterID string)) { g.inner.Notify(changed) }

// Remove forgets the last answer.
func (g *guard) Remove(clusterID string) {
	g.mu.Lock()
	delete(g.last, clusterID)
	g.mu.Unlock()
	g.inner.Remove(clusterID)
}

// sane says what is wrong with an answer.
func sane(r Resources) error {
	check := func(what string, list v1alpha1.ResourceList) error {
		if len(list) > maxResources {
			return fmt.Errorf("%w: %s has %d resources, at most %d", errNonsense, what, len(list), maxResources)
		}
		for name, q := range list {
			if v := amount(name, q); v < 0 || v >= maxAmount {
				return fmt.Errorf("%w: %s of %s", errNonsense, what, name)
			}
		}
		return nil
	}
	if len(r.Shapes) > maxShapes || len(r.StorageClasses) > maxClasses || len(r.IngressClasses) > maxClasses || len(r.LoadBalancerClasses) > maxClasses {
		return fmt.Errorf("%w: too many shapes or classes", errNonsense)
	}
	if err := errors.Join(check("capacity", r.Capacity), check("free", r.Free)); err != nil {
		return err
	}
	for request, list := range r.Used {
		if err := check("used by "+request, list); err != nil {
			return err
		}
	}
	for _, shape := range r.Shapes {
		if shape.Nodes < 0 || len(shape.Largest) > maxLargest {
			return fmt.Errorf("%w: a shape of %d nodes with %d largest pods", errNonsense, shape.Nodes, len(shape.Largest))
		}
		for _, list := range shape.Largest {
			if err := check("largest pod", list); err != nil {
				return err
			}
		}
	}
	return nil
}
