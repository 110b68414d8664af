package agent

import (
	"maps"
	"net/netip"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/health"
)

// steadyFor is how long a path that died has to be alive before packets go by it again: who goes to and
// fro with a bad link loses some each time, and the way by the consumer is there.
const steadyFor = 5 * time.Second

// steady is whether a path can be relied upon. It is pure; the zero value is one of which nothing is
// known.
type steady struct {
	// since is when it came to life last, zero if it never did, and fell that it was dead
	// before.
	since time.Time
	fell  bool
	alive bool
}

// next is what follows from a report on its tunnel.
func (s steady) next(h health.Report) steady {
	alive := h.Known && h.Alive
	switch {
	case alive && s.since.IsZero():
		s.since = h.Since
	case alive && !s.since.Equal(h.Since): // it died meanwhile
		s.since, s.fell = h.Since, true
	case !alive && !s.since.IsZero():
		s.fell = true
	}
	s.alive = alive
	return s
}

// carries says whether packets go by it, and if not when they will if it stays as it is, zero if never.
func (s steady) carries(now time.Time) (is bool, then time.Time) {
	switch {
	case !s.alive:
		return false, time.Time{}
	case !s.fell || now.Sub(s.since) >= steadyFor:
		return true, time.Time{}
	}
	return false, s.since.Add(steadyFor)
}

// tunnelKeys are the keys of all tunnels that there may be: of peerings, with these direct paths, and before there are
// peerings. One of which there is no more than a word of one side is among them: it may come back.
func (f facts) tunnelKeys(paths map[string]bool) map[string]bool {
	all := maps.Clone(paths)
	for i := range f.configs {
		key := f.configs[i].Name
		if in := f.configs[i].Namespace; in != f.namespace {
			key = v1alpha1.NetworkKey(in)
		}
		all[key] = true
	}
	return all
}

// forget lets go of where the other ends were of tunnels that there are no more: a consumer makes as many paths as it
// likes, one after another, and peerings and invitations come and go too.
func (t *tunnels) forget(keys map[string]bool) {
	t.mu.Lock()
	for key := range t.moved {
		if !keys[key] {
			delete(t.moved, key)
		}
	}
	var gone []string
	for key := range t.last {
		if !keys[key] && t.running[key] == nil {
			gone = append(gone, key)
			delete(t.last, key)
		}
	}
	t.mu.Unlock()
	for _, key := range gone {
		if err := t.keeper.Last(key, netip.AddrPort{}); err != nil {
			t.log.Error(err, "forgetting where a peer was", "peering", key)
		}
	}
}

// carrying are the paths whose tunnels here can be relied upon, and when another one may be; zero if
// none. Of paths that are not among those that there are it forgets what it knew.
func (t *tunnels) carrying(paths map[string]bool, now time.Time) (all map[string]bool, then time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all = map[string]bool{}
	for key := range t.steady {
		if !paths[key] {
			delete(t.steady, key)
		}
	}
	for key := range paths {
		var h health.Report
		r := t.running[key]
		if r != nil && r.prober != nil {
			h = r.prober.Report()
		}
		s, known := t.steady[key]
		if !known && r == nil {
			continue // it is another node's
		}
		s = s.next(h)
		t.steady[key] = s
		is, at := s.carries(now)
		if is {
			all[key] = true
		} else if !at.IsZero() && (then.IsZero() || at.Before(then)) {
			then = at
		}
	}
	return all, then
}
