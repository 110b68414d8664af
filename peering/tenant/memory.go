package tenant

import (
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// memory is what the reconciler knows of tenants beside the objects, by name. All of
// it may be lost at any time: it only limits rates, and measures silence and failures.
type memory struct {
	mu      sync.Mutex
	tenants map[string]*recollection
}

type recollection struct {
	sighting
	uid          types.UID
	renewed      time.Time // the renewTime seen last, by the consumer's clock
	usageWritten time.Time
	quotaRemoved time.Time
	heard        time.Time // when a change of what it says of itself was last looked at
	complained   int64     // the generation of the Identity that was complained of last
	// failed is since when steps of the end of the tenant with the UID ending fail, by what they remove.
	ending types.UID
	failed map[string]time.Time
}

// sighting is when a consumer was seen, by our clock.
type sighting struct {
	first   time.Time // since when it is watched
	contact time.Time // its last sign of life; zero if there was none
}

func newMemory() *memory { return &memory{tenants: map[string]*recollection{}} }

// of returns the recollection of a tenant, a new one for a new tenant of a known name.
// The lock is held.
func (m *memory) of(name string) *recollection {
	if m.tenants[name] == nil {
		m.tenants[name] = &recollection{}
	}
	return m.tenants[name]
}

func (m *memory) forget(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.tenants, name)
}

// look notes what the Lease of a tenant says now. The consumer writes it by its own
// clock, which may be wrong, set back, or lie: what counts is that the time is another one,
// and when we saw that. Only the first sight must believe it, unless it lies in the future.
// What was seen by a clock of ours that was ahead counts from now.
func (m *memory) look(t *v1alpha1.Tenant, l *coordinationv1.Lease, now time.Time) sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.of(t.Name)
	if seen.uid != t.UID {
		*seen = recollection{uid: t.UID, usageWritten: seen.usageWritten, quotaRemoved: seen.quotaRemoved, sighting: sighting{first: now}}
		if t.Status.LastContact != nil {
			seen.contact = t.Status.LastContact.Time
		}
	}
	for _, at := range []*time.Time{&seen.contact, &seen.first} {
		if at.After(now) {
			*at = now
		}
	}
	if l == nil || l.Spec.RenewTime == nil || l.Spec.RenewTime.Time.Equal(seen.renewed) {
		return seen.sighting
	}
	renewed := l.Spec.RenewTime.Time
	switch {
	case !seen.renewed.IsZero(), t.Status.LastContact == nil && renewed.After(now):
		seen.contact = now
	case !renewed.After(now):
		seen.contact = latest(seen.contact, renewed)
	}
	seen.renewed = renewed
	return seen.sighting
}

func (m *memory) usageWritten(name string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(name).usageWritten
}

func (m *memory) setUsageWritten(name string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(name).usageWritten = at
}

func (m *memory) quotaRemoved(name string) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of(name).quotaRemoved
}

func (m *memory) setQuotaRemoved(name string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(name).quotaRemoved = at
}

// hear is zero and begins a pause, or it is what is left of one.
func (m *memory) hear(name string, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.of(name)
	if wait := seen.heard.Add(hearEvery).Sub(now); wait > 0 && wait <= hearEvery { // more is of a clock that was set back
		return wait
	}
	seen.heard = now
	return 0
}

// complain says whether a complaint about a generation of the tenant's Identity is new.
func (m *memory) complain(name string, generation int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.of(name)
	fresh := seen.complained != generation
	seen.complained = generation
	return fresh
}

// failing notes that a step of the end of a tenant has failed, and says since when it does.
func (m *memory) failing(t *v1alpha1.Tenant, step string, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := m.of(t.Name)
	if seen.ending != t.UID {
		seen.ending, seen.failed = t.UID, map[string]time.Time{}
	}
	if since, known := seen.failed[step]; !known || since.After(now) { // one in the future is of a clock that was set back
		seen.failed[step] = now
	}
	return seen.failed[step]
}

// succeeded notes that a step of the end of a tenant has not failed, though it may not be done.
func (m *memory) succeeded(t *v1alpha1.Tenant, step string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if seen := m.tenants[t.Name]; seen != nil && seen.ending == t.UID {
		delete(seen.failed, step)
	}
}
