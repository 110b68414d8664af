package health

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const ms = time.Millisecond

// clock is a tunnel's State, told in milliseconds since it began.
type clock struct {
	State
	began time.Time
	shift time.Duration // by which the clock was set
	seq   uint64

	watching bool
	watched  int
	kicks    []int // when Kick said so, while watching
}

func newClock() *clock { return &clock{began: time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)} }

func (c *clock) at(milli int) time.Time {
	return c.began.Add(time.Duration(milli)*ms + c.shift)
}

// watch asks for a kick every 10 ms until a time.
func (c *clock) watch(to int) {
	for ; c.watching && c.watched < to; c.watched += 10 {
		if c.Kick(c.at(c.watched)) {
			c.kicks = append(c.kicks, c.watched)
		}
	}
}

// send sends the next probe.
func (c *clock) send(milli int) {
	c.watch(milli)
	c.seq++
	c.Sent(c.at(milli), c.seq)
}

func (c *clock) hear(milli int, seqs ...uint64) {
	c.watch(milli)
	for _, seq := range seqs {
		c.Heard(c.at(milli), seq)
	}
}

// quiet sends a probe every 500 ms, to which there is no answer.
func (c *clock) quiet(from, to int) {
	for t := from; t <= to; t += 500 {
		c.send(t)
	}
}

// fine sends a probe every 500 ms, answered at once.
func (c *clock) fine(from, to int) {
	for t := from; t <= to; t += 500 {
		c.send(t)
		c.hear(t, c.seq)
	}
}

// seen is a Report's liveness in milliseconds, Since and Heard from the beginning.
type seen struct {
	Known, Alive bool
	Since, Heard int
}

func (c *clock) look(milli int) seen {
	r := c.At(c.at(milli))
	s := seen{Known: r.Known, Alive: r.Alive, Since: int(r.Since.Sub(c.began.Add(c.shift)) / ms), Heard: -1}
	if !r.Heard.IsZero() {
		s.Heard = int(r.Heard.Sub(c.began.Add(c.shift)) / ms)
	}
	return s
}

func TestSilent(t *testing.T) {
	for _, c := range []struct {
		reason string
		play   func(*clock)
		at     int
		want   bool
	}{
		{"nothing was asked", func(*clock) {}, 60_000, false},
		{"two lost are not silence", func(c *clock) { c.fine(0, 0); c.quiet(500, 1000) }, 1499, false},
		{"the third is waited for", func(c *clock) { c.fine(0, 0); c.quiet(500, 1500) }, 1749, false},
		{"three lost are, long before it is dead", func(c *clock) { c.fine(0, 0); c.quiet(500, 1500) }, 1750, true},
		{"also where there never was an answer", func(c *clock) { c.quiet(0, 1000) }, 1250, true},
		{"any answer ends it", func(c *clock) { c.fine(0, 0); c.quiet(500, 2000); c.hear(2100, 3) }, 2400, false},
		{"a second of latency is none", func(c *clock) {
			for at := 0; at <= 20_000; at += 500 {
				if c.send(at); at >= 1000 {
					c.hear(at, c.seq-2)
				}
			}
		}, 20_240, false},
		{"nor is it to have stood still", func(c *clock) { c.fine(0, 0); c.send(500) }, 60_000, false},
	} {
		k := newClock()
		c.play(k)
		if got := k.At(k.at(c.at)).Silent; got != c.want {
			t.Errorf("%s: %t", c.reason, got)
		}
	}
	if SilentWithin >= DeadWithin {
		t.Errorf("silent after %s, dead after %s", SilentWithin, DeadWithin)
	}
}

func TestAlive(t *testing.T) {
	for _, c := range []struct {
		reason string
		play   func(*clock)
		at     int
		want   seen
	}{
		{"nothing is known without an answer", func(c *clock) { c.quiet(0, 2000) }, 2249, seen{false, false, 0, -1}},
		{"five probes without an answer say that it never lived", func(c *clock) { c.quiet(0, 2000) }, 2250, seen{true, false, 2250, -1}},
		{"the first answer is enough", func(c *clock) { c.send(0); c.hear(30, 1) }, 40, seen{true, true, 30, 30}},
		{"four lost are not dead", func(c *clock) { c.fine(0, 0); c.quiet(500, 2000) }, 2900, seen{true, true, 0, 0}},
		{"the fifth is waited for", func(c *clock) { c.fine(0, 0); c.quiet(500, 2500) }, 2749, seen{true, true, 0, 0}},
		{"five lost are dead", func(c *clock) { c.fine(0, 0); c.quiet(500, 2500) }, 2750, seen{true, false, 2750, 0}},
		{"it died when it did, not when somebody looked", func(c *clock) { c.fine(0, 0); c.quiet(500, 4000) }, 4400, seen{true, false, 2750, 0}},
		{"an answer before the fifth is given up starts anew", func(c *clock) { c.fine(0, 0); c.quiet(500, 2500); c.hear(2740, 6) }, 4400, seen{true, true, 0, 2740}},
		{"so does a late one", func(c *clock) { c.fine(0, 0); c.quiet(500, 2500); c.hear(2600, 2); c.quiet(3000, 4500) }, 5249, seen{true, true, 0, 2600}},
		{"and holds from when it came", func(c *clock) { c.fine(0, 0); c.quiet(500, 2500); c.hear(2600, 2); c.quiet(3000, 5000) }, 5250, seen{true, false, 5250, 2600}},
		{"the same answer again is no sign of life", func(c *clock) {
			c.fine(0, 0)
			for at := 500; at <= 2500; at += 500 {
				c.send(at)
				c.hear(at+10, 1, 1)
			}
		}, 2750, seen{true, false, 2750, 0}},
		{"nor is one to what was not asked", func(c *clock) {
			c.fine(0, 0)
			for at := 500; at <= 2500; at += 500 {
				c.send(at)
				c.hear(at+10, 0, c.seq+1, c.seq+window, ^uint64(0))
			}
		}, 2750, seen{true, false, 2750, 0}},
		{"two seconds of latency are slow and alive", func(c *clock) {
			for at := 0; at <= 20_000; at += 500 {
				if c.send(at); at >= 2000 {
					c.hear(at, c.seq-4)
				}
			}
		}, 20_100, seen{true, true, 2000, 20_000}},

		{"one answer does not wake the dead", func(c *clock) { c.quiet(0, 3000); c.fine(3500, 3500) }, 3900, seen{true, false, 2250, 3500}},
		{"two do", func(c *clock) { c.quiet(0, 3000); c.fine(3500, 4000) }, 4100, seen{true, true, 4000, 4000}},
		{"not with a lost one between", func(c *clock) { c.quiet(0, 3000); c.fine(3500, 3500); c.quiet(4000, 4000); c.fine(4500, 4500) }, 4600, seen{true, false, 2250, 4500}},
		{"in whatever order", func(c *clock) { c.quiet(0, 4000); c.hear(4010, 9); c.hear(4020, 8) }, 4100, seen{true, true, 4020, 4020}},
		{"to probes that were sent since it died", func(c *clock) { c.quiet(0, 2000); c.send(2500); c.hear(2510, 1, 2, 3, 4, 5, 6) }, 2600, seen{true, false, 2250, 2510}},
		{"of which the latest count", func(c *clock) { c.quiet(0, 4500); c.hear(4600, 7, 8, 10) }, 4700, seen{true, true, 4600, 4600}},
	} {
		clock := newClock()
		c.play(clock)
		if d := cmp.Diff(c.want, clock.look(c.at)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

// TestFlapping holds how many answers in a row it takes after each death.
func TestFlapping(t *testing.T) {
	c := newClock()
	now := 0
	c.fine(now, now+1000)
	for i, want := range []struct {
		alive  int // how long it lives after that, milliseconds, before it falls silent
		needed int
	}{
		{1000, 2}, {1000, 4}, {1000, 6}, {61_000, 6}, {55_000, 2}, {1000, 4}, {61_000, 6}, {1000, 2},
	} {
		for now += 1500; c.look(now).Alive; now += 500 {
			c.send(now)
		}
		answers := 0
		for ; !c.look(now).Alive; now += 500 {
			c.fine(now, now)
			if answers++; answers > 10 {
				break
			}
		}
		if answers != want.needed {
			t.Errorf("death %d: alive after %d answers, want %d", i, answers, want.needed)
		}
		c.fine(now, now+want.alive)
		now += want.alive
	}
}

// TestClock sets the clock and stops the process, both while all is well and in silence.
func TestClock(t *testing.T) {
	for _, step := range []time.Duration{-time.Hour, -300 * ms, 300 * ms, time.Hour} {
		c := newClock()
		c.fine(0, 3000)
		c.send(3500)
		c.shift = step
		if s := c.look(3600); !s.Alive {
			t.Errorf("step of %v: dead though only the clock moved", step)
		}
		if took, ok := c.Heard(c.at(3600), c.seq); !ok || took < 0 || took > maxStep {
			t.Errorf("step of %v: an answer took %v", step, took)
		}
		c.fine(4000, 6000)
		if r := c.At(c.at(6000)); !r.Alive || r.Loss != 0 || r.Latency.P50 != 0 || r.Latency.Last > maxStep {
			t.Errorf("step of %v: %+v", step, r)
		}
		c.quiet(6500, 8000)
		c.shift *= 2
		c.quiet(8500, 8500)
		// The step may take away or give at most a second.
		if s := c.look(8600); s.Alive != true {
			t.Errorf("step of %v in silence: dead too early", step)
		}
		c.quiet(9000, 9500)
		if s := c.look(9750); s.Alive {
			t.Errorf("step of %v in silence: still alive", step)
		}
	}
}

func TestStoppedProcess(t *testing.T) {
	c := newClock()
	c.fine(0, 3000)
	c.send(3500)
	c.send(63_500) // nothing was sent for a minute
	if s := c.look(63_600); !s.Alive {
		t.Error("dead though nothing was asked")
	}
	c.hear(63_600, c.seq-1, c.seq)
	if r := c.At(c.at(63_600)); r.Loss != 0 || r.Latency.Last > 2*maxStep {
		t.Errorf("it counts against the tunnel: %+v", r)
	}
}

func TestLoss(t *testing.T) {
	for _, c := range []struct {
		reason string
		play   func(*clock)
		at     int
		want   float64
	}{
		{"nothing was sent", func(*clock) {}, 0, 0},
		{"an answer may still come", func(c *clock) { c.fine(0, 500); c.quiet(1000, 2500) }, 2900, 0},
		{"or not", func(c *clock) { c.fine(0, 500); c.quiet(1000, 1500); c.fine(2000, 4000) }, 4000, 2. / 9},
		{"a late one takes it back", func(c *clock) { c.fine(0, 500); c.quiet(1000, 1500); c.fine(2000, 4000); c.hear(4100, 3) }, 4100, 1. / 9},
		{"an answer counts once", func(c *clock) { c.fine(0, 500); c.quiet(1000, 1500); c.fine(2000, 4000); c.hear(4100, 1, 1, 2) }, 4100, 2. / 9},
		{"every third of many", func(c *clock) {
			for at := 0; at < 100_000; at += 500 {
				if c.send(at); c.seq%3 != 0 {
					c.hear(at, c.seq)
				}
			}
		}, 99_500, 39. / 119},
		{"a minute later nothing is left of it", func(c *clock) { c.quiet(0, 59_500); c.fine(60_000, 119_500) }, 119_500, 0},
		{"what is out of the window is not taken back", func(c *clock) { c.quiet(0, 60_000); c.hear(60_100, 1) }, 62_000, 1},
	} {
		clock := newClock()
		c.play(clock)
		if got := clock.At(clock.at(c.at)).Loss; got != c.want {
			t.Errorf("%s: loss %v, want %v", c.reason, got, c.want)
		}
	}
}

// TestGap numbers probes with a gap, as nobody does: what is out of the window stays so.
func TestGap(t *testing.T) {
	c := newClock()
	c.send(0)
	c.seq += 2*window + 5
	c.send(500)
	c.hear(600, 1)
	c.Sent(c.at(600), 7)
	c.hear(700, 7)
	if s := c.look(3000); s.Known {
		t.Errorf("%+v", s)
	}
}

func TestLatency(t *testing.T) {
	c := newClock()
	if got := c.At(c.at(0)).Latency; got != (Latency{}) {
		t.Errorf("without answers: %+v", got)
	}
	for i, took := range []int{10, 30, 0, 20, 90} {
		c.send(i * 500)
		if took > 0 {
			c.hear(i*500+took, c.seq)
		}
	}
	if d := cmp.Diff(Latency{P50: 20 * ms, Last: 90 * ms, Jitter: 100 * ms / 3}, c.At(c.at(2100)).Latency); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	c.hear(2300, 3) // asked at 1000
	if d := cmp.Diff(Latency{P50: 30 * ms, Last: 1300 * ms, Jitter: (20 + 1270 + 1280 + 70) * ms / 4}, c.At(c.at(2300)).Latency); d != "" {
		t.Errorf("a late answer takes as long as it took (-want +got):\n%s", d)
	}
	c.quiet(2500, 62_500)
	if got := c.At(c.at(62_500)).Latency; got != (Latency{}) {
		t.Errorf("after a minute of silence: %+v", got)
	}
}

func TestKick(t *testing.T) {
	for _, c := range []struct {
		reason string
		play   func(*clock)
		want   []int
		to     int
	}{
		{"not while all is well", func(c *clock) { c.fine(0, 3000) }, nil, 3400},
		{"not for one lost probe", func(c *clock) { c.fine(0, 500); c.quiet(1000, 1000); c.fine(1500, 2000) }, nil, 2400},
		{"once for two", func(c *clock) { c.fine(0, 0); c.quiet(500, 3000) }, []int{1250}, 3000},
		{"again as long as nobody answers", func(c *clock) { c.fine(0, 0); c.quiet(500, 24_000) }, []int{1250, 3250, 7250, 15_250, 23_250}, 24_000},
		{"also if there never was an answer", func(c *clock) { c.quiet(0, 7000) }, []int{750, 2750, 6750}, 7000},
		{"not when it has ended", func(c *clock) { c.quiet(0, 1000); c.fine(1500, 6000) }, []int{750}, 6000},
		{"in the next silence", func(c *clock) { c.quiet(0, 1000); c.fine(1500, 1500); c.quiet(2000, 5000) }, []int{750, 2750, 4750}, 5000},
	} {
		clock := newClock()
		clock.watching = true
		c.play(clock)
		clock.watch(c.to)
		if d := cmp.Diff(c.want, clock.kicks); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

// TestKickPause makes a silence begin less than a second after the last one.
func TestKickPause(t *testing.T) {
	c := newClock()
	c.quiet(0, 500)
	if !c.Kick(c.at(800)) {
		t.Error("two probes have no answer")
	}
	c.hear(810, 1)
	c.send(820)
	c.send(1000)
	if c.Kick(c.at(1300)) {
		t.Error("twice in half a second")
	}
	if wait, ok := c.Next(c.at(1300)); !ok || wait != 500*ms {
		t.Errorf("the next one may come in %v (%v), want 500 ms", wait, ok)
	}
	if !c.Kick(c.at(1800)) {
		t.Error("not when the second is over")
	}
}

func TestNext(t *testing.T) {
	c := newClock()
	for _, want := range []struct {
		at, wait int
	}{
		{100, -1}, {600, 150}, {750, 2000}, {1000, 1750}, {2100, 150}, {2250, 500},
	} {
		for int(c.seq)*500 <= want.at {
			c.send(int(c.seq) * 500)
		}
		c.Kick(c.at(want.at))
		wait, ok := c.Next(c.at(want.at))
		if got := int(wait / ms); ok != (want.wait >= 0) || ok && got != want.wait {
			t.Errorf("at %d: %d ms (%v), want %d", want.at, got, ok, want.wait)
		}
	}
}
