package consumer

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// entry is what this process remembers of a home pod. It only saves calls: without it
// the provider is asked once more.
type entry struct {
	uid     types.UID
	peering string
	// created is when its ShadowPod was written; zero if that is not known.
	created time.Time
	// bare: it was asked for without tokens, and since then not made with them.
	bare bool
	// seen: its ShadowPod has been in the mirror, so that its absence there means its end.
	seen bool
	// ended: a terminal phase was written, which the cache may not show yet.
	ended bool
	// told is when the provider was first seen to have been told to end it, by this clock.
	told time.Time
	// buried is when its removal was asked for last, which the cache may not show yet.
	buried time.Time
	// addresses are those that the home pod has, and addressed is a version in which it had them.
	addresses string
	addressed int64
	// written is the version that the last write of the home pod's status made, and wrote when that
	// was, which the cache may not show yet.
	written int64
	wrote   time.Time
	// rejected is the change that was last told to be refused.
	rejected string
	// warned is what events said last of what the provider warns of, by its reasons.
	warned map[string]warned
	// refused is when an event said last that the pod is refused, by reasons.
	refused map[string]time.Time
	// tried is when the pod began to run, if its owner's pods have been sent home; zero if that
	// is none of its business, or forgotten.
	tried time.Time
}

// outrun is for how long nothing is to be decided about a pod at most, 0 if anything may be now: as
// long as the cache does not show yet what was last written into its status, which brings it back.
// What is decided then would be written twice. It is not believed for long: versions of an API server
// that was restored begin anew.
func (e entry) outrun(pod *corev1.Pod, now time.Time) time.Duration {
	since := now.Sub(e.wrote)
	if versionOf(pod) >= e.written || since < 0 || since >= buryAgain {
		return 0
	}
	return buryAgain - since
}

// ledger remembers home pods on virtual nodes, as many as there are.
type ledger struct {
	pods *prometheus.GaugeVec // by peering; nil in tests

	mu      sync.Mutex
	entries map[types.NamespacedName]entry
	count   map[string]int
}

func newLedger(pods *prometheus.GaugeVec) *ledger {
	return &ledger{pods: pods, entries: map[types.NamespacedName]entry{}, count: map[string]int{}}
}

// of returns what is remembered of a pod of this UID.
func (l *ledger) of(key types.NamespacedName, uid types.UID) entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[key]; e.uid == uid {
		return e
	}
	return entry{}
}

// saw remembers that a pod's ShadowPod is in the mirror.
func (l *ledger) saw(key types.NamespacedName, uid types.UID, peering string) {
	l.put(key, entry{uid: uid, peering: peering, seen: true})
}

// ended remembers that a pod's last phase was written.
func (l *ledger) ended(key types.NamespacedName, uid types.UID, peering string) {
	l.put(key, entry{uid: uid, peering: peering, ended: true})
}

// created remembers that a pod's ShadowPod was written.
func (l *ledger) created(key types.NamespacedName, uid types.UID, peering string, now time.Time) {
	l.put(key, entry{uid: uid, peering: peering, created: now})
}

// asksBare remembers that a ShadowPod without tokens is asked for, whatever is answered: it may be there, and
// then it is for home to know.
func (l *ledger) asksBare(key types.NamespacedName, uid types.UID, peering string) {
	l.put(key, entry{uid: uid, peering: peering})
	l.change(key, uid, func(e *entry) { e.bare = true })
}

// buries remembers that the removal of a pod was asked for.
func (l *ledger) buries(key types.NamespacedName, uid types.UID, peering string, now time.Time) {
	l.put(key, entry{uid: uid, peering: peering, buried: now})
}

// rejects remembers that a change of a pod is refused. It says whether that is news,
// which it is not if this process has just begun and the pod's status says so already.
func (l *ledger) rejects(key types.NamespacedName, uid types.UID, change string, said bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[key]
	if !ok || e.uid != uid || e.rejected == change {
		return false
	}
	news := e.rejected != "" || !said
	e.rejected = change
	l.entries[key] = e
	return news
}

// addresses remembers the version in which a home pod got addresses, the first one.
func (l *ledger) addresses(key types.NamespacedName, uid types.UID, all string, version int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[key]; ok && e.uid == uid && e.addresses != all {
		e.addresses, e.addressed = all, version
		l.entries[key] = e
	}
}

// writes remembers the version that a write of a home pod's status made.
func (l *ledger) writes(key types.NamespacedName, uid types.UID, version int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[key]; ok && e.uid == uid {
		e.written, e.wrote = version, now
		l.entries[key] = e
	}
}

// warns remembers that an event said what a provider warns of.
func (l *ledger) warns(key types.NamespacedName, uid types.UID, w warning, now time.Time) {
	l.change(key, uid, func(e *entry) { e.warned = withOne(e.warned, w.reason, warned{warning: w, at: now}) })
}

// lately says whether an event has said of a pod that it is refused for a reason, as long as
// events are kept, or of so many reasons that another one is no news.
func (e entry) lately(reason string, now time.Time) bool {
	at, is := e.refused[reason]
	if is {
		return now.Sub(at) < warnWithin
	}
	return len(e.refused) >= maxReasons
}

// refuses remembers that an event says that a pod is refused for a reason.
func (l *ledger) refuses(key types.NamespacedName, uid types.UID, reason string, now time.Time) {
	l.change(key, uid, func(e *entry) { e.refused = withOne(e.refused, reason, now) })
}

// tries remembers when a pod began to run whose owner's pods have been sent home; zero is no
// more.
func (l *ledger) tries(key types.NamespacedName, uid types.UID, at time.Time) {
	l.change(key, uid, func(e *entry) { e.tried = at })
}

// change changes what is remembered of a pod, if it is that one.
func (l *ledger) change(key types.NamespacedName, uid types.UID, change func(*entry)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[key]; ok && e.uid == uid {
		change(&e)
		l.entries[key] = e
	}
}

// withOne is a map with one entry more, which leaves the other to its readers.
func withOne[V any](of map[string]V, key string, value V) map[string]V {
	more := maps.Clone(of)
	if more == nil {
		more = map[string]V{}
	}
	more[key] = value
	return more
}

func (l *ledger) put(key types.NamespacedName, e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old, had := l.entries[key]
	if old.uid == e.uid {
		e.seen, e.ended = e.seen || old.seen, e.ended || old.ended
		if e.created.IsZero() {
			e.created = old.created
		}
		e.bare = old.bare
		if e.rejected == "" {
			e.rejected = old.rejected
		}
		if e.buried.Before(old.buried) {
			e.buried = old.buried
		}
		e.warned, e.refused = old.warned, old.refused
		e.tried, e.told = old.tried, old.told
		e.addresses, e.addressed = old.addresses, old.addressed
		e.written, e.wrote = old.written, old.wrote
	}
	if had {
		l.add(old.peering, -1)
	}
	l.add(e.peering, 1)
	l.entries[key] = e
}

// drop forgets a pod that is gone.
func (l *ledger) drop(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.entries[key]; ok {
		l.add(e.peering, -1)
		delete(l.entries, key)
	}
}

// add counts the pods of a peering. The caller holds the lock.
func (l *ledger) add(peering string, n int) {
	l.count[peering] += n
	left := l.count[peering]
	if left == 0 {
		delete(l.count, peering)
	}
	if l.pods == nil {
		return
	}
	if left == 0 {
		l.pods.DeleteLabelValues(peering)
		return
	}
	l.pods.WithLabelValues(peering).Set(float64(left))
}
