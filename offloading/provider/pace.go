package provider

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
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
