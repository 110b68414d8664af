package agent

import (
	"maps"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Bounds of what a Lease says of itself: it was written by an agent, perhaps one of another
// build.
const (
	minTerm = time.Second
	maxTerm = time.Minute
	// minMTU is the least that any device for IP has.
	minMTU = 68
)

// sight knows which agents are alive by their Leases, as it saw these change: clocks of nodes
// differ, so no time in them counts. A Lease that has run out is asked for once more, and only
// the answer that it is as it was makes its agent dead. Who cannot ask does not know, and keeps
// what he knew; and who can again gives everybody a full term, since none could renew. It is
// pure, and not safe for concurrent use.
type sight struct {
	leases map[string]*seen
	blind  bool
}

type seen struct {
	version string
	held    bool
	mtu     int
	term    time.Duration
	at      time.Time
	dead    bool
}

// saw takes what a Lease is now, nil if there is none. It reports whether somebody became
// alive, or dead, or has another MTU.
func (s *sight) saw(node string, l *coordinationv1.Lease, now time.Time) (changed bool) {
	was, mtu := s.alive(node), s.mtu(node)
	switch before := s.leases[node]; {
	case l == nil:
		delete(s.leases, node)
	case before != nil && before.version == l.ResourceVersion:
	default:
		if s.leases == nil {
			s.leases = map[string]*seen{}
		}
		term := time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0)) * time.Second
		s.leases[node] = &seen{
			version: l.ResourceVersion, held: ptr.Deref(l.Spec.HolderIdentity, "") != "",
			term: min(max(term, minTerm), maxTerm), at: now, mtu: mtuIn(l.Annotations[v1alpha1.AnnotationMTU]),
		}
	}
	return s.alive(node) != was || s.mtu(node) != mtu
}

// mtuIn reads an MTU; what is none, as of older agents nothing is, is 0.
func mtuIn(text string) int {
	mtu, err := strconv.ParseUint(text, 10, 16)
	if err != nil || mtu < minMTU {
		return 0
	}
	return int(mtu)
}

func (s *sight) mtu(node string) int {
	if l := s.leases[node]; l != nil {
		return l.mtu
	}
	return 0
}

// mtus are those that Leases say, also of agents that are away.
func (s *sight) mtus() map[string]int {
	all := map[string]int{}
	for node, l := range s.leases {
		if l.mtu > 0 {
			all[node] = l.mtu
		}
	}
	return all
}

func (s *sight) alive(node string) bool {
	l := s.leases[node]
	return l != nil && l.held && !l.dead
}

// all are the nodes whose agents are alive.
func (s *sight) all() map[string]bool {
	alive := map[string]bool{}
	for node := range s.leases {
		if s.alive(node) {
			alive[node] = true
		}
	}
	return alive
}

// lapsed are the nodes whose Leases have run out and are to be asked for, and when the
// next one does; zero if none will.
func (s *sight) lapsed(now time.Time) (nodes []string, next time.Time) {
	for _, node := range slices.Sorted(maps.Keys(s.leases)) {
		if !s.alive(node) {
			continue
		}
		switch ends := s.leases[node].at.Add(s.leases[node].term); {
		case !ends.After(now):
			nodes = append(nodes, node)
		case next.IsZero() || ends.Before(next):
			next = ends
		}
	}
	return nodes, next
}

// asked takes the answer to the question for a Lease that had run out: what it is now, nil if
// there is none, or that there was no answer.
func (s *sight) asked(node string, l *coordinationv1.Lease, answered bool, now time.Time) (changed bool) {
	if !answered {
		s.blind = true
		return false
	}
	if s.blind {
		s.blind = false
		for _, other := range s.leases {
			other.at = now
		}
		return s.saw(node, l, now)
	}
	before := s.leases[node]
	if l == nil || before == nil || before.version != l.ResourceVersion {
		return s.saw(node, l, now)
	}
	changed = s.alive(node)
	before.dead = true
	return changed
}
