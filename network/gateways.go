package network

import (
	"maps"
	"reflect"
	"sync"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// gateways knows which pods the gateways of peerings know, and tells whoever asked when that changes.
// Its zero value knows nothing.
type gateways struct {
	mu sync.Mutex
	// said is what was said last of each peering, by those whose tunnel lives. It stays while there is
	// no such one: a gateway that moves has not forgotten anything.
	said map[string][]v1alpha1.AppliedPods
	// times is how often that has changed.
	times     map[string]int
	listeners listeners
}

// hear takes what agents say now.
func (g *gateways) hear(agents []agent) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before := maps.Clone(g.times)
	if g.said == nil {
		g.said, g.times = map[string][]v1alpha1.AppliedPods{}, map[string]int{}
	}
	for key, now := range applied(agents) {
		if was, known := g.said[key]; !known || !reflect.DeepEqual(was, now) {
			g.said[key] = now
			g.times[key]++
		}
	}
	tell(&g.listeners, before, g.times)
}

// want takes the keys of the peerings that have a network. What was known of others is forgotten.
func (g *gateways) want(keys map[string]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for key := range g.said {
		if !keys[key] {
			delete(g.said, key)
			delete(g.times, key)
		}
	}
}

// behind is Network.Behind of a key.
func (g *gateways) behind(key, node string, here, there int64) (home, provider bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return lacking(g.said[key], node, here, there)
}

// heralded is Network.Heralded of a key.
func (g *gateways) heralded(key, node string, here, there int64) (known, may bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return foretold(g.said[key], node, here, there)
}

// applied is what agents say of pods whose tunnel of a peering lives, by key: nothing if none of them
// does. While a gateway moves there may be two.
func applied(agents []agent) map[string][]v1alpha1.AppliedPods {
	all := map[string][]v1alpha1.AppliedPods{}
	for _, a := range agents {
		if !a.alive {
			continue
		}
		for key, r := range a.reports {
			if !r.Alive {
				continue
			}
			all[key] = append(all[key], nil...) // somebody is there to ask
			if known, says := a.applied[key]; says {
				all[key] = append(all[key], known)
			}
		}
	}
	return all
}

// lacking says whether some gateway of home has not said that it knows a pod, and whether the
// provider's has not, as far as they say anything.
func lacking(said []v1alpha1.AppliedPods, node string, here, there int64) (home, provider bool) {
	for _, known := range said {
		home = home || known.Away[node] < here
		provider = provider || known.Peer != nil && *known.Peer < there
	}
	return home, provider
}

// foretold says whether all gateways of home know of a pod what the provider's has told them, and else
// whether they may come to know it so.
func foretold(said []v1alpha1.AppliedPods, node string, here, there int64) (known, may bool) {
	known, may = len(said) > 0 && there > 0, len(said) > 0 && there > 0
	for _, of := range said {
		h := of.Heralded
		if h == nil || there <= h.After {
			return false, false
		}
		known = known && there <= h.UpTo && here <= of.Away[node] && of.Peer != nil && there <= *of.Peer
	}
	return known, may && !known
}
