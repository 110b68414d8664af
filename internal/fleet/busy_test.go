package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// busyServer answers lists, and that it has too much to do as often as it is told to.
type busyServer struct {
	mu        sync.Mutex
	lookBacks int // to be answered so
	watches   int // to be answered so, after the first
	within    bool
	asked     int // watches so far
	open      chan struct{}
}

func (b *busyServer) serve(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	const status = `{"kind":"Status","code":429,"reason":"TooManyRequests","details":{"retryAfterSeconds":1}}`
	busy := func(left *int) bool {
		if *left == 0 {
			return false
		}
		*left--
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, status)
		return true
	}
	switch q := r.URL.Query(); {
	case !q.Has("watch"):
		if q.Has("labelSelector") && busy(&b.lookBacks) {
			return
		}
		fmt.Fprint(w, `{"metadata":{"resourceVersion":"100"},"items":[]}`)
	case b.asked == 0:
		b.asked++ // it is cut
		if b.within {
			fmt.Fprint(w, `{"type":"ERROR","object":`+status+`}`)
		}
	case !busy(&b.watches):
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		close(b.open)
		b.mu.Unlock()
		<-r.Context().Done()
		b.mu.Lock()
	}
}

// TestBusy holds that a peer that answers that it has too much to do counts as one that answers, for as
// long as that may take.
func TestBusy(t *testing.T) {
	for reason, b := range map[string]*busyServer{
		"one watch":            {watches: 1},
		"some in a row":        {watches: 5},
		"a look back":          {lookBacks: 1},
		"in the watch it gave": {within: true},
		"all of it":            {watches: 2, lookBacks: 2, within: true},
	} {
		t.Run(reason, func(t *testing.T) {
			b.open = make(chan struct{})
			s, m := hostile(t, b.serve)
			clock := clocktesting.NewFakeClock(time.Now())
			s.options.Clock = clock
			var mu sync.Mutex
			var states []string
			s.changed = func(*session, *unstructured.Unstructured) {
				mu.Lock()
				defer mu.Unlock()
				states = append(states, s.state().Reason)
			}
			run(t, s, m)
			await(t, "it watches again", func() bool {
				step(clock, 500*time.Millisecond)
				select {
				case <-b.open:
					return true
				default:
					return false
				}
			})
			mu.Lock()
			defer mu.Unlock()
			for _, state := range states {
				if state != v1alpha1.ReasonPeerReachable {
					t.Errorf("it was %v, want reachable all the time", states)
				}
			}
		})
	}
}

// TestBusyForEver holds that a peer of which nothing else comes is away in the end.
func TestBusyForEver(t *testing.T) {
	b := &busyServer{watches: 1 << 30, open: make(chan struct{})}
	s, m := hostile(t, b.serve)
	clock := clocktesting.NewFakeClock(time.Now())
	s.options.Clock = clock
	up := make(chan time.Time, 1)
	s.changed = func(*session, *unstructured.Unstructured) {
		if s.state().Reason == v1alpha1.ReasonPeerReachable {
			up <- clock.Now()
		}
	}
	run(t, s, m)
	began := <-up
	await(t, "it is away", func() bool {
		step(clock, 500*time.Millisecond)
		return s.state().Reason == v1alpha1.ReasonPeerUnreachable
	})
	if after := clock.Since(began); after < busyFor || after > busyFor+2*(busyMin+busyMax) {
		t.Errorf("away after %s, want a little more than %s", after, busyFor)
	}
}

func TestBusyWait(t *testing.T) {
	for _, c := range []struct {
		reason, text string
		jitter       float64
		want         time.Duration
	}{
		{"it says nothing", `Too many requests`, 0, busyMin},
		{"and not all at once", `Too many requests`, 0.5, busyMin * 3 / 2},
		{"it says how long", `{"kind":"Status","code":429,"details":{"retryAfterSeconds":3}}`, 0, 3 * time.Second},
		{"it says for ever", `{"kind":"Status","code":429,"details":{"retryAfterSeconds":2147483647}}`, 0, busyMax},
		{"it says what cannot be", `{"kind":"Status","code":429,"details":{"retryAfterSeconds":-7}}`, 0, busyMin},
	} {
		if got := busyWait(statusError([]byte(c.text), http.StatusTooManyRequests), c.jitter); got != c.want {
			t.Errorf("%s: %s, want %s", c.reason, got, c.want)
		}
	}
	if got := busyWait(errors.New("x"), 0); got != busyMin {
		t.Errorf("another error: %s", got)
	}
}

// run follows a mirror until the test ends.
func run(t *testing.T, s *session, m *mirror) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); s.follow(ctx, m) }()
	t.Cleanup(func() { cancel(); <-ended })
}

// step lets time pass if somebody waits for that.
func step(clock *clocktesting.FakeClock, d time.Duration) {
	if clock.HasWaiters() {
		clock.Step(d)
	}
}
