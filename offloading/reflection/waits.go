package reflection

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// awaitedEvery is readEvery of an object that a pod waits for.
	awaitedEvery = 100 * time.Millisecond
	// maxWaits is how many pods, and objects, are remembered at least; longer than waitsKept are
	// those beyond it not.
	maxWaits, waitsKept = 10_000, time.Minute
)

// waits remembers since when pods wait for the objects that they refer to, by this process' clock, also when
// they have waited: one that is asked for again, as its provider did not take it, does not wait again. And
// when each object was last asked for. Both may be lost: then an object is read once more.
type waits struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	pods    map[types.UID]time.Time
	objects map[types.NamespacedName]time.Time
}

func newWaits(c clock.PassiveClock) *waits {
	return &waits{clock: c, pods: map[types.UID]time.Time{}, objects: map[types.NamespacedName]time.Time{}}
}

// waiting says that a pod has not begun yet.
func waiting(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodPending && pod.Status.PodIP == "" && pod.DeletionTimestamp == nil
}

// begin remembers that a pod has just come, which waits for these objects.
func (w *waits) begin(pod *corev1.Pod, all []reconcile.Request) {
	if w == nil || len(all) == 0 || !waiting(pod) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	since, known := w.pods[pod.UID]
	if !known {
		since = now
		w.put(pod.UID, since)
	}
	if len(w.objects) >= maxWaits {
		maps.DeleteFunc(w.objects, func(_ types.NamespacedName, at time.Time) bool { return now.Sub(at) > waitsKept })
	}
	for _, r := range all {
		if since.After(w.objects[r.NamespacedName]) {
			w.objects[r.NamespacedName] = since
		}
	}
}

// met takes note of pods that were seen beside an object which is read now, as the event of their coming may be
// behind: what is read now need not be read for them again.
func (w *waits) met(pods []*corev1.Pod, now time.Time) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pod := range pods {
		if _, known := w.pods[pod.UID]; !known && waiting(pod) {
			w.put(pod.UID, now)
		}
	}
}

// since is since when a pod waits. First says that it is from now on.
func (w *waits) since(pod *corev1.Pod) (since time.Time, first bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	since, known := w.pods[pod.UID]
	if !known {
		since = w.clock.Now()
		w.put(pod.UID, since)
	}
	return since, !known
}

// awaited says whether an object was asked for after it was read.
func (w *waits) awaited(key types.NamespacedName, read time.Time) bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	asked, is := w.objects[key]
	if is && asked.After(read) {
		return true
	}
	delete(w.objects, key)
	return false
}

// put remembers a pod. The caller holds the lock.
func (w *waits) put(uid types.UID, now time.Time) {
	if len(w.pods) >= maxWaits {
		maps.DeleteFunc(w.pods, func(_ types.UID, at time.Time) bool { return now.Sub(at) > waitsKept })
	}
	w.pods[uid] = now
}
