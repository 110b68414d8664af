package agent

import (
	"maps"
	"time"
)

// doubt is whether other nodes may have taken over the gateways of this one, which cannot tell:
// it could not renew its Lease. They could if the API server answers them.
type doubt struct {
	is bool
	// others are how many there are.
	others int
}

// doubtLook is how often tunnels are looked at in doubt.
const doubtLook = 100 * time.Millisecond

// mostTried is how many endpoints a cluster publishes of itself.
const mostTried = 8

// giveWay is how long a peer is left alone that has to find other gateways by itself: until its
// probes have told it to seek, and then for each node that it may try.
func (d doubt) giveWay() time.Duration {
	return 2*time.Second + time.Duration(min(d.others+1, mostTried))*time.Second
}

// witness is what a tunnel tells of its peer, who knows which gateway it talks to.
type witness struct {
	// silent is that probes have no answer, and shaken that there was a handshake since the
	// tunnel was made or became passive.
	silent, shaken bool
	// listed is that the peer is where all nodes may seek it.
	listed bool
}

// posture is what a tunnel is.
type posture int

const (
	serving posture = iota // as without a doubt, but that it forces no handshake and is late to answer one
	passive                // it leaves the peer to others, and waits to be asked
	shut                   // it is not there for a while
)

// stance is what a tunnel is in a doubt. It is pure; the zero value is without doubt.
type stance struct {
	posture posture
	// since is when it was shut, and tried that the peer had a chance to find others.
	since time.Time
	tried bool
}

// next is the stance that follows. Another gateway that can call the peer has done so by the time
// it serves, the peer talks to that one, and here is silence. Where it could not call, as
// the peer is where only this node is known to reach it, the peer has to look for it: once.
func (s stance) next(d doubt, w witness, now time.Time) stance {
	switch {
	case !d.is:
		return stance{}
	case s.posture == serving && w.silent:
		return stance{posture: passive, tried: true}
	case s.posture == serving && !w.listed && !s.tried:
		return stance{posture: shut, since: now, tried: true}
	case s.posture == shut && now.Sub(s.since) >= d.giveWay():
		return stance{posture: passive, tried: true}
	case s.posture == passive && w.shaken:
		return stance{tried: true}
	}
	return s
}

// hesitate makes of the tunnels that are wanted what they are in a doubt.
func (t *tunnels) hesitate(want map[string]wanted, d doubt, now time.Time) map[string]wanted {
	stances := map[string]stance{}
	if d.is {
		seen := t.witnesses()
		for key := range want {
			stances[key] = t.stance(key).next(d, seen(key), now)
		}
	}
	t.mu.Lock()
	before := t.stances
	t.doubt, t.stances = d, stances
	t.mu.Unlock()
	for key := range want {
		if was, is := before[key].posture, stances[key].posture; was != is {
			t.log.Info("a tunnel in doubt whether this node is gateway", "peering", key, "serving", is == serving, "waiting", is == passive, "doubt", d.is)
		}
	}
	made := maps.Clone(want)
	for key, w := range want {
		w.Config.Passive, w.Config.Yield = stances[key].posture == passive, d.is
		if made[key] = w; stances[key].posture == shut {
			delete(made, key)
		}
	}
	return made
}

// doubting says whether there is a doubt.
func (t *tunnels) doubting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.doubt.is
}

func (t *tunnels) stance(key string) stance {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stances[key]
}

// stirred says whether a tunnel in doubt is to be something else.
func (t *tunnels) stirred(now time.Time) bool {
	seen := t.witnesses()
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, s := range t.stances {
		if s.next(t.doubt, seen(key), now) != s {
			return true
		}
	}
	return false
}

// witnesses is what the tunnels tell now. One that cannot be read tells nothing.
func (t *tunnels) witnesses() func(string) witness {
	stats := t.stats()
	t.mu.Lock()
	defer t.mu.Unlock()
	all := map[string]witness{}
	for key, r := range t.running {
		s, ok := stats[key]
		if !ok {
			continue
		}
		w := witness{shaken: !s.Handshake.IsZero()}
		w.listed = s.Listed || !w.shaken // of whom nothing was heard yet there is nothing to conclude
		if r.prober != nil {
			w.silent = r.prober.Report().Silent
		}
		all[key] = w
	}
	return func(key string) witness {
		if w, ok := all[key]; ok {
			return w
		}
		return witness{listed: true}
	}
}
