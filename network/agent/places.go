package agent

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/pelago-dev/pelago/network/plan"
)

// unplaced is why no name is followed by who has not seen the cluster yet: a name may lead anywhere.
const unplaced = "is not called before it is known which addresses are this cluster's"

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

// refuser says, for a tunnel, why an address that a name of its peer's leads to is not called.
func (t *tunnels) refuser(key string) func(netip.Addr) string {
	path := isPath(key)
	return func(a netip.Addr) string {
		t.mu.Lock()
		places := t.places
		t.mu.Unlock()
		if places == nil {
			return unplaced
		}
		return places.Refuse(a, path)
	}
}

// unfollowed is what is wrong with names of peers, by the keys of their tunnels.
func (t *tunnels) unfollowed() map[string][]string {
	all := map[string][]string{}
	for key, r := range t.all() {
		if wrong := r.device.Problems(); len(wrong) > 0 {
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
