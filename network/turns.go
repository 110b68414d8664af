package network

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// turnWait is how soon somebody looks again whether it is his turn at a provider.
	turnWait = 500 * time.Millisecond
	// slowRest is how long a provider is left alone that has not answered in time.
	slowRest = 30 * time.Second
)

// turns gives each provider to one worker at a time, and to none for a while after it has not
// answered in time: one that hangs holds up nobody else's. The zero value has met nobody.
type turns struct {
	mu   sync.Mutex
	busy map[string]bool
	slow map[string]time.Time // until when
}

// take gives the turn at a provider, or says how long to wait before asking again.
func (t *turns) take(provider string, now time.Time) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := t.slow[provider].Sub(now)
	switch {
	case left > 0 && left <= slowRest:
		return left
	case t.busy[provider]:
		return turnWait
	}
	if t.busy == nil {
		t.busy, t.slow = map[string]bool{}, map[string]time.Time{}
	}
	delete(t.slow, provider)
	t.busy[provider] = true
	return 0
}

// within does something in a turn at a provider, which ends however that does.
func (t *turns) within(provider string, now func() time.Time, do func() error) error {
	err := errUnfinished
	defer func() { t.give(provider, now(), err) }()
	err = do()
	return err
}

// errUnfinished is what came of a turn that ended in a panic.
var errUnfinished = errors.New("it did not end by itself")

// give ends a turn, by what came of it.
func (t *turns) give(provider string, now time.Time, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.busy, provider)
	if errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) {
		t.slow[provider] = now.Add(slowRest)
	}
}
