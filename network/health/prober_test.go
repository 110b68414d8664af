package health

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// pair is a Prober of rome and a Responder of milan.
func pair(t *testing.T, delay time.Duration) (*link, *Prober, *diary) {
	t.Helper()
	l, rome, milan := newLink(delay)
	run(t, NewResponder(ResponderOptions{Peering: "rome", Conn: milan}).Run)
	d := &diary{began: time.Now()}
	p := NewProber(ProberOptions{Peering: "milan", Conn: rome, Peer: milanAt, Kick: d.kick, Changed: d.changed})
	run(t, p.Run)
	return l, p, d
}

func TestProber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p, d := pair(t, 10*ms)
		if p.Report().Known {
			t.Error("it is known before anything was asked")
		}
		l.probes(t, minute)
		kicks, changes := d.read()
		if want := []change{{20 * ms, true}}; cmp.Diff(want, changes, cmp.AllowUnexported(change{})) != "" || kicks != nil {
			t.Errorf("while all is well: kicks %v, changes %v", kicks, changes)
		}
		r := p.Report()
		if want := (Latency{P50: 20 * ms, Last: 20 * ms}); r.Latency != want || r.Loss != 0 || !r.Alive {
			t.Errorf("while all is well: %+v", r)
		}

		l.cut()
		heard := time.Since(p.Report().Heard)
		l.probes(t, 2*minute) // more than all that Loss looks at
		kicks, changes = d.read()
		if len(kicks) < 14 || len(kicks) > 18 || kicks[0]+heard > kickAfter*Interval+patience {
			t.Errorf("kicks %v after the cut, want one every eight seconds, and sooner at first", kicks)
		}
		if len(changes) != 1 || changes[0].alive || changes[0].at+heard > DeadWithin || changes[0].at+heard < 2*time.Second {
			t.Errorf("changes %v after the cut, %v after the last answer", changes, heard)
		}
		if r := p.Report(); r.Alive || r.Loss < .9 {
			t.Errorf("after a minute of silence: %+v", r)
		}

		l.heal()
		until(t, "it is alive again", func() bool { return p.Report().Alive })
		kicks, changes = d.read()
		if len(changes) != 1 || !changes[0].alive || changes[0].at > 1500*ms || len(kicks) > 1 {
			t.Errorf("after healing: kicks %v, changes %v", kicks, changes)
		}
	})
}

// TestProberBackAfterBlink holds that a cut too short for five probes changes nothing.
func TestProberBackAfterBlink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, p, d := pair(t, 10*ms)
		l.probes(t, minute)
		until(t, "the last one is answered", func() bool { return time.Since(p.Report().Heard) < ms })
		d.read()
		l.cut()
		l.probes(t, deadAfter-1)
		l.heal()
		l.probes(t, minute/6)
		if kicks, changes := d.read(); len(kicks) != 1 || changes != nil || !p.Report().Alive {
			t.Errorf("kicks %v, changes %v, %+v", kicks, changes, p.Report())
		}
	})
}

func TestProberLoss(t *testing.T) {
	for _, c := range []struct {
		reason string
		lost   int // of ten, whichever
		copies int
	}{
		{"a good line", 0, 1},
		{"a bad one", 1, 1},
		{"a very bad one", 3, 1},
		{"what comes three times counts once", 3, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, p, _ := pair(t, 10*ms)
			random := rand.New(rand.NewPCG(1, 2))
			var ten []int
			l.set(func(from netip.AddrPort, _ []byte) int {
				if from != romeAt {
					return c.copies
				}
				if len(ten) == 0 {
					ten = random.Perm(10)
				}
				n := ten[0]
				if ten = ten[1:]; n < c.lost {
					return 0
				}
				return c.copies
			})
			want := float64(c.lost) / 10
			l.probes(t, minute)
			for range 5 {
				l.probes(t, minute)
				if got := p.Report().Loss; got < want-.1 || got > want+.1 {
					t.Errorf("%s: loss %.2f, want %.2f", c.reason, got, want)
				}
			}
		})
	}
}

// TestProberIsNotFooled has the other side say all it can, except what is true.
func TestProberIsNotFooled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rome, _ := newLink(0)
		p := NewProber(ProberOptions{Conn: rome, Peer: milanAt})
		var old []message
		l.set(func(_ netip.AddrPort, b []byte) int {
			m, err := decode(b)
			if err != nil || m.kind != question {
				t.Errorf("a Prober sends %v, %v", m, err)
			}
			say := func(from netip.AddrPort, m message) {
				b := m.encode()
				rome.deliver(from, b[:])
			}
			say(milanAt, m) // its own question
			say(romeAt, message{answer, m.session, m.seq})
			say(netip.AddrPortFrom(milanAt.Addr(), 1), message{answer, m.session, m.seq})
			say(milanAt, message{answer, session{1}, m.seq})
			say(milanAt, message{answer, m.session, m.seq + 1}) // not yet asked
			say(milanAt, message{answer, m.session, 0})
			for _, o := range old {
				say(milanAt, o)
			}
			right := message{answer, m.session, m.seq}.encode()
			rome.deliver(milanAt, right[:size-1])
			rome.deliver(milanAt, append(right[:], 0))
			rome.deliver(milanAt, nil)
			if m.seq <= 2 { // it lived for a second
				old = append(old, message{answer, m.session, m.seq})
				rome.deliver(milanAt, right[:])
			}
			return 0
		})
		run(t, p.Run)
		l.probes(t, minute)
		if r := p.Report(); r.Alive || !r.Known || time.Since(r.Heard) < 50*time.Second || r.Loss < .9 {
			t.Errorf("%+v", r)
		}
		if p.Report().Heard.IsZero() {
			t.Error("true answers were not heard either")
		}
	})
}

// TestProberCallsApart holds that a handshake that takes long delays nothing else, and
// that the last change is told in the end.
func TestProberCallsApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rome, milan := newLink(ms)
		run(t, NewResponder(ResponderOptions{Conn: milan}).Run)
		d := &diary{began: time.Now()}
		slow := make(chan struct{})
		first := true
		p := NewProber(ProberOptions{
			Conn: rome, Peer: milanAt,
			Kick: func(ctx context.Context) { <-ctx.Done() },
			Changed: func(ctx context.Context, r Report) {
				d.changed(ctx, r)
				if !first {
					return
				}
				first = false
				<-slow
			},
		})
		run(t, p.Run)
		for range 2 { // while the call about the first time lasts
			l.heal()
			until(t, "it is alive", func() bool { return p.Report().Alive })
			l.cut()
			until(t, "it is dead", func() bool { return !p.Report().Alive })
		}
		close(slow)
		synctest.Wait()
		_, changes := d.read()
		if len(changes) != 2 || !changes[0].alive || changes[1].alive {
			t.Errorf("changes %v, want alive, and dead when that was done", changes)
		}
	})
}

func TestRunEnds(t *testing.T) {
	for _, c := range []struct {
		reason string
		run    func(Conn) func(context.Context) error
	}{
		{"prober", func(c Conn) func(context.Context) error {
			return NewProber(ProberOptions{Conn: c, Peer: milanAt}).Run
		}},
		{"responder", func(c Conn) func(context.Context) error { return NewResponder(ResponderOptions{Conn: c}).Run }},
	} {
		synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
			_, rome, milan := newLink(ms)
			run(t, c.run(rome))()
			if _, _, err := rome.ReadFromUDPAddrPort(nil); !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: the socket is still open: %v", c.reason, err)
			}
			ended := make(chan error, 1)
			go func() { ended <- c.run(milan)(t.Context()) }()
			milan.errs <- errors.New("a passing one")
			until(t, "it was told", func() bool { return len(milan.errs) == 0 })
			_ = milan.Close()
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: without its socket it ends with %v", c.reason, err)
			}
		})
	}
}

// TestPace holds how often probes go out, and that they do not keep step.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, rome, _ := newLink(0)
		var at []time.Time
		l.set(func(netip.AddrPort, []byte) int { at = append(at, time.Now()); return 0 })
		begin := time.Now()
		run(t, NewProber(ProberOptions{Conn: rome, Peer: milanAt}).Run)
		l.probes(t, minute)
		took := time.Since(begin)
		l.mu.Lock()
		defer l.mu.Unlock()
		gaps := map[time.Duration]bool{}
		for i := range at[1:] {
			gap := at[i+1].Sub(at[i])
			if gaps[gap] = true; gap > Interval || gap < Interval*9/10 {
				t.Errorf("%v between two probes", gap)
			}
		}
		if took > time.Minute || len(gaps) < 20 {
			t.Errorf("%d probes in %v with %d different gaps", len(at), took, len(gaps))
		}
	})
}
