package provider

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// note is what is remembered of one ShadowPod. All of it may be lost: it saves
// requests and spaces them out, and decides nothing by itself.
type note struct {
	// uid and generation are those of the ShadowPod whose hash is remembered.
	uid        types.UID
	generation int64
	hash       string

	// pod is the one made or seen last, seen whether the cache has had it: what the cache
	// has had and has no more is gone.
	pod  types.UID
	seen bool
	// whole is the pod of which the API server is known to have dropped nothing.
	whole types.UID
	// born is when pod was made here.
	born time.Time
	// quick counts the pods in a row that were lost soon after they were made, and next is
	// when another one may be made.
	quick int
	next  time.Time

	// tried is when the API server or the limits last refused a pod of triedOf.
	tried   time.Time
	triedOf int64
	// wrote is when the status was last written, dirty since when it waits to be.
	wrote, dirty time.Time
	// released is the ShadowPod that was let go last, and let when, which the cache may not show yet.
	released types.UID
	let      time.Time
	// changed is when the pod was last changed after its ShadowPod.
	changed time.Time

	// awaits says that no pod is made before it is known where home's API server is.
	awaits bool

	// state for metrics.
	state string
}

// memory holds the notes, one per ShadowPod there is.
type memory struct {
	mu    sync.Mutex
	notes map[types.NamespacedName]note
}

func newMemory() *memory { return &memory{notes: map[types.NamespacedName]note{}} }

func (m *memory) get(key types.NamespacedName) note {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.notes[key]
}

func (m *memory) set(key types.NamespacedName, n note) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.notes[key] = n
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.notes, key)
}

// awaiting lists the ShadowPods of a tenant that wait for home's API server.
func (m *memory) awaiting(tenant string) []reconcile.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []reconcile.Request
	for key, n := range m.notes {
		if n.awaits && tenantName(key.Namespace) == tenant {
			all = append(all, reconcile.Request{NamespacedName: key})
		}
	}
	return all
}

// states counts notes by tenant namespace and state.
func (m *memory) states() map[[2]string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[[2]string]int{}
	for key, n := range m.notes {
		if n.state != "" {
			counts[[2]string{key.Namespace, n.state}]++
		}
	}
	return counts
}

const (
	// quickly is how soon after it was made a loss counts as one of a row.
	quickly = time.Minute
	// longestBackoff is the most that is waited before a lost pod is made again.
	longestBackoff = 5 * time.Minute
)

// made remembers a new pod.
func (n *note) made(pod types.UID, now time.Time) {
	n.pod, n.seen, n.born, n.next = pod, false, now, time.Time{}
	n.tried, n.triedOf = time.Time{}, 0
}

// saw remembers a pod that the cache has.
func (n *note) saw(pod types.UID) {
	if n.pod != pod {
		n.pod, n.born = pod, time.Time{}
	}
	n.seen = true
}

// lose works out when a lost pod may be made again: at once the first time, then ever
// later as long as its successors are lost soon as well.
func (n *note) lose(now time.Time) {
	if !n.next.IsZero() {
		return
	}
	if n.born.IsZero() || now.Sub(n.born) >= quickly {
		n.quick = 0
	} else {
		n.quick = min(n.quick+1, 10)
	}
	n.next = now
	if n.quick > 0 {
		n.next = now.Add(min(time.Second<<(n.quick-1), longestBackoff))
	}
}

// hashOf returns the hash of a ShadowPod's spec, computed once per generation.
func (n *note) hashOf(s *v1alpha1.ShadowPod, hash func(v1alpha1.ShadowPodSpec) string) string {
	if n.uid != s.UID || n.generation != s.Generation || n.hash == "" {
		n.uid, n.generation, n.hash = s.UID, s.Generation, hash(s.Spec)
	}
	return n.hash
}
