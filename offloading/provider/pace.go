package provider

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// A consumer decides when its ShadowPods change, but not how often this cluster works
// because of that.
const (
	tenantRate  = 300.0 // changes a second
	tenantBurst = 1000
	// tenantLag is the most that a change waits.
	tenantLag = 30 * time.Second
	// eventBurst is how many events a tenant may cause at once, and eventEvery how soon
	// there is room for another.
	eventBurst = 25
	eventEvery = 10 * time.Second
	// forgetAfter is when a silent tenant is forgotten: longer than its buckets take to
	// fill again, so that nobody gains by it.
	forgetAfter = 10 * time.Minute
)

// buckets are token buckets, one for each tenant that has been heard of lately.
type buckets struct {
	limit rate.Limit
	burst int
	clock clock.PassiveClock

	mu      sync.Mutex
	tenants map[string]*bucket
	swept   time.Time
}

type bucket struct {
	limiter *rate.Limiter
	used    time.Time
}

func newBuckets(c clock.PassiveClock, limit rate.Limit, burst int) *buckets {
	return &buckets{clock: c, limit: limit, burst: burst, tenants: map[string]*bucket{}}
}

// newBudget is how many events tenants may cause.
func newBudget(c clock.PassiveClock) *buckets {
	return newBuckets(c, rate.Every(eventEvery), eventBurst)
}

// of is the bucket of a tenant, and the time.
func (b *buckets) of(tenant string) (*rate.Limiter, time.Time) {
	now := b.clock.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	if age := now.Sub(b.swept); age >= forgetAfter || age < 0 {
		for name, one := range b.tenants {
			if idle := now.Sub(one.used); idle >= forgetAfter || idle < 0 {
				delete(b.tenants, name)
			}
		}
		b.swept = now
	}
	one := b.tenants[tenant]
	if one == nil {
		one = &bucket{limiter: rate.NewLimiter(b.limit, b.burst)}
		b.tenants[tenant] = one
	}
	one.used = now
	return one.limiter, now
}

// take says whether there is something left for a tenant, and takes it.
func (b *buckets) take(tenant string) bool {
	limiter, now := b.of(tenant)
	return limiter.AllowN(now, 1)
}

// forget drops a tenant that is gone.
func (b *buckets) forget(tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.tenants, tenant)
}

// pace spaces out the changes that each tenant causes, so that none keeps the queue
// from the others.
type pace struct{ *buckets }

func newPace(c clock.PassiveClock) pace { return pace{newBuckets(c, tenantRate, tenantBurst)} }

// delay is how long the next change of a tenant has to wait.
func (p pace) delay(tenant string) time.Duration {
	limiter, now := p.of(tenant)
	reserved := limiter.ReserveN(now, 1)
	wait := reserved.DelayFrom(now)
	if wait > tenantLag { // so many wait already that this one is hardly new
		reserved.CancelAt(now)
		return tenantLag
	}
	return wait
}

// turns bounds how many workers one tenant keeps busy. What finds none free stands in a
// line, and its head is called when one is: nobody asks again and again.
type turns struct {
	most int
	mu   sync.Mutex
	busy map[string]int
	line map[string][]ctrl.Request
	in   map[ctrl.Request]bool
	// call asks for another look.
	call func(ctrl.Request)
}

func newTurns(most int) *turns {
	return &turns{most: most, busy: map[string]int{}, line: map[string][]ctrl.Request{}, in: map[ctrl.Request]bool{}, call: func(ctrl.Request) {}}
}

// source gives the turns the queue of the controller.
func (t *turns) source() source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.call = q.Add
		return nil
	})
}

// take reports whether a worker may work for a tenant now; if so, give ends it. If not,
// the request is called later.
func (t *turns) take(tenant string, key ctrl.Request) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy[tenant] < t.most {
		t.busy[tenant]++
		return true
	}
	if !t.in[key] {
		t.in[key] = true
		t.line[tenant] = append(t.line[tenant], key)
	}
	return false
}

func (t *turns) give(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy[tenant]--; t.busy[tenant] <= 0 {
		delete(t.busy, tenant)
	}
	line := t.line[tenant]
	if len(line) == 0 {
		return
	}
	if t.line[tenant] = line[1:]; len(line) == 1 {
		delete(t.line, tenant)
	}
	delete(t.in, line[0])
	t.call(line[0])
}
