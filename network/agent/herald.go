package agent

import (
	"maps"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/health"
	"github.com/pelago-dev/pelago/network/ipam"
	"github.com/pelago-dev/pelago/network/plan"
)

const (
	// maxHeralds is how many pods of one provider are remembered that have no address here yet, and
	// heraldFor how long one that is not known here.
	maxHeralds = 2048
	heraldFor  = 30 * time.Second
	// lostFor is how long after something was found not to have been told pods come to wait here that may
	// be in it: so much later than its manager this cluster's gateway hears of them.
	lostFor = 5 * time.Second
	// maxRecent is how many pods of a tenant are told of.
	maxRecent = 96
)

// heralds is what gateways of providers tell of pods that run there for this cluster, so that the
// gateway here knows these before they have their addresses here. It is believed as what the provider
// says in ShadowPods is: of pods that are on its own virtual nodes, and of addresses in its own ranges.
// The zero value knows nothing.
type heralds struct {
	mu sync.Mutex
	of map[string]*herald // by the keys of peerings
}

// herald is that of one peering.
type herald struct {
	// ruled: NetworkPolicies are about pods there, which are known by their addresses here alone. So
	// what is told is of no use.
	ruled bool
	// said: it tells of pods. All with an address are known of those whose version at the provider
	// is greater than after, up to what the stream of this peering says: if that was told in its turn.
	said        bool
	after, upTo int64
	// sure is up to where it was. Where that is less than upTo something in between was lost, or left out
	// by the provider, and nothing is known: a pod in it has a new version whenever it changes, and is not
	// told for that. So it is until all of it is told again, or no pod waits that may be in it.
	sure int64
	// lost is when something was last found not to have been told.
	lost time.Time
	pods map[types.UID]heralded
	// awaited are the pods here without an address, as of the last plan.
	awaited map[types.UID]waiter
}

// waiter is whether a pod was ever told, and since when it waits.
type waiter struct {
	told  bool
	since time.Time
}

// heralded is where a pod is, by what was told at a time, up to a version.
type heralded struct {
	addresses []netip.Addr
	at        time.Time
	upTo      int64
}

// one is that of a peering. The caller holds the lock.
func (h *heralds) one(key string) *herald {
	if h.of == nil {
		h.of = map[string]*herald{}
	}
	if h.of[key] == nil {
		h.of[key] = &herald{pods: map[types.UID]heralded{}}
	}
	return h.of[key]
}

// take takes what was told, and reports up to where all is known now, whether a pod waits for it, and
// whether it says of one that waits something else than before. It says false if it is of no use.
func (h *heralds) take(key string, r health.Recent, now time.Time) (upTo int64, means, anew, ok bool) {
	if r.UpTo > math.MaxInt64 || r.After > r.UpTo {
		return 0, false, false, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	one, from, to := h.one(key), int64(r.After), int64(r.UpTo)
	if one.ruled {
		return 0, false, false, false
	}
	one.said = true
	if from > one.upTo { // what is in between was not told
		one.lost = now
	}
	if from <= one.sure { // it goes on, or is told again
		one.sure = max(one.sure, to)
	}
	one.upTo = max(one.upTo, to)
	told := map[types.UID][]netip.Addr{}
	for _, p := range r.Pods {
		uid := types.UID(uuid.UUID(p.UID).String())
		if len(told[uid]) < 2 { // IPv4 and IPv6
			told[uid] = append(told[uid], p.Address)
		}
	}
	for uid, addresses := range told {
		before, known := one.pods[uid]
		if known && (to < before.upTo || slices.Equal(before.addresses, addresses)) {
			continue
		}
		if !known && len(one.pods) >= maxHeralds {
			one.forget(now)
		}
		if !known && len(one.pods) >= maxHeralds { // then these are not known
			clear(one.pods)
			one.sure, one.lost = 0, now
		}
		one.pods[uid] = heralded{addresses, now, to}
		if was, awaited := one.awaited[uid]; awaited {
			means, anew = means || !was.told, anew || was.told
			one.awaited[uid] = waiter{true, was.since}
		}
	}
	return one.upTo, means, anew, true
}

// forget forgets pods that are not known here for long. The caller holds the lock.
func (o *herald) forget(now time.Time) {
	maps.DeleteFunc(o.pods, func(uid types.UID, p heralded) bool {
		_, awaited := o.awaited[uid]
		return !awaited && now.Sub(p.at) >= heraldFor
	})
}

// number takes up to where a provider's gateway knows pods. Where that is less than was told of pods,
// its versions began anew, and nothing is known.
func (h *heralds) number(key string, number uint64) (anew bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of[key]
	if one == nil || !one.said || number >= uint64(one.upTo) {
		return false
	}
	one.begin()
	return true
}

// begin forgets what was told. The caller holds the lock.
func (o *herald) begin() {
	o.said, o.after, o.upTo, o.sure = false, 0, 0, 0
	clear(o.pods)
}

// settle takes all that was told for all there is, once no pod waits that may have been in what was not.
// The caller holds the lock.
func (o *herald) settle(now time.Time) {
	until := o.lost.Add(lostFor)
	if o.sure >= o.upTo || now.Before(until) {
		return
	}
	for uid, of := range o.awaited {
		if _, told := o.pods[uid]; !told && !of.since.After(until) {
			return
		}
	}
	o.after, o.sure = o.upTo, o.upTo
}

// since is the version after which all pods that a provider has told of were told here, up to which, and
// whether it tells of any.
func (h *heralds) since(key string) (after, upTo int64, said bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of[key]
	switch {
	case one == nil:
		return 0, 0, false
	case one.sure < one.upTo:
		return one.upTo, one.upTo, one.said
	}
	return one.after, one.upTo, one.said
}

// expected are the pods on a peering's virtual nodes that have no address here, and whether
// NetworkPolicies are about some there.
type expected struct {
	pods  []types.UID
	ruled bool
}

// expect takes what is expected of each peering, and returns where pods are by what was told, and the
// peerings of which that is forgotten.
func (h *heralds) expect(all map[string]expected, now time.Time) (at map[string]map[types.UID][]netip.Addr, forgotten []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, one := range h.of {
		if of, wanted := all[key]; wanted && !of.ruled {
			continue
		}
		if one.said {
			forgotten = append(forgotten, key)
		}
		one.begin()
		if _, wanted := all[key]; !wanted {
			delete(h.of, key)
		}
	}
	at = map[string]map[types.UID][]netip.Addr{}
	for key, of := range all {
		one, awaited := h.one(key), map[types.UID]waiter{}
		at[key], one.ruled = map[types.UID][]netip.Addr{}, of.ruled
		for _, uid := range of.pods {
			p, told := one.pods[uid]
			was, waited := one.awaited[uid]
			if !waited {
				was.since = now
			}
			if awaited[uid] = (waiter{told || was.told, was.since}); told {
				at[key][uid] = p.addresses
			}
		}
		one.awaited = awaited
		one.settle(now)
		one.forget(now)
	}
	return at, forgotten
}

// heralded gives the pods on virtual nodes that have no address here yet those that their provider's
// gateway has told of, as this cluster sees them. It returns the peerings of which nothing is known so any
// more.
func (f *facts) heralded(h *heralds) (forgotten []string) {
	pairs := f.pairs()
	keys, all := map[string]string{}, map[string]expected{} // keys by nodes
	tables := map[string]*ipam.Table{}
	for namespace, p := range pairs {
		if p.role == plan.Consumer { // also before there is a virtual node
			all[v1alpha1.NetworkKey(namespace)] = expected{ruled: f.ruling[namespace]}
		}
	}
	for i := range f.nodes {
		peering, is := virtual(&f.nodes[i])
		p := pairs[v1alpha1.PeeringNamespace(peering)]
		if !is || p == nil {
			continue
		}
		key := v1alpha1.NetworkKey(p.namespace)
		keys[f.nodes[i].Name] = key
		all[key] = expected{append(all[key].pods, waiting(f.away[f.nodes[i].Name])...), f.ruling[p.namespace]}
		if tables[key] == nil {
			var k known
			tables[key] = ipam.NewTable(map[string]ipam.Result{key: {Views: k.views("", p.peer.Status.Views)}})
		}
	}
	told, forgotten := h.expect(all, f.now)
	for node, key := range keys {
		for i := range f.away[node] {
			pod := &f.away[node][i]
			if !waits(pod) {
				continue
			}
			for _, real := range told[key][pod.UID] {
				if view, ok := tables[key].View(key, real); ok {
					pod.Status.PodIPs = append(slices.Clip(pod.Status.PodIPs), corev1.PodIP{IP: view.String()})
				}
			}
		}
	}
	return forgotten
}

// waits says whether a pod on a virtual node has no address yet.
func waits(pod *corev1.Pod) bool {
	return len(pod.Status.PodIPs) == 0 && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

func waiting(pods []corev1.Pod) (all []types.UID) {
	for i := range pods {
		if waits(&pods[i]) {
			all = append(all, pods[i].UID)
		}
	}
	return all
}

// recent are the pods of a tenant here that changed last, as they are told of.
func recent(f facts, tenant string) health.Recent {
	var r health.Recent
	virtually := f.grouped().virtual
	type aged struct {
		pod     *corev1.Pod
		version uint64
	}
	var all []aged
	for _, pod := range f.hostedOf(tenant) {
		version := uint64(max(0, versionOf(pod)))
		switch {
		case len(podAddresses(pod)) == 0:
		case virtually[pod.Spec.NodeName]: // the tenant is told of it by another address
			r.After = max(r.After, version)
		default:
			all = append(all, aged{pod, version})
		}
	}
	slices.SortFunc(all, func(a, b aged) int {
		switch {
		case a.version < b.version:
			return -1
		case a.version > b.version:
			return 1
		}
		return 0
	})
	if rest := len(all) - maxRecent; rest > 0 {
		r.After, all = max(r.After, all[rest-1].version), all[rest:]
	}
	for _, a := range all {
		uid, err := uuid.Parse(a.pod.Labels[v1alpha1.LabelHomeUID])
		if err != nil || uid.String() != a.pod.Labels[v1alpha1.LabelHomeUID] { // it cannot be told of
			r.After = max(r.After, a.version)
			continue
		}
		for _, text := range podAddresses(a.pod) {
			if at, err := netip.ParseAddr(text); err == nil && at.Zone() == "" {
				r.Pods = append(r.Pods, health.Pod{Version: a.version, UID: uid, Address: at.Unmap()})
			}
		}
	}
	return r
}
