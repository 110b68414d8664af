package auth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// awaitLimit bounds each wait for another program: the Tenant's rights, the signature.
const awaitLimit = 10 * time.Second

var (
	errGone = errors.New("it was deleted meanwhile")
	errLate = errors.New("it took too long")
)

// await watches the object that has the name and namespace of obj until done says so,
// and returns it then. It ends with errGone if the object is deleted, with errLate
// after awaitLimit. A watch says nothing of what was deleted before it began: there, if
// not nil, is asked for that each time one has begun.
func await[T client.Object](ctx context.Context, c client.WithWatch, clk clock.Clock, obj T, list client.ObjectList, there func(context.Context) error, done func(T) (bool, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, awaitLimit, errLate)
	defer cancel()
	again := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 6, Cap: 2 * time.Second}
	for {
		found, ok, err := follow(ctx, c, obj, list, there, done)
		if ok || err != nil {
			return found, err
		}
		select {
		case <-ctx.Done():
			return found, context.Cause(ctx)
		case <-clk.After(again.Step()):
		}
	}
}

// follow is one watch of await: ok is false if the server ended it.
func follow[T client.Object](ctx context.Context, c client.WithWatch, obj T, list client.ObjectList, there func(context.Context) error, done func(T) (bool, error)) (found T, ok bool, err error) {
	// Without a version the watch begins with the object as it is now.
	w, err := c.Watch(ctx, list, client.InNamespace(obj.GetNamespace()), client.MatchingFields{"metadata.name": obj.GetName()})
	if err != nil {
		if ctx.Err() != nil {
			return found, false, context.Cause(ctx)
		}
		return found, false, fmt.Errorf("watching %s: %w", obj.GetName(), err)
	}
	defer w.Stop()
	if there != nil {
		if err := there(ctx); err != nil {
			return found, false, cmp.Or(context.Cause(ctx), err)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return found, false, context.Cause(ctx)
		case e, open := <-w.ResultChan():
			if !open || e.Type == watch.Error {
				return found, false, nil
			}
			seen, isT := e.Object.(T)
			if !isT {
				continue
			}
			if e.Type == watch.Deleted {
				return found, false, errGone
			}
			if ready, err := done(seen); ready || err != nil {
				return seen, ready, err
			}
		}
	}
}
