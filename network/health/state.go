package health

import (
	"slices"
	"time"
)

// maxStep is how much time passes at most between two looks at the clock. Probes are more
// frequent, so a longer time means that the clock was set or that this process stood
// still; neither says anything about the tunnel.
const maxStep = time.Second

// State makes a Report of probes and answers. It is not safe for concurrent use, and
// starts with the first time it is told.
//
// A tunnel is dead when deadAfter probes were sent since the last answer, the last of
// these at least patience ago: time alone does not kill it. See the constants for when it
// is alive again.
type State struct {
	last time.Time     // as told, the latest
	now  time.Duration // time that passed, whatever the clock was set to

	probes [window]probe // by sequence number
	newest uint64        // sequence number of the latest probe
	top    uint64        // the highest one answered
	took   time.Duration // latency of the latest answer

	silent   int                      // probes sent since the latest answer
	silentAt [deadAfter]time.Duration // when the first of these were sent
	kicked   bool                     // in this silence
	mayKick  time.Duration            // in the next one, at the earliest
	again    time.Duration            // in this one, if it was
	gap      time.Duration            // from the last kick of this one to that

	known, alive bool
	since        time.Duration
	sinceTold    time.Time
	heardTold    time.Time
	needed       int // answers in a row to be alive again
}

// probe is one that was sent; seq is 0 if none was.
type probe struct {
	seq        uint64
	sent, took time.Duration
	answered   bool
}

// Sent tells that a probe goes out. Sequence numbers begin above 0 and grow; a probe that
// could not be sent is lost like any other.
func (s *State) Sent(now time.Time, seq uint64) {
	s.pass(now)
	if seq <= s.newest {
		return
	}
	s.newest = seq
	s.probes[seq%window] = probe{seq: seq, sent: s.now}
	if s.silent < deadAfter {
		s.silentAt[s.silent] = s.now
		s.silent++
	}
}

// Heard tells that an answer came, and how long it took. It is not ok if there is no
// such probe, or not any more, or if it has been answered before; then nothing changes.
func (s *State) Heard(now time.Time, seq uint64) (took time.Duration, ok bool) {
	s.pass(now)
	p := s.find(seq)
	if p == nil || p.answered {
		return 0, false
	}
	p.answered, p.took = true, s.now-p.sent
	s.top, s.took = max(s.top, seq), p.took
	s.silent, s.kicked, s.heardTold = 0, false, now
	if !s.known || !s.alive && s.row() >= s.needed {
		s.become(true, s.now)
	}
	return p.took, true
}

// At reports what is known at a time.
func (s *State) At(now time.Time) Report {
	s.pass(now)
	silent := s.silent >= silentAfter && s.silentAt[silentAfter-1]+patience <= s.now
	r := Report{Known: s.known, Alive: s.alive, Silent: silent, Since: s.sinceTold, Heard: s.heardTold}
	r.Loss = s.loss()
	r.Latency = s.latency()
	return r
}

// Kick says in each silence, when the first two probes have had no answer, that the tunnel
// should try something, and says it again, ever more seldom, as long as it lasts: what was tried may
// have been answered by somebody who was about to go. In short silences it is not more than once a second.
func (s *State) Kick(now time.Time) bool {
	s.pass(now)
	due, ok := s.kickDue()
	if !ok || s.now < due {
		return false
	}
	s.gap = min(2*s.gap, kickMost)
	if !s.kicked {
		s.gap = kickAgain
	}
	s.kicked, s.mayKick, s.again = true, s.now+kickPause, s.now+s.gap
	return true
}

// Next is how long after a time At or Kick may say something new although no probe is
// sent and no answer comes; not ok if never.
func (s *State) Next(now time.Time) (wait time.Duration, ok bool) {
	s.pass(now)
	at, ok := s.kickDue()
	if dead, dying := s.deadDue(); dying && (!ok || dead < at) {
		at, ok = dead, true
	}
	return max(at-s.now, 0), ok
}

// pass lets time pass, and the tunnel die in it.
func (s *State) pass(now time.Time) {
	if s.last.IsZero() {
		s.last, s.sinceTold = now, now
	}
	s.now += min(max(now.Sub(s.last), 0), maxStep)
	s.last = now
	if at, ok := s.deadDue(); ok && at <= s.now {
		s.become(false, at)
	}
}

func (s *State) deadDue() (at time.Duration, ok bool) {
	if s.known && !s.alive || s.silent < deadAfter {
		return 0, false
	}
	return s.silentAt[deadAfter-1] + patience, true
}

func (s *State) kickDue() (at time.Duration, ok bool) {
	switch {
	case s.silent < kickAfter:
		return 0, false
	case s.kicked:
		return s.again, true
	}
	return max(s.silentAt[kickAfter-1]+patience, s.mayKick), true
}

// become is the only change between dead and alive.
func (s *State) become(alive bool, at time.Duration) {
	if !alive {
		if s.alive && s.needed > 0 && at-s.since < calm {
			s.needed = min(s.needed+aliveStep, aliveMost)
		} else {
			s.needed = aliveAfter
		}
	}
	s.known, s.alive, s.since, s.sinceTold = true, alive, at, s.last.Add(at-s.now)
}

// find returns a probe of the window, nil if there is none.
func (s *State) find(seq uint64) *probe {
	p := &s.probes[seq%window]
	if seq == 0 || p.seq != seq || s.newest-seq >= window {
		return nil
	}
	return p
}

// row is how many probes up to the latest answered one were answered without a gap, of
// those sent since the tunnel died. Their answers may have come in any order.
func (s *State) row() int {
	count := 0
	for seq := s.top; count < aliveMost; seq-- {
		p := s.find(seq)
		if p == nil || !p.answered || p.sent < s.since {
			break
		}
		count++
	}
	return count
}

func (s *State) loss() float64 {
	var lost, judged float64
	for _, p := range s.probes {
		switch {
		case s.find(p.seq) == nil:
		case p.answered:
			judged++
		case s.now-p.sent >= lostAfter:
			judged++
			lost++
		}
	}
	if judged == 0 {
		return 0
	}
	return lost / judged
}

func (s *State) latency() Latency {
	l := Latency{Last: s.took}
	var all []time.Duration
	var differences time.Duration
	for seq := s.newest - min(s.newest, window-1); seq <= s.newest; seq++ {
		p := s.find(seq)
		if p == nil || !p.answered {
			continue
		}
		if len(all) > 0 {
			differences += (p.took - all[len(all)-1]).Abs()
		}
		all = append(all, p.took)
	}
	if len(all) > 1 {
		l.Jitter = differences / time.Duration(len(all)-1)
	}
	if len(all) > 0 {
		slices.Sort(all)
		l.P50 = all[(len(all)-1)/2]
	} else {
		l.Last = 0
	}
	return l
}
