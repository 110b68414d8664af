package provider

import (
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// heldFor is how long a place is held for a pod at most: much longer than the cache
// takes to show it.
const heldFor = 10 * time.Second

// errBusy says that other pods of the tenant are being made, and that there may be room
// once they are counted.
var errBusy = errors.New("other pods of the tenant are being made")

// ledger holds places within tenants' limits for pods that are being made, until they
// are counted: of two pods that are made at once only one gets the last place. A place
// is held for 10 s at most, and there is at most one per ShadowPod.
type ledger struct {
	limits Limits
	clock  clock.PassiveClock
	mu     sync.Mutex
	held   map[string]map[types.NamespacedName]hold // by tenant
}

// hold is a place for one pod.
type hold struct {
	pod     *corev1.Pod
	until   time.Time
	created bool // pod is as the API server stored it
}

func newLedger(l Limits, c clock.PassiveClock) *ledger {
	return &ledger{limits: l, clock: c, held: map[string]map[types.NamespacedName]hold{}}
}

// reserve holds a place for pod, which takes the place of old if that is not nil. The
// error is errBusy, ErrNotCounted or, when nobody else is in the way, the refusal.
func (l *ledger) reserve(t *v1alpha1.Tenant, key types.NamespacedName, old, pod *corev1.Pod) error {
	if l.limits == nil || t.Spec.Limits == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(t, key, old, pod); err != nil {
		return err
	}
	if l.held[t.Name] == nil {
		l.held[t.Name] = map[types.NamespacedName]hold{}
	}
	l.held[t.Name][key] = hold{pod: pod, until: l.clock.Now().Add(heldFor)}
	return nil
}

// full is the refusal of a pod for which there is no room, as reserve would have it, without holding a place.
func (l *ledger) full(t *v1alpha1.Tenant, key types.NamespacedName, pod *corev1.Pod) error {
	if l.limits == nil || t.Spec.Limits == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.check(t, key, nil, pod); !errors.Is(err, errBusy) && !errors.Is(err, ErrNotCounted) {
		return err
	}
	return nil
}

// check looks at the limits, with what is pending.
func (l *ledger) check(t *v1alpha1.Tenant, key types.NamespacedName, old, pod *corev1.Pod) error {
	// What is counted from here on is counted twice for a moment, which refuses nobody:
	// as long as anything is pending the answer is to come again.
	pending := l.pending(t.Name, key)
	err := l.limits.Check(t, pending, old, pod)
	if err != nil && len(pending) > 0 && !errors.Is(err, ErrNotCounted) {
		return errBusy
	}
	return err
}

// pending are the pods of a tenant that may not be counted yet, without that of key.
func (l *ledger) pending(tenant string, key types.NamespacedName) []*corev1.Pod {
	now := l.clock.Now()
	var pods []*corev1.Pod
	for k, h := range l.held[tenant] {
		switch {
		case !now.Before(h.until), h.created && l.limits.Counts(h.pod):
			delete(l.held[tenant], k)
		case k != key:
			pods = append(pods, h.pod)
		}
	}
	if len(l.held[tenant]) == 0 {
		delete(l.held, tenant)
	}
	return pods
}

// confirm replaces what a place is held for by the pod as the API server stored it,
// which may ask for more. It says whether it is still within the limits.
func (l *ledger) confirm(t *v1alpha1.Tenant, key types.NamespacedName, made, stored *corev1.Pod) error {
	if l.limits == nil || t.Spec.Limits == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if h, there := l.held[t.Name][key]; there {
		h.pod, h.created = stored, true
		l.held[t.Name][key] = h
	}
	if sameResources(made, stored) || l.limits.Counts(stored) {
		return nil
	}
	if err := l.limits.Check(t, l.pending(t.Name, key), nil, stored); err != nil && !errors.Is(err, ErrNotCounted) && !l.limits.Counts(stored) {
		return err
	}
	return nil
}

// cancel gives a place back.
func (l *ledger) cancel(tenant string, key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if delete(l.held[tenant], key); len(l.held[tenant]) == 0 {
		delete(l.held, tenant)
	}
}

// sameResources says that nothing on the way made a pod ask for more or less than it
// was made with, but for requests that follow from limits.
func sameResources(a, b *corev1.Pod) bool {
	if len(a.Spec.Containers) != len(b.Spec.Containers) || len(a.Spec.InitContainers) != len(b.Spec.InitContainers) || len(b.Spec.Overhead) > 0 {
		return false
	}
	for _, lists := range [][2][]corev1.Container{{a.Spec.Containers, b.Spec.Containers}, {a.Spec.InitContainers, b.Spec.InitContainers}} {
		for i := range lists[0] {
			if !sameRequests(lists[0][i].Resources, lists[1][i].Resources) {
				return false
			}
		}
	}
	return true
}

func sameRequests(a, b corev1.ResourceRequirements) bool {
	for name, quantity := range b.Requests {
		have, there := a.Requests[name]
		if !there {
			have, there = a.Limits[name]
		}
		if !there || have.Cmp(quantity) != 0 {
			return false
		}
	}
	return true
}
