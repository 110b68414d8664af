package consumer

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Gateways says whether the gateways between this cluster and a provider know pods, so that
// connections to these pass. It may be asked at any time, by many at once.
type Gateways interface {
	// Behind says whose gateways have not said yet that they know a pod on a virtual node, that has
	// its address since a resourceVersion here and since one at the provider. A version of 0 is not
	// asked for, and who says nothing of pods is not behind.
	Behind(peering, node string, here, there int64) (home, provider bool)
	// Heralded says whether home's gateways know a pod, that has no address here yet, from what
	// the provider's has told them, and else whether they may come to know it so: one that is on a
	// virtual node since a resourceVersion here, and has its address since one at the provider.
	Heralded(peering, node string, here, there int64) (known, may bool)
	// GatewaySource tells of the peerings of which Behind or Heralded may say something else.
	GatewaySource(mapper func(peering string) []reconcile.Request) source.Source
}

const (
	// unwritten is since when a pod has an address here that is not written yet.
	unwritten = math.MaxInt64
	// briefly is how long a pod waits for gateways before its status says whose: as a rule it has
	// them sooner than that could be written.
	briefly = 5 * time.Second
	// patiently is how long a pod has no address while its gateways may be told of that by the
	// provider's: then they learn of it from its status, which is one write more.
	patiently = 2 * time.Second
)

// wait is of a pod that is ready as soon as gateways know it.
type wait struct {
	peering, node string
	// addresses are those it has since a version here, and since one at the provider.
	addresses   string
	here, there int64
	since       time.Time
	// heralds: it has no address yet, and waits until gateways know of that from the provider's.
	heralds bool
}

// await makes a pod that turns ready wait for the gateways that do not know it yet. One that is
// ready stays so, whatever becomes of gateways. It returns what it waits for, nil if for nothing,
// and when to look again.
func await(f facts, next *corev1.PodStatus) (*wait, time.Duration) {
	if f.behind == nil || f.tunnel != tunnelAlive || len(next.PodIPs) == 0 || !isReady(next) || isReady(&f.pod.Status) {
		return nil, 0
	}
	w := &wait{
		peering: f.peering, node: f.at.Node, addresses: addressesOf(next), there: max(0, f.shadow.Status.AddressVersion), since: f.waits,
	}
	if f.heralded != nil && len(f.pod.Status.PodIPs) == 0 && f.memory.addresses == "" && !isWaiting(&f.pod.Status) {
		switch known, may := f.heralded(versionOf(f.pod), w.there); {
		case known:
			return nil, 0
		case may:
			if w.since.IsZero() {
				w.since = f.now
			}
			if left := w.since.Add(patiently).Sub(f.now); left > 0 && left <= patiently {
				w.addresses, w.here, w.heralds = "", versionOf(f.pod), true
				return w, left
			}
		}
	}
	w.here = addressedSince(f, w.addresses)
	home, provider := f.behind(w.here, w.there)
	if !home && !provider {
		return nil, 0
	}
	said := isWaiting(&f.pod.Status)
	if w.since.IsZero() && !said {
		w.since = f.now
	}
	message, again := "not all gateways on the way to the pod know its address yet", time.Duration(0)
	if left := w.since.Add(briefly).Sub(f.now); !w.since.IsZero() && left > 0 && left <= briefly {
		again = left
	} else {
		message = whose(f.peering, home, provider)
	}
	unready(next, v1alpha1.ReasonGatewaysBehind, message, f.now)
	for i := range next.Conditions {
		if c := &next.Conditions[i]; c.Reason == v1alpha1.ReasonGatewaysBehind {
			c.ObservedGeneration = next.ObservedGeneration
		}
	}
	return w, again
}

// whose says whose gateways do not know a pod.
func whose(peering string, home, provider bool) string {
	const still = "after some seconds still: see pelago status "
	switch {
	case home && provider:
		return "neither the gateway of this cluster nor that of " + peering + " knows the pod's address, " + still + peering
	case home:
		return "the gateway of this cluster does not know the pod's address, " + still + peering
	}
	return "the gateway of " + peering + " does not know the pod's address, " + still + peering
}

// isWaiting says whether a status is that of a pod that waits for gateways.
func isWaiting(s *corev1.PodStatus) bool {
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReady && c.Reason == v1alpha1.ReasonGatewaysBehind {
			return true
		}
	}
	return false
}

// addressedSince is a version in which a home pod has some addresses: the first one, as far as this
// process knows.
func addressedSince(f facts, addresses string) int64 {
	switch addresses {
	case f.memory.addresses: // the cache may be behind that
		return f.memory.addressed
	case addressesOf(&f.pod.Status):
		return versionOf(f.pod)
	}
	return unwritten
}

// versionOf is a pod's resourceVersion as a number, 0 if it is none.
func versionOf(pod *corev1.Pod) int64 {
	n, err := strconv.ParseInt(pod.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func addressesOf(s *corev1.PodStatus) string {
	var all []string
	for _, ip := range s.PodIPs {
		all = append(all, ip.IP)
	}
	return strings.Join(all, " ")
}

// waiters are the pods that wait for gateways.
type waiters struct {
	mu  sync.Mutex
	all map[types.NamespacedName]wait
}

func (w *waiters) put(key types.NamespacedName, one wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[types.NamespacedName]wait{}
	}
	w.all[key] = one
}

func (w *waiters) drop(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, key)
}

// since is since when a pod waits, zero if it does not.
func (w *waiters) since(key types.NamespacedName) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[key].since
}

// of are those of a peering's pods of which something is so.
func (w *waiters) of(peering string, is func(wait) bool) (all []reconcile.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, one := range w.all {
		if one.peering == peering && is(one) {
			all = append(all, reconcile.Request{NamespacedName: key})
		}
	}
	return all
}

// attend remembers what a pod waits for, after its status was written, so that it is woken. It
// returns when to look again: what was said in between has woken nobody.
func (r *reconciler) attend(f *facts, p plan) time.Duration {
	key := client.ObjectKeyFromObject(f.pod)
	if p.waits == nil || addressesOf(&f.pod.Status) != p.waits.addresses { // or it is gone
		r.waiters.drop(key)
		return 0
	}
	w := *p.waits
	if w.here == unwritten {
		w.here = versionOf(f.pod)
	}
	r.ledger.addresses(key, f.pod.UID, w.addresses, w.here)
	r.waiters.put(key, w)
	if !r.behind(w) {
		return time.Millisecond
	}
	return 0
}

func (r *reconciler) behind(w wait) bool {
	if w.heralds {
		_, may := r.tunnels.Heralded(w.peering, w.node, w.here, w.there)
		return may
	}
	home, provider := r.tunnels.Behind(w.peering, w.node, w.here, w.there)
	return home || provider
}

// known are the pods of a peering that need not wait any more.
func (r *reconciler) known(peering string) []reconcile.Request {
	return r.waiters.of(peering, func(w wait) bool { return !r.behind(w) })
}

// knownTo is how gateways know the pods of a virtual node, nil without a network.
func (r *reconciler) knownTo(peering, node string) func(here, there int64) (home, provider bool) {
	if r.tunnels == nil {
		return nil
	}
	return func(here, there int64) (bool, bool) { return r.tunnels.Behind(peering, node, here, there) }
}

// foretoldTo is what gateways know of the pods of a virtual node before these have addresses, nil without
// a network.
func (r *reconciler) foretoldTo(peering, node string) func(here, there int64) (known, may bool) {
	if r.tunnels == nil {
		return nil
	}
	return func(here, there int64) (bool, bool) { return r.tunnels.Heralded(peering, node, here, there) }
}
