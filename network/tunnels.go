package network

import "sync"

// tunnels knows which tunnels carry packets both ways, and tells whoever asked when that
// changes: as soon as an agent says so, without a look at anything else. Its zero value knows
// nothing.
type tunnels struct {
	mu sync.Mutex
	// wanted are the keys of the peerings that have a network.
	wanted map[string]bool
	// said is what was reported last, by key. It stays while no agent that lives says anything:
	// a gateway that moves, or an agent that starts anew, tells nothing about the tunnel.
	said map[string]bool
	// told is what of that was wanted when it was last told.
	told      map[string]bool
	listeners listeners
	// pods is what gateways said last of the pods that they know, by key. It stays as said does.
	pods gateways
}

// state says whether a tunnel carries packets both ways, and whether that is known.
func (t *tunnels) state(key string) (alive, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	alive, known = t.said[key]
	return alive && t.wanted[key], known && t.wanted[key]
}

// hear takes what agents report now.
func (t *tunnels) hear(agents func() []agent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.said == nil {
		t.said = map[string]bool{}
	}
	all := agents()
	for key, alive := range heard(all) {
		t.said[key] = alive
	}
	t.tell()
	t.pods.hear(all)
}

// want takes the keys of the tunnels that there are to be. What was known of others is
// forgotten.
func (t *tunnels) want(keys map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted = keys
	for key := range t.said {
		if !keys[key] {
			delete(t.said, key)
		}
	}
	t.tell()
	t.pods.want(keys)
}

// heard is what agents that live say of tunnels, by key. While a gateway moves two of them may
// have it, and one that carries packets is enough. What has not been probed for long enough is
// not known.
func heard(agents []agent) map[string]bool {
	all := map[string]bool{}
	for _, a := range agents {
		if !a.alive {
			continue
		}
		for key, r := range a.reports {
			if r.Alive || r.Since != nil || r.Problem != "" {
				all[key] = all[key] || r.Alive
			}
		}
	}
	return all
}

// tell wakes the listeners of what is new. The caller holds the lock.
func (t *tunnels) tell() {
	now := map[string]bool{}
	for key, alive := range t.said {
		if t.wanted[key] {
			now[key] = alive
		}
	}
	tell(&t.listeners, t.told, now)
	t.told = now
}
