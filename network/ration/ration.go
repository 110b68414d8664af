// Package ration bounds how much work the changes of each peering cause: the other side says
// when they happen. It knows nothing of what the work is.
package ration

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

const (
	// Burst is how often work may be done at once because of one peering.
	Burst = 5
	// Every is how soon it may be done once more.
	Every = time.Second
)

// Rations are those of all peerings, by any name. The zero value is ready, and it is safe for
// concurrent use.
type Rations struct {
	mu sync.Mutex
	of map[string]*ration
}

type ration struct {
	limiter *rate.Limiter
	// asked: work was asked for, not before due, and has not begun.
	asked bool
	due   time.Time
}

// Ask has work done because of a change: at once, or when it is due, unless some that was asked for comes
// anyway, and will know of the change. What waits does so here and in no queue: one that holds each key once
// makes it one with what others ask for earlier, and nothing is left of it when it is due.
func (r *Rations) Ask(name string, now time.Time, work func()) {
	switch wait, ask := r.ask(name, now); {
	case !ask:
	case wait > 0:
		time.AfterFunc(wait, work)
	default:
		work()
	}
}

// ask says in how long work is to be done: at once if 0. It says false if some comes anyway.
func (r *Rations) ask(name string, now time.Time) (wait time.Duration, ask bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[name]
	if one == nil {
		if r.of == nil {
			r.of = map[string]*ration{}
		}
		one = &ration{limiter: rate.NewLimiter(rate.Every(Every), Burst)}
		r.of[name] = one
	}
	if one.asked {
		return 0, false
	}
	wait = one.limiter.ReserveN(now, 1).DelayFrom(now)
	one.asked, one.due = true, now.Add(wait)
	return wait, true
}

// Begin says that work begins that knows of all changes so far. What is not due yet stays asked
// for, so that nobody gains by the work of others.
func (r *Rations) Begin(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, one := range r.of {
		if left := one.due.Sub(now); left <= 0 || left > Every {
			one.asked = false
		}
		if !one.asked && one.limiter.TokensAt(now) >= Burst {
			delete(r.of, name) // as one that is new
		}
	}
}
