package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// againAfter is how soon a broken watch is made again.
const againAfter = 300 * time.Millisecond

// errTimeout says that a wait is over by its --timeout.
var errTimeout = errors.New("the time is over")

// bound gives a command --timeout; zero or less is no bound but Ctrl-C.
func bound(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, timeout, errTimeout)
}

// await watches one object until done says that it is as wanted, or returns an error.
// Done is called with nil while the object does not exist. It ends with the context,
// whose cause tells a timeout from an interruption.
func await[T client.Object](ctx context.Context, e *Env, c client.WithWatch, list client.ObjectList, key client.ObjectKey, done func(T) (bool, error)) error {
	for {
		over, err := watchOnce(ctx, c, list, key, done)
		if over || err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.Clock.After(againAfter):
		}
	}
}

// watchOnce reads the object, then follows it until the watch ends. It returns over
// when done was satisfied or failed; a broken connection is no error but a reason to
// come again.
func watchOnce[T client.Object](ctx context.Context, c client.WithWatch, list client.ObjectList, key client.ObjectKey, done func(T) (bool, error)) (over bool, err error) {
	one := &client.ListOptions{Namespace: key.Namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", key.Name)}
	if err := c.List(ctx, list, one); err != nil {
		return permanent(err), onlyPermanent(err)
	}
	var none T
	current := none
	items, err := meta.ExtractList(list)
	if err != nil {
		return true, fmt.Errorf("reading %s: %w", key.Name, err)
	}
	for _, item := range items {
		if object, ok := item.(T); ok {
			current = object
		}
	}
	if over, err := done(current); over || err != nil {
		return true, err
	}
	one.Raw = &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
	watching, err := c.Watch(ctx, list, one)
	if err != nil {
		return permanent(err), onlyPermanent(err)
	}
	defer watching.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, ctx.Err()
		case event, alive := <-watching.ResultChan():
			if !alive {
				return false, nil
			}
			object, ok := event.Object.(T)
			switch {
			case event.Type == watch.Error || !ok:
				return false, nil
			case event.Type == watch.Deleted:
				object = none
			}
			if over, err := done(object); over || err != nil {
				return true, err
			}
		}
	}
}

// permanent reports whether asking again would give the same error.
func permanent(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || meta.IsNoMatchError(err) || isMissingKind(err)
}

// onlyPermanent drops errors that may go away by themselves.
func onlyPermanent(err error) error {
	if permanent(err) {
		return err
	}
	return nil
}

// ended says how a wait ended without success: what was waited for, how things are,
// and what to do. Errors that are neither timeout nor interruption stay as they are.
func ended(err error, what string, timeout time.Duration, state, remedy string) error {
	if state != "" {
		state = ": " + state
	}
	switch {
	case errors.Is(err, errTimeout):
		return fmt.Errorf("%s is not done after %s%s; %s", what, timeout, state, remedy)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted while %s was not done%s; %s", what, state, remedy)
	}
	return err
}
