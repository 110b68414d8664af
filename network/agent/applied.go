package agent

import (
	"context"
	"strings"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/health"
)

// maxApplied bounds what is said of pods that are known, in bytes. Who has more peerings than fit
// says nothing, and nobody waits for it.
const maxApplied = 32 << 10

// consumes reports whether this cluster is the consumer in the peering of a key.
func consumes(key string) bool {
	return strings.HasPrefix(key, v1alpha1.NetworkKey(v1alpha1.PeeringNamespacePrefix)) && !isPath(key)
}

// knows takes whose pods a plan is about. Until it is applied nothing is said of new ones but that
// they are not known.
func (a *Agent) knows(k known) {
	a.mu.Lock()
	a.away, a.hosts, a.unreached = k.away, k.hosts, k.unreached
	sooner := a.tenure.stands(a.cluster.standing())
	a.mu.Unlock()
	if sooner {
		signal(a.renewal)
	}
	a.tell()
}

// stale is up to where a gateway knew pods when something went wrong with it, and which had changed last. It
// is not said to know more until that is mended.
type stale struct {
	numbers map[stream]int64
	recent  health.Recent
	told    bool // whether the peer was told anything
}

// stays is what a gateway knows that is left as it is. The caller holds mu.
func (a *Agent) stays(key string) stale {
	if s, is := a.stale[key]; is {
		return s
	}
	s := stale{numbers: map[stream]int64{}}
	s.recent, s.told = a.recent[key]
	streams := []stream{{peer: key}}
	if tenant, is := a.hosts[key]; is {
		streams = append(streams, stream{tenant: tenant})
	}
	for _, node := range a.away[key] {
		streams = append(streams, stream{node: node})
	}
	for _, of := range streams {
		s.numbers[of] = a.cluster.versions.now(of)
	}
	return s
}

// upTo is up to where a gateway knows the pods of a stream.
func (a *Agent) upTo(left map[string]stale, key string, of stream) int64 {
	now := a.cluster.versions.now(of)
	if s, is := left[key]; is {
		return min(now, s.numbers[of])
	}
	return now
}

// applied takes that the data plane is what a plan said, but for the gateways with which something is
// wrong, and tells so.
func (a *Agent) applied(k known, broken dataplane.GatewaysError) {
	a.saying.Lock() // a number goes with the pods that are known with it
	left := map[string]stale{}
	a.mu.Lock()
	for key := range broken {
		left[key] = a.stays(key)
	}
	mended := len(left) < len(a.stale)
	a.stale = left
	a.mu.Unlock()
	news := a.cluster.versions.apply(k.read) || mended
	a.mu.Lock()
	a.recent = k.recent
	a.mu.Unlock()
	a.saying.Unlock()
	if a.cluster.serve(len(a.tunnels.peers()) > 0) {
		signal(a.work) // with what a gateway has to know
	}
	a.tell()
	if news && a.appliedText() != "" {
		signal(a.renewal)
	}
}

// tell tells consumers which of their pods their gateway here knows.
func (a *Agent) tell() {
	a.saying.Lock() // what is told last is what was found out last
	defer a.saying.Unlock()
	a.mu.Lock()
	hosts, recent, left := a.hosts, a.recent, a.stale
	a.mu.Unlock()
	all := map[string]telling{}
	for key, tenant := range hosts {
		pods, is := recent[key]
		if s, stays := left[key]; stays {
			pods, is = s.recent, s.told
		}
		if is {
			all[key] = telling{a.upTo(left, key, stream{tenant: tenant}), pods}
		} else { // no plan with it is applied yet
			all[key] = telling{}
		}
	}
	a.tunnels.tell(all)
}

// telling is what a consumer is told: up to where its pods here are known, and those that changed last.
type telling struct {
	number int64
	recent health.Recent
}

// heralded takes what a provider's gateway tells of pods.
func (a *Agent) heralded(key string, r health.Recent) {
	upTo, means, anew, ok := a.cluster.heralds.take(key, r, time.Now())
	if !ok {
		return
	}
	a.cluster.versions.hear(stream{peer: key}, upTo, means || anew)
	if means {
		a.cluster.changed()
	} else if anew {
		a.cluster.ration(key)
	}
}

// numbered takes up to where a provider's gateway knows pods.
func (a *Agent) numbered(key string, number uint64) {
	if a.cluster.heralds.number(key, number) {
		a.cluster.versions.forget(stream{peer: key})
	}
}

// recite tells consumers of what passed without a plan, until ctx ends.
func (a *Agent) recite(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-a.telling:
			a.tell()
			pause(ctx, paceLeast)
		}
	}
}

// appliedText is what the Lease is to say of the pods that gateways know, "" if there is no gateway
// to a provider here.
func (a *Agent) appliedText() string {
	a.mu.Lock()
	away, left := a.away, a.stale
	a.mu.Unlock()
	all := map[string]v1alpha1.AppliedPods{}
	for key, peer := range a.tunnels.peers() {
		nodes, ok := away[key]
		if !ok {
			continue
		}
		applied := v1alpha1.AppliedPods{Peer: peer}
		for _, node := range nodes {
			if applied.Away == nil {
				applied.Away = map[string]int64{}
			}
			applied.Away[node] = a.upTo(left, key, stream{node: node})
		}
		known := a.upTo(left, key, stream{peer: key}) // before it is asked what that lacks
		if after, upTo, said := a.cluster.heralds.since(key); said {
			applied.Heralded = &v1alpha1.HeraldedPods{After: after, UpTo: min(known, upTo)}
		}
		all[key] = applied
	}
	if len(all) == 0 {
		return ""
	}
	if out := text(all); len(out) <= maxApplied {
		return out
	}
	return ""
}

// tell has peers told something, by their keys.
func (t *tunnels) tell(all map[string]telling) {
	t.mu.Lock()
	t.told = all
	responders := map[string]*health.Responder{}
	for key, r := range t.running {
		if r.responder != nil {
			responders[key] = r.responder
		}
	}
	t.mu.Unlock()
	for key, r := range responders {
		if what, ok := all[key]; ok {
			r.Tell(uint64(what.number), what.recent)
		}
	}
}

// peers are the tunnels there are, with what the other sides have told, nil if that is nothing.
func (t *tunnels) peers() map[string]*int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]*int64{}
	for key, r := range t.running {
		all[key] = nil
		if r.peer != nil {
			all[key] = r.peer.Load()
		}
	}
	return all
}
