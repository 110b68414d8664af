package tunnel

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var (
	epoch      = time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	dead       = netip.MustParseAddrPort("198.18.0.66:51820")
	alive      = netip.MustParseAddrPort("198.18.0.2:51820")
	third      = netip.MustParseAddrPort("[fd5a::3]:51820")
	roamed     = netip.MustParseAddrPort("203.0.113.9:40000")
	equalAddrs = cmp.Options{cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b }), cmpopts.EquateEmpty()}
)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func addresses(all ...netip.AddrPort) []netip.AddrPort { return all }

func TestNext(t *testing.T) {
	for _, c := range []struct {
		reason string
		state  state
		now    time.Duration
		want   action
	}{
		{"nothing is known of the peer: it will come to us", state{Width: 8}, 0, action{}},
		{"no name had an address: they are asked for again soon", state{Width: 8, Named: true, Resolved: at(0)}, time.Second, action{Wake: at(resolveAgain)}},
		{"and then", state{Width: 8, Named: true, Resolved: at(0)}, resolveAgain, action{Resolve: true}},
		{
			"it was never heard: all that fit into one round at once",
			state{Width: 2, Candidates: addresses(dead, alive, third)}, 0,
			action{Try: addresses(dead, alive), Wake: at(tryGap)},
		},
		{
			"the kernel can only try one",
			state{Width: 1, Candidates: addresses(dead, alive)}, 0,
			action{Try: addresses(dead), Wake: at(tryGap)},
		},
		{
			"the second round goes on where the first one ended, and around",
			state{Width: 2, Candidates: addresses(dead, alive, third), Tried: at(0), Rounds: 1, Turn: 2}, tryGap,
			action{Try: addresses(third, dead), Wake: at(2 * tryGap)},
		},
		{
			"a round is given time for an answer, and what jitter adds",
			state{Width: 1, Candidates: addresses(dead, alive), Tried: at(0), Rounds: 1, Turn: 1, Jitter: 100 * time.Millisecond}, tryGap,
			action{Wake: at(tryGap + 100*time.Millisecond)},
		},
		{
			"an answer that came may be to the question before: the gap doubles",
			state{Width: 8, Candidates: addresses(alive), Tried: at(0), Rounds: 2, Answers: 1}, tryGap,
			action{Wake: at(2 * tryGap)},
		},
		{
			"and again, with what jitter adds",
			state{Width: 8, Candidates: addresses(alive), Tried: at(0), Rounds: 3, Answers: 2, Counted: 1, Slow: 1, Jitter: tryGap / 7}, 2 * (tryGap + tryGap/7),
			action{Wake: at(4 * (tryGap + tryGap/7))},
		},
		{
			"but not for ever",
			state{Width: 8, Candidates: addresses(alive), Tried: at(0), Rounds: 3, Answers: 2, Counted: 1, Slow: slowMost}, tryGap << slowMost,
			action{Try: addresses(alive), Wake: at(2 * tryGap << slowMost)},
		},
		{
			"where none came any more it halves",
			state{Width: 8, Candidates: addresses(alive), Tried: at(0), Rounds: 3, Answers: 2, Counted: 2, Slow: 2}, 4 * tryGap,
			action{Try: addresses(alive), Wake: at(4*tryGap + 2*tryGap)},
		},
		{
			"answers of before a row of rounds, or of a device that was made anew, are none to its questions",
			state{Width: 8, Candidates: addresses(alive), Heard: at(-freshFor), Tried: at(-time.Minute), Answers: 7, Slow: 2, Drawn: tryGap / 7}, 0,
			action{Try: addresses(alive), Wake: at(tryGap + tryGap/7)},
		},
		{
			"nor are fewer than there were",
			state{Width: 8, Candidates: addresses(alive), Tried: at(0), Rounds: 1, Answers: 1, Counted: 7}, tryGap,
			action{Try: addresses(alive), Wake: at(2 * tryGap)},
		},
		{
			"kicks do not void a question whose answer takes long",
			kicked(state{Width: 8, Candidates: addresses(alive), Kicked: at(0), Tried: at(0), Rounds: 2, Answers: 1, Counted: 1, Slow: 1}, at(tryGap)), tryGap,
			action{Wake: at(2 * tryGap)},
		},
		{
			"after many rounds there is no hurry",
			state{Width: 1, Candidates: addresses(alive), Tried: at(0), Rounds: quickRounds + 1}, 2 * time.Second,
			action{Wake: at(slowGap)},
		},
		{
			"while handshakes are fresh nobody is tried, though it was learnt that the peer is elsewhere",
			state{Width: 8, Candidates: addresses(dead, alive), Learnt: roamed, Heard: at(0), Tried: at(-time.Hour)}, freshFor - time.Second,
			action{Wake: at(freshFor)},
		},
		{
			"when they are not, where it was is tried first",
			state{Width: 8, Candidates: addresses(dead, alive), Learnt: roamed, Heard: at(0)}, freshFor,
			action{Try: addresses(roamed, dead, alive), Wake: at(freshFor + tryGap)},
		},
		{
			"where it was is tried once, also if it is in the list",
			state{Width: 8, Candidates: addresses(dead, alive), Learnt: alive, Heard: at(0)}, freshFor,
			action{Try: addresses(alive, dead), Wake: at(freshFor + tryGap)},
		},
		{
			"a kick is doubt at once, and the learnt place first in line",
			kicked(state{Width: 1, Candidates: addresses(dead, alive), Learnt: roamed, Heard: at(0), Tried: at(-time.Hour)}, at(settling)), settling,
			action{Try: addresses(roamed), Wake: at(settling + tryGap)},
		},
		{
			"keys of the kernel's are given time to be of use",
			kicked(state{Width: 1, Candidates: addresses(alive), Heard: at(0), Tried: at(-time.Hour)}, at(settling-time.Millisecond)), settling,
			action{Wake: at(freshFor)},
		},
		{
			"those that asking leaves alone are not",
			kicked(state{Width: 8, Candidates: addresses(alive), Heard: at(0), Tried: at(-time.Hour)}, at(time.Millisecond)), time.Second,
			action{Try: addresses(alive), Wake: at(time.Second + tryGap)},
		},
		{
			"who has asked in vain for long goes on at its pace whoever kicks",
			kicked(state{Width: 1, Candidates: addresses(alive), Kicked: at(-time.Minute), Tried: at(0), Rounds: quickRounds + 1}, at(2*time.Second)), 2 * time.Second,
			action{Wake: at(slowGap)},
		},
		{
			"a kick without a list asks where the peer was",
			kicked(state{Width: 8, Learnt: roamed, Heard: at(0)}, at(time.Second)), time.Second,
			action{Try: addresses(roamed), Wake: at(time.Second + tryGap)},
		},
		{
			"kicks do not void the question that is under way",
			kicked(state{Width: 8, Candidates: addresses(alive), Heard: at(0), Tried: at(time.Second)}, at(time.Second+tryGap/2)), time.Second + tryGap/2,
			action{Wake: at(time.Second + tryGap)},
		},
		{
			"names are asked for at first",
			state{Width: 8, Named: true}, 0,
			action{Resolve: true},
		},
		{
			"names of a peer that is well are asked for every five minutes",
			state{Width: 8, Named: true, Resolved: at(0), Candidates: addresses(alive), Heard: at(resolveEvery - time.Second)}, resolveEvery,
			action{Resolve: true, Wake: at(resolveEvery - time.Second + freshFor)},
		},
		{
			"and not before",
			state{Width: 8, Named: true, Resolved: at(0), Candidates: addresses(alive), Heard: at(resolveEvery - 2*time.Second)}, resolveEvery - time.Second,
			action{Wake: at(resolveEvery)},
		},
		{
			"while nobody answers they are asked for sooner",
			state{Width: 8, Named: true, Resolved: at(0), Candidates: addresses(dead), Rounds: 12, Tried: at(resolveAgain - tryGap)}, resolveAgain,
			action{Resolve: true, Try: addresses(dead), Wake: at(resolveAgain + tryGap)},
		},
	} {
		got, _ := next(c.state, at(c.now))
		if d := cmp.Diff(c.want, got, equalAddrs); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

// TestNextInTurn plays a list with one width after another: each entry has its turn.
func TestNextInTurn(t *testing.T) {
	for width := 1; width <= 4; width++ {
		s := state{Width: width, Candidates: addresses(dead, alive, third)}
		tried := map[netip.AddrPort]int{}
		now := at(0)
		for range 12 {
			var a action
			a, s = next(s, now)
			for _, e := range a.Try {
				tried[e]++
			}
			if again, _ := next(s, now); len(again.Try) > 0 {
				t.Errorf("width %d: two rounds at one moment", width)
			}
			now = a.Wake
		}
		if n := 12 * min(width, 3) / 3; tried[dead] != n || tried[alive] != n || tried[third] != n {
			t.Errorf("width %d: tried %v, want each %d times", width, tried, n)
		}
	}
}

func TestObserved(t *testing.T) {
	for _, c := range []struct {
		reason string
		state  state
		seen   Stats
		now    time.Duration
		want   state
	}{
		{
			"a handshake ends the search, and teaches where the peer is",
			state{Kicked: at(1), Rounds: 3, Turn: 1, Observed: at(0)},
			Stats{Handshake: at(time.Second), Endpoint: roamed}, 2 * time.Second,
			state{Handshake: at(time.Second), Heard: at(time.Second), Observed: at(2 * time.Second), Learnt: roamed},
		},
		{
			"the same handshake again is no news: the doubt stays, and what was written is not learnt",
			state{Handshake: at(0), Heard: at(0), Kicked: at(time.Second), Rounds: 1, Learnt: roamed, Observed: at(0)},
			Stats{Handshake: at(0), Endpoint: dead}, 2 * time.Second,
			state{Handshake: at(0), Heard: at(0), Kicked: at(time.Second), Rounds: 1, Learnt: roamed, Observed: at(2 * time.Second)},
		},
		{
			"a peer that roams is followed",
			state{Handshake: at(0), Heard: at(0), Learnt: alive, Observed: at(0)},
			Stats{Handshake: at(0), Endpoint: roamed}, time.Minute,
			state{Handshake: at(0), Heard: at(0), Learnt: roamed, Observed: at(time.Minute)},
		},
		{
			"a wall clock that was put back an hour does not make the next handshake one of the future",
			state{Handshake: at(0), Heard: at(0), Observed: at(0)},
			Stats{Handshake: at(2 * time.Hour)}, time.Minute,
			state{Handshake: at(2 * time.Hour), Heard: at(time.Minute), Observed: at(time.Minute)},
		},
		{
			"nor does one put forward make it old",
			state{Handshake: at(0), Heard: at(0), Observed: at(30 * time.Second)},
			Stats{Handshake: at(-2 * time.Hour)}, time.Minute,
			state{Handshake: at(-2 * time.Hour), Heard: at(30 * time.Second), Observed: at(time.Minute)},
		},
		{
			"a device of an earlier process: its handshake is as old as it says",
			state{}, Stats{Handshake: at(-time.Hour), Endpoint: alive}, 0,
			state{Handshake: at(-time.Hour), Heard: at(-time.Hour), Observed: at(0)},
		},
		{
			"a device that was made anew has heard nobody, and may ask at once",
			state{Handshake: at(0), Heard: at(0), Tried: at(time.Second), Turn: 1, Learnt: roamed, Observed: at(0)},
			Stats{}, 2 * time.Second,
			state{Learnt: roamed, Observed: at(2 * time.Second)},
		},
		{
			"a peer that was renewed in order to ask is not asked twice",
			state{Handshake: at(0), Heard: at(0), Kicked: at(time.Second), Tried: at(time.Second), Rounds: 1, Observed: at(0)},
			Stats{Endpoint: dead}, 2 * time.Second,
			state{Kicked: at(time.Second), Tried: at(time.Second), Rounds: 1, Observed: at(2 * time.Second)},
		},
	} {
		if d := cmp.Diff(c.want, observed(c.state, c.seen, at(c.now)), equalAddrs); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}
