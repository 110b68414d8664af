package health

import (
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// notes are the numbers that a Prober was told.
type notes struct {
	mu  sync.Mutex
	all []uint64
	at  []time.Time
}

func (n *notes) told(number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.all, n.at = append(n.all, number), append(n.at, time.Now())
}

func (n *notes) read() (all []uint64, at []time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	all, at = n.all, n.at
	n.all, n.at = nil, nil
	return all, at
}

// TestTold holds that who asks is told a number before its first answer, at once when it is
// another one, and in time when that was lost.
func TestTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rome, milan := newLink(10 * ms)
		r := NewResponder(ResponderOptions{Conn: milan, From: []netip.Prefix{netip.PrefixFrom(romeAt.Addr(), 128)}})
		r.Tell(7, Recent{})
		run(t, r.Run)
		var n notes
		var first []kind
		l.set(func(from netip.AddrPort, b []byte) int {
			if m, err := decode(b); from == milanAt && err == nil && len(first) < 2 {
				first = append(first, m.kind)
			}
			return 1
		})
		run(t, NewProber(ProberOptions{Conn: rome, Peer: milanAt, Told: n.told}).Run)
		l.probes(t, minute/6)
		l.heal()
		if all, _ := n.read(); cmp.Diff([]uint64{7}, all) != "" || cmp.Diff([]kind{told, answer}, first) != "" {
			t.Errorf("told %v; first came %v", all, first)
		}

		r.Tell(7, Recent{})
		for _, number := range []uint64{8, 6} { // 6 as after a restore
			changed := time.Now()
			r.Tell(number, Recent{})
			until(t, "it is told", func() bool { n.mu.Lock(); defer n.mu.Unlock(); return len(n.all) > 0 })
			if all, at := n.read(); cmp.Diff([]uint64{number}, all) != "" || at[0].Sub(changed) > 11*ms {
				t.Errorf("told %v %v after it was %d", all, at[0].Sub(changed), number)
			}
		}

		l.cut()
		r.Tell(9, Recent{})
		l.probes(t, 2)
		l.heal()
		l.probes(t, 2)
		if all, _ := n.read(); cmp.Diff([]uint64{9}, all) != "" {
			t.Errorf("told %v after one was lost", all)
		}
	})
}

// TestToldSeldom holds that a number that stays costs little, that who asks anew is told at once, and
// that one who lost it with many answers is told in time.
func TestToldSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rome, milan := newLink(ms)
		r := NewResponder(ResponderOptions{Conn: milan})
		r.Tell(7, Recent{})
		run(t, r.Run)
		numbers, lose := 0, false
		l.set(func(from netip.AddrPort, b []byte) int {
			m, err := decode(b)
			if from != milanAt || err != nil || m.kind != told {
				return 1
			}
			numbers++
			if lose {
				return 0
			}
			return 1
		})
		count := func(what string, probes, least, most int) {
			t.Helper()
			numbers = 0
			if l.probes(t, probes); numbers < least || numbers > most {
				t.Errorf("%s: told %d times in %d probes, want %d to %d", what, numbers, probes, least, most)
			}
		}
		var n notes
		run(t, NewProber(ProberOptions{Conn: rome, Peer: milanAt, Told: n.told}).Run)
		count("at first", 8, 6, 7)
		count("it stays", 100, 24, 27)
		r.Tell(8, Recent{})
		count("it changes", 8, 5, 7)
		lose = true
		r.Tell(9, Recent{})
		count("all are lost", 8, 6, 7)
		lose = false
		count("and then none", 5, 1, 2)
		if all, _ := n.read(); cmp.Diff([]uint64{7, 8, 9}, all) != "" {
			t.Errorf("told %v", all)
		}
		who, numbered := asker{romeAt, session{9}}, numbers
		r.meet(who) // as a new process asks
		if numbers != numbered+1 {
			t.Error("who asks anew is not told")
		}
	})
}

// TestToldIsNotFooled has others tell than who is asked.
func TestToldIsNotFooled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rome, _ := newLink(0)
		var n notes
		p := NewProber(ProberOptions{Conn: rome, Peer: milanAt, Told: n.told})
		l.set(func(_ netip.AddrPort, b []byte) int {
			m, err := decode(b)
			if err != nil {
				t.Error(err)
			}
			for _, said := range []struct {
				from netip.AddrPort
				m    message
			}{
				{romeAt, message{told, m.session, 1}},
				{netip.AddrPortFrom(milanAt.Addr(), 1), message{told, m.session, 2}},
				{milanAt, message{told, session{1}, 3}},
				{milanAt, message{told, m.session, 4}},
			} {
				b := said.m.encode()
				rome.deliver(said.from, b[:])
			}
			return 0
		})
		run(t, p.Run)
		l.probes(t, minute/6)
		if all, _ := n.read(); cmp.Diff([]uint64{4}, all) != "" {
			t.Errorf("told %v", all)
		}
		if p.Report().Alive {
			t.Error("what is told counts as an answer")
		}
	})
}

// TestToldNobody holds that a stranger is told nothing, however often it asks, and that what is told
// asks for nothing.
func TestToldNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rome, milan := newLink(0)
		r := NewResponder(ResponderOptions{Conn: milan, From: []netip.Prefix{netip.MustParsePrefix("fd00::3/128")}})
		run(t, r.Run)
		r.Tell(1, Recent{})
		run(t, NewProber(ProberOptions{Conn: rome, Peer: milanAt}).Run)
		l.probes(t, minute/6)
		r.Tell(2, Recent{})
		b := message{told, session{1}, 1}.encode()
		milan.deliver(netip.MustParseAddrPort("[fd00::3]:1"), b[:])
		l.probes(t, 2)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.sent[milanAt] != 0 {
			t.Errorf("%d datagrams to a stranger", l.sent[milanAt])
		}
	})
}
