package peering

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// memory is what a restart may forget: how often something has failed, and when it
// was last done. It is kept per object.
type memory struct {
	mu    sync.Mutex
	about map[types.UID]*recollection
}

// recollection is what is remembered of one object.
type recollection struct {
	attempts  int       // failed in a row
	notBefore time.Time // of the next attempt
	subject   string    // of the attempts: another one need not wait
	began     time.Time // of the first attempt
	beat      time.Time // of the last heartbeat
	interval  time.Duration
	renewed   time.Time // when a credential was last replaced
	moved     time.Time // when another address was last tried
	stay      string    // why it was not taken
	told      bool      // the provider knows that it is over
	refused   time.Time // when a goodbye was first refused, in a row
	refusals  int       // since then
}

// seldom is how often, at most, a provider makes this cluster replace a credential or
// an address.
const seldom = time.Minute

// of calls f with what is remembered of an object.
func (m *memory) of(uid types.UID, f func(*recollection)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.about == nil {
		m.about = map[types.UID]*recollection{}
	}
	if m.about[uid] == nil {
		m.about[uid] = &recollection{}
	}
	f(m.about[uid])
}

func (m *memory) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.about, uid)
}

// failed notes a failure, and returns how long to wait: base doubled each time up to
// limit, minus up to a third; at least what the other side asked for.
func (m *memory) failed(uid types.UID, subject string, now time.Time, base, limit, asked time.Duration, jitter float64) time.Duration {
	var wait time.Duration
	m.of(uid, func(r *recollection) {
		if r.subject != subject {
			r.attempts, r.subject = 0, subject
		}
		wait = max(backoff(r.attempts, base, limit, jitter), min(asked, limit))
		r.attempts++
		r.notBefore = now.Add(wait)
	})
	return wait
}

// succeeded forgets failures.
func (m *memory) succeeded(uid types.UID) {
	m.of(uid, func(r *recollection) { r.attempts, r.notBefore, r.began = 0, time.Time{}, time.Time{} })
}

// tell notes that the provider knows that the peering is over.
func (m *memory) tell(uid types.UID) {
	m.of(uid, func(r *recollection) { r.told = true })
}

// refuse notes that a goodbye was refused, and says whether that means that there is nobody to
// tell: the provider knows already, or refusals have lasted.
func (m *memory) refuse(uid types.UID, now time.Time) (told, lasting bool) {
	m.of(uid, func(r *recollection) {
		if r.refusals == 0 {
			r.refused = now
		}
		r.refusals++
		told, lasting = r.told, r.refusals >= refusedTries && now.Sub(r.refused) >= refusedFor
	})
	return told, lasting
}

// unrefused notes that a goodbye was not refused, whatever else became of it.
func (m *memory) unrefused(uid types.UID) {
	m.of(uid, func(r *recollection) { r.refused, r.refusals = time.Time{}, 0 })
}

// parted forgets all of a goodbye: the object may go on without what has ended.
func (m *memory) parted(uid types.UID) {
	m.succeeded(uid)
	m.of(uid, func(r *recollection) { r.told, r.refused, r.refusals = false, time.Time{}, 0 })
}

// pause is how long until the next attempt at the same.
func (m *memory) pause(uid types.UID, subject string, now time.Time) time.Duration {
	var wait time.Duration
	m.of(uid, func(r *recollection) {
		if r.subject == subject {
			wait = max(0, r.notBefore.Sub(now))
		}
	})
	return wait
}

// begin notes the first attempt, and returns when it was.
func (m *memory) begin(uid types.UID, now time.Time) (began time.Time) {
	m.of(uid, func(r *recollection) {
		if r.began.IsZero() {
			r.began = now
		}
		began = r.began
	})
	return began
}

// backoff is the wait after so many failures.
func backoff(attempts int, base, limit time.Duration, jitter float64) time.Duration {
	d := min(base<<min(attempts, 20), limit)
	return d - time.Duration(jitter*float64(d)/3)
}
