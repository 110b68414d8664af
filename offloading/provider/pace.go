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
	// forgetAfter is when the pace of a silent tenant is forgotten.
	forgetAfter = 10 * time.Minute
)

// pace spaces out the changes that each tenant causes, so that none keeps the queue
// from the others.
type pace struct {
	clock   clock.PassiveClock
	mu      sync.Mutex
	tenants map[string]*step
	swept   time.Time
}

type step struct {
	limiter *rate.Limiter
	used    time.Time
}

func newPace(c clock.PassiveClock) *pace { return &pace{clock: c, tenants: map[string]*step{}} }

// delay is how long the next change of a tenant has to wait.
func (p *pace) delay(tenant string) time.Duration {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if age := now.Sub(p.swept); age >= forgetAfter || age < 0 {
		for name, s := range p.tenants {
			if now.Sub(s.used) >= forgetAfter {
				delete(p.tenants, name)
			}
		}
		p.swept = now
	}
	s := p.tenants[tenant]
	if s == nil {
		s = &step{limiter: rate.NewLimiter(tenantRate, tenantBurst)}
		p.tenants[tenant] = s
	}
	s.used = now
	reserved := s.limiter.ReserveN(now, 1)
	wait := reserved.DelayFrom(now)
	if wait > tenantLag { // so many wait already that this one is hardly new
		reserved.CancelAt(now)
		return tenantLag
	}
	return wait
}

// turns bounds how many workers one tenant keeps busy.
type turns struct {
	most int
	mu   sync.Mutex
	busy map[string]int
}

func newTurns(most int) *turns { return &turns{most: most, busy: map[string]int{}} }

// take reports whether a worker may work for a tenant now; if so, give ends it.
func (t *turns) take(tenant string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy[tenant] >= t.most {
		return false
	}
	t.busy[tenant]++
	return true
}

func (t *turns) give(tenant string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy[tenant]--; t.busy[tenant] <= 0 {
		delete(t.busy, tenant)
	}
}
