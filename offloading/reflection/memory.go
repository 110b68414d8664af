package reflection

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// notes remembers something of each request. All of it may be lost: it spaces out and
// saves requests, and the sweeper finds what was forgotten.
type notes[V any] struct {
	mu sync.Mutex
	of map[types.NamespacedName]V
}

func newNotes[V any]() *notes[V] { return &notes[V]{of: map[types.NamespacedName]V{}} }

func (n *notes[V]) get(key types.NamespacedName) V {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[key]
}

func (n *notes[V]) set(key types.NamespacedName, v V) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[key] = v
}

// put remembers what do makes of what is remembered now. It must not come back here.
func (n *notes[V]) put(key types.NamespacedName, do func(V) V) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[key] = do(n.of[key])
}

func (n *notes[V]) forget(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of, key)
}

// find lists the requests that are picked by what is remembered of them.
func (n *notes[V]) find(pick func(V) bool) []types.NamespacedName {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []types.NamespacedName
	for key, v := range n.of {
		if pick(v) {
			all = append(all, key)
		}
	}
	return all
}

// each calls with all that is remembered. It must not come back here.
func (n *notes[V]) each(call func(types.NamespacedName, V)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, v := range n.of {
		call(key, v)
	}
}

// change puts what do says in the place of what is remembered. It must not come back here.
func (n *notes[V]) change(do func(types.NamespacedName, V) V) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, v := range n.of {
		n.of[key] = do(key, v)
	}
}

// forgetAll forgets all requests that are picked.
func (n *notes[V]) forgetAll(pick func(types.NamespacedName) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.of, func(key types.NamespacedName, _ V) bool { return pick(key) })
}

// A consumer decides when its ShadowObjects change, but not how often this cluster works
// because of that.
const (
	tenantRate  = 20.0 // changes a second
	tenantBurst = 200
	// tenantLag is the most that a change waits.
	tenantLag = time.Minute
	// maxPaces is how many tenants' paces are remembered.
	maxPaces = 1000
)

// pacer spaces out the changes that each tenant causes.
type pacer struct {
	clock   clock.PassiveClock
	mu      sync.Mutex
	tenants map[string]*rate.Limiter
}

func newPacer(c clock.PassiveClock) *pacer {
	return &pacer{clock: c, tenants: map[string]*rate.Limiter{}}
}

// delay is how long the next change of a tenant has to wait, or so many of them.
func (p *pacer) delay(tenant string, changes int) time.Duration {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.tenants[tenant]
	if l == nil {
		if len(p.tenants) >= maxPaces {
			clear(p.tenants)
		}
		l = rate.NewLimiter(tenantRate, tenantBurst)
		p.tenants[tenant] = l
	}
	reserved := l.ReserveN(now, changes)
	wait := reserved.DelayFrom(now)
	if wait > tenantLag { // so many wait already that this one is hardly new
		reserved.CancelAt(now)
		return tenantLag
	}
	return wait
}
