package fleet

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A peer decides when its objects change, but not how often this cluster works
// because of that.
const (
	paceRate  = 20.0 // requests a second
	paceBurst = 100
	// paceLag is how far the requests may be behind before the peer is read slower.
	paceLag = time.Minute
)

// pacer spaces out the requests that one peer causes at one subscriber. It is never
// asked to drop one: those that wait already stand for what comes after them.
type pacer struct {
	mu      sync.Mutex
	limiter *rate.Limiter
	waiting map[reconcile.Request]time.Time
	last    time.Time // when the last one is due
	swept   time.Time
}

func newPacer() *pacer { return newPacerAt(Pace{}) }

// newPacerAt makes a pacer of another pace.
func newPacerAt(p Pace) *pacer {
	if p.Rate == 0 {
		p = Pace{Rate: paceRate, Burst: paceBurst}
	}
	return &pacer{limiter: rate.NewLimiter(rate.Limit(p.Rate), p.Burst), waiting: map[reconcile.Request]time.Time{}}
}

// delay is how long a request has to wait.
func (p *pacer) delay(r reconcile.Request, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if due := p.waiting[r]; due.After(now) {
		return due.Sub(now)
	}
	if now.Sub(p.swept) >= time.Second {
		maps.DeleteFunc(p.waiting, func(_ reconcile.Request, due time.Time) bool { return !due.After(now) })
		p.swept = now
	}
	wait := p.reserve(now)
	if wait > 0 {
		p.waiting[r] = p.last
	}
	return wait
}

// take counts something that makes no request, or one that waits already.
func (p *pacer) take(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserve(now)
}

// reserve is how long the next one has to wait. The caller holds the lock.
func (p *pacer) reserve(now time.Time) time.Duration {
	wait := p.limiter.ReserveN(now, 1).DelayFrom(now)
	if wait > 0 {
		p.last = now.Add(wait)
	}
	return wait
}

// lag is by how much the requests are further behind than they may be.
func (p *pacer) lag(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(0, max(0, p.last.Sub(now))-paceLag)
}
