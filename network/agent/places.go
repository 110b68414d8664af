package agent

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// avoid takes where no peer is called.
func (t *tunnels) avoid(places *plan.Places) {
	t.mu.Lock()
	same := t.places.Equal(places)
	t.places = places
	t.mu.Unlock()
	if same {
		return
	}
	for _, r := range t.all() {
		r.device.Reconsider()
	}
}

// refuser says, for a tunnel, why an address that a name of its peer's leads to is not called. Who has not seen the
// cluster yet follows no name but to where the peer of a peering was heard last: it may lead anywhere.
func (t *tunnels) refuser(key string) func(netip.Addr) string {
	path := isPath(key)
	return func(a netip.Addr) string {
		t.mu.Lock()
		places, last := t.places, t.last[key].Addr()
		t.mu.Unlock()
		switch {
		case places != nil:
			return places.Refuse(a, path)
		case !path && a == last:
			return ""
		}
		return tunnel.Unplaced
	}
}

// unfollowed is what is wrong with names of peers, by the keys of their tunnels, of those through which nothing comes:
// else another name or address does.
func (t *tunnels) unfollowed() map[string][]string {
	all := map[string][]string{}
	for key, r := range t.all() {
		t.mu.Lock()
		prober := r.prober
		t.mu.Unlock()
		if prober == nil {
			continue
		}
		if h := prober.Report(); !h.Known || h.Alive {
			continue
		}
		if wrong := r.device.Problems(); len(wrong) > 0 { // not under the lock, which who asks refuser waits for
			all[key] = wrong
		}
	}
	return all
}

// problems is the same as it is told of.
func (t *tunnels) problems() (all []plan.Problem) {
	wrong := t.unfollowed()
	for _, key := range slices.Sorted(maps.Keys(wrong)) {
		object := "peering " + key
		if isPath(key) {
			object = "path " + key
		}
		for _, text := range wrong[key] {
			all = append(all, plan.Problem{Object: object, Text: text})
		}
	}
	return all
}
