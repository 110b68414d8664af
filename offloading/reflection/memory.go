package reflection

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// notes remembers something of each request, by namespace and name. All of it may be lost:
// it spaces out and saves requests, and the sweeper finds what was forgotten. Whoever is
// called by a method must not come back here.
type notes[V any] struct {
	mu sync.Mutex
	of map[string]map[string]V
}

func newNotes[V any]() *notes[V] { return &notes[V]{of: map[string]map[string]V{}} }

func (n *notes[V]) get(key types.NamespacedName) V {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.of[key.Namespace][key.Name]
}

func (n *notes[V]) set(key types.NamespacedName, v V) {
	n.put(key, func(V) V { return v })
}

// put remembers what do makes of what is remembered now.
func (n *notes[V]) put(key types.NamespacedName, do func(V) V) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.of[key.Namespace] == nil {
		n.of[key.Namespace] = map[string]V{}
	}
	n.of[key.Namespace][key.Name] = do(n.of[key.Namespace][key.Name])
}

func (n *notes[V]) forget(key types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if delete(n.of[key.Namespace], key.Name); len(n.of[key.Namespace]) == 0 {
		delete(n.of, key.Namespace)
	}
}

// find lists the requests that are picked by what is remembered of them.
func (n *notes[V]) find(pick func(V) bool) []types.NamespacedName {
	var all []types.NamespacedName
	n.each(func(key types.NamespacedName, v V) {
		if pick(v) {
			all = append(all, key)
		}
	})
	return all
}

// each calls with all that is remembered.
func (n *notes[V]) each(call func(types.NamespacedName, V)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for namespace, of := range n.of {
		for name, v := range of {
			call(types.NamespacedName{Namespace: namespace, Name: name}, v)
		}
	}
}

// count is of how many requests something is remembered.
func (n *notes[V]) count() (all int) {
	n.each(func(types.NamespacedName, V) { all++ })
	return all
}

// change puts what do says in the place of what is remembered of a namespace.
func (n *notes[V]) change(namespace string, do func(name string, v V) V) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, v := range n.of[namespace] {
		n.of[namespace][name] = do(name, v)
	}
}

// forgetAll forgets all requests of namespaces that are picked.
func (n *notes[V]) forgetAll(pick func(namespace string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.of, func(namespace string, _ map[string]V) bool { return pick(namespace) })
}

// A consumer decides when its ShadowObjects change, but not how often this cluster works
// because of that.
const (
	tenantRate  = 20.0 // changes a second
	tenantBurst = 200
	// tenantLag is the most that a change waits.
	tenantLag = time.Minute
	// maxPaces is how many paces are remembered, two of a tenant.
	maxPaces = 2000
)

// pacer spaces out the changes that each tenant causes and, apart from them, what this cluster looks at again of each:
// all that a tenant has, when its namespaces or terms change, does not hold up what is new.
type pacer struct {
	clock clock.PassiveClock
	mu    sync.Mutex
	paces map[string]*rate.Limiter
}

// paceOf names a pace of a tenant.
func paceOf(tenant string, again bool) string {
	if again {
		return tenant + "/again" // no tenant's name
	}
	return tenant
}

func newPacer(c clock.PassiveClock) *pacer {
	return &pacer{clock: c, paces: map[string]*rate.Limiter{}}
}

// delay is how long the next change has to wait at a pace, or so many of them.
func (p *pacer) delay(pace string, changes int) time.Duration {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.paces[pace]
	if l == nil {
		if len(p.paces) >= maxPaces {
			clear(p.paces)
		}
		l = rate.NewLimiter(tenantRate, tenantBurst)
		p.paces[pace] = l
	}
	reserved := l.ReserveN(now, changes)
	wait := reserved.DelayFrom(now)
	if wait > tenantLag { // so many wait already that this one is hardly new
		reserved.CancelAt(now)
		return tenantLag
	}
	return wait
}
