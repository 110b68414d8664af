package tunnel

import (
	"net/netip"
	"slices"
	"time"
)

const (
	// freshFor is how long a handshake serves: WireGuard itself refuses keys that are older.
	freshFor = 180 * time.Second
	// tryGap is from one round of tries to the next. An answer that takes longer than that
	// comes too late, since a new question voids the old one: where answers come of which nothing comes,
	// the gap doubles, at most slowMost times.
	tryGap   = 700 * time.Millisecond
	slowMost = 3
	// jitter is at most added to tryGap, so that two sides that ask at the same moment, and
	// void each other's questions by their own, do not do so for ever.
	jitter = 250 * time.Millisecond
	// slowGap is the gap after quickRounds rounds without an answer.
	slowGap     = 5 * time.Second
	quickRounds = 30
	// settling is how long keys of the kernel's are not doubted after a handshake: there a question
	// takes them away, and the first answer through them may take as long as a tunnel that is alive
	// may have for latency, two seconds.
	settling = 3 * time.Second
	// Names are resolved anew this often; while nobody answers, sooner.
	resolveEvery = 5 * time.Minute
	resolveAgain = 10 * time.Second
)

// state is what is known of where the peer is. It belongs to the decision alone: next
// and the functions beside it are pure.
type state struct {
	// Candidates are the addresses of Config.Endpoints, in their order.
	Candidates []netip.AddrPort
	// Named says that some of them come from names, Resolved when they were last asked for.
	Named    bool
	Resolved time.Time
	// Width is how many are tried at once: one where the kernel asks.
	Width int

	// Learnt is from where authenticated packets came while handshakes were fresh.
	Learnt netip.AddrPort
	// Handshake is the last one by the wall clock of whoever made it; a value to compare.
	// Heard is when that was by our clock, Observed when we last looked.
	Handshake       time.Time
	Heard, Observed time.Time
	// Kicked is since when a handshake is wanted whatever else is believed; zero if it is not.
	Kicked time.Time

	// Tried is when the last round was, Rounds how many were not answered, Turn where the next begins.
	Tried  time.Time
	Rounds int
	Turn   int
	// Jitter is what the gap is longer by, and Drawn what that of the next round is to be.
	Jitter, Drawn time.Duration
	// Answers is how many answers have come, and Counted how many of these had when we last tried. Slow is how
	// often the gap is doubled.
	Answers, Counted uint64
	Slow             int
}

// action is what to do now, and when to ask again at the latest.
type action struct {
	Try     []netip.AddrPort
	Resolve bool
	Wake    time.Time
}

// next decides. While handshakes are fresh it tries nobody, so that nothing is written
// over what was learnt; else it tries in turn where the peer was last, and all candidates.
func next(s state, now time.Time) (action, state) {
	var a action
	fresh := s.fresh(now)
	if s.Named {
		again := s.Resolved.Add(resolveEvery)
		if !fresh && (s.Rounds > 0 || len(s.ring()) == 0) { // without an address nobody is asked
			again = s.Resolved.Add(resolveAgain)
		}
		a.Resolve = s.Resolved.IsZero() || !now.Before(again)
		if !a.Resolve {
			a.Wake = again
		}
	}
	if fresh {
		s.Rounds, s.Turn = 0, 0
		a.Wake = sooner(a.Wake, s.Heard.Add(freshFor))
		return a, s
	}
	ring := s.ring()
	if len(ring) == 0 {
		return a, s
	}
	due := s.Tried.IsZero() || !now.Before(s.Tried.Add(s.gap()))
	switch {
	case due && s.Rounds == 0: // a row of rounds begins
		s.Slow = 0
	case due:
		s, due = paced(s, now)
	}
	if due {
		s.Counted, s.Jitter = s.Answers, s.Drawn
		for range min(max(s.Width, 1), len(ring)) {
			a.Try = append(a.Try, ring[s.Turn%len(ring)])
			s.Turn = (s.Turn + 1) % len(ring)
		}
		s.Tried = now
		s.Rounds++
	}
	a.Wake = sooner(a.Wake, s.Tried.Add(s.gap()))
	return a, s
}

// paced is the state when it is time for another round, and whether it still is: an answer that came, though no
// handshake has yet, may be to a question that the next one has voided.
func paced(s state, now time.Time) (state, bool) {
	switch {
	case s.Answers <= s.Counted: // of a device that was made anew there are fewer
		s.Slow = max(0, s.Slow-1)
	case s.Slow < slowMost:
		s.Slow++
	}
	s.Counted = s.Answers
	return s, !now.Before(s.Tried.Add(s.gap()))
}

// fresh reports whether the last handshake can be relied upon.
func (s state) fresh(now time.Time) bool {
	return s.Kicked.IsZero() && !s.Heard.IsZero() && now.Sub(s.Heard) < freshFor
}

// ring is whom to try: where the peer was, then where it may be.
func (s state) ring() []netip.AddrPort {
	var ring []netip.AddrPort
	if s.Learnt.IsValid() {
		ring = append(ring, s.Learnt)
	}
	for _, c := range s.Candidates {
		if !slices.Contains(ring, c) {
			ring = append(ring, c)
		}
	}
	return ring
}

func (s state) gap() time.Duration {
	if s.Rounds > quickRounds {
		return slowGap + s.Jitter
	}
	return (tryGap + s.Jitter) << s.Slow
}

// kicked is the state when a handshake is wanted now. A round that is under way is let
// finish, and who has asked in vain for long goes on at its pace. What asking would take away is given
// time to be of use.
func kicked(s state, now time.Time) state {
	if s.Width == 1 && s.Kicked.IsZero() && !s.Heard.IsZero() && now.Sub(s.Heard) < settling {
		return s
	}
	if s.Kicked.IsZero() {
		s.Kicked, s.Rounds, s.Turn = now, 0, 0
	}
	if s.Rounds <= quickRounds && now.Sub(s.Tried) >= tryGap<<s.Slow {
		s.Tried = time.Time{}
	}
	return s
}

// observed is the state when the device was looked at. What the device believes is
// learnt only while handshakes are fresh; at other times it is what we tried. Wall
// clocks may step, so the age of a handshake is believed only as far as it lies
// between two looks.
func observed(s state, seen Stats, now time.Time) state {
	if seen.Handshake.IsZero() { // never, or the device is not the one that it was
		if s.fresh(now) {
			s.Tried, s.Rounds, s.Turn = time.Time{}, 0, 0
		}
		s.Handshake, s.Heard = time.Time{}, time.Time{}
	} else if !seen.Handshake.Equal(s.Handshake) {
		age := max(0, now.Round(0).Sub(seen.Handshake))
		if !s.Observed.IsZero() {
			age = min(age, now.Sub(s.Observed))
		}
		s.Handshake, s.Heard = seen.Handshake, now.Add(-age)
		s.Kicked, s.Rounds, s.Turn = time.Time{}, 0, 0
	}
	s.Observed, s.Answers = now, seen.Answers
	if s.fresh(now) && seen.Endpoint.IsValid() {
		s.Learnt = seen.Endpoint
	}
	return s
}

func sooner(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
