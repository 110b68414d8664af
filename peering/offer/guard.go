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
	busy map[string]bool
}

func newGuard(name string, inner ResourceReader, c clock.Clock, failure func(string)) *guard {
	return &guard{name: name, inner: inner, clock: c, failure: failure, last: map[string]Resources{}, busy: map[string]bool{}}
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
	answer.Problem = problem(err)
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
// piled upon.
func (g *guard) ask(ctx context.Context, c Consumer) (Resources, error) {
	g.mu.Lock()
	if g.busy[c.ClusterID] {
		g.mu.Unlock()
		return Resources{}, errSlow
	}
	g.busy[c.ClusterID] = true
	g.mu.Unlock()

	type reply struct {
		resources Resources
		err       error
	}
	done := make(chan reply, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	timer := g.clock.NewTimer(readLimit)
	defer timer.Stop()
	go func() {
		r := reply{err: errPanicked}
		defer func() {
			if p := recover(); p != nil {
				r = reply{err: errPanicked}
			}
			g.finish(c, r.resources, r.err)
			done <- r
		}()
		r.resources, r.err = g.inner.Read(ctx, c)
		if r.err == nil {
			r.err = sane(r.resources)
		}
	}()
	select {
	case r := <-done:
		return r.resources, r.err
	case <-timer.C():
		return Resources{}, errSlow
	case <-ctx.Done():
		return Resources{}, errSlow
	}
}

func (g *guard) finish(c Consumer, answer Resources, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.busy, c.ClusterID)
	if _, known := g.last[c.ClusterID]; err == nil && (known || len(g.last) < maxRemembered) {
		g.last[c.ClusterID] = answer
	}
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
