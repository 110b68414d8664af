package internet

import (
	"math/rand/v2"
	"testing"
	"time"
)

func never() float64 { return 0.999999 }

func TestShaperTable(t *testing.T) {
	type packet struct {
		now  time.Duration
		size int
		want time.Duration
		fate fate
	}
	const ms = time.Millisecond
	for _, c := range []struct {
		reason  string
		shape   shape
		chance  func() float64
		packets []packet
	}{
		{"without rate a packet leaves as it comes", shape{delay: ms}, never, []packet{{5 * ms, 1500, 5 * ms, carried}, {5 * ms, 1500, 5 * ms, carried}}},
		{"a packet leaves when its last bit has", shape{rate: 8e6}, never, []packet{{0, 1000, ms, carried}}},
		{"the next waits for it", shape{rate: 8e6}, never, []packet{{0, 1000, ms, carried}, {0, 1000, 2 * ms, carried}}},
		{"an idle line saves up no more than the grace", shape{rate: 8e5}, never, []packet{{0, 1000, 10 * ms, carried}, {90 * ms, 1000, 90 * ms, carried}, {90 * ms, 1000, 100 * ms, carried}}},
		{"a reader that was late does not slow the line", shape{rate: 8e6}, never, []packet{{0, 5000, 5 * ms, carried}, {8 * ms, 9000, 14 * ms, carried}}},
		{"a lost packet takes its time all the same", shape{rate: 8e6, loss: 0.5}, func() float64 { return 0.4 }, []packet{{0, 1000, ms, lost}, {0, 1000, 2 * ms, lost}}},
		{"chance at the limit is no loss", shape{loss: 0.5}, func() float64 { return 0.5 }, []packet{{0, 1000, 0, carried}}},
		{"loss of 1 takes all", shape{loss: 1}, never, []packet{{0, 1000, 0, lost}}},
	} {
		s := shaper{shape: c.shape, chance: c.chance}
		for i, p := range c.packets {
			if got, f := s.admit(p.now, p.size); got != p.want || f != p.fate {
				t.Errorf("%s: packet %d leaves at %s (%d), want %s (%d)", c.reason, i, got, f, p.want, p.fate)
			}
		}
	}
}

func TestShaperQueueBound(t *testing.T) {
	for _, c := range []struct {
		reason string
		rate   int64
		bytes  int
	}{
		{"a slow line holds 256 KiB", 1e6, 256 << 10},
		{"a fast line holds 200 ms", 100e6, 2_500_000},
		{"the fastest line does not overflow the arithmetic", MaxRate, 2_500_000_000},
		{"nor does the slowest", MinRate, 256 << 10},
	} {
		s := shaper{shape: shape{rate: c.rate}, chance: never}
		const size = 1000
		taken := 0
		for {
			if _, f := s.admit(time.Hour, size); f != carried || taken > 2*c.bytes {
				break
			}
			taken += size
		}
		if most := c.bytes + int(c.rate/8*int64(grace)/int64(time.Second)); taken > most || taken < most-size {
			t.Errorf("%s: it holds %d bytes, want %d", c.reason, taken, c.bytes)
		}
	}
}

// TestShaperProperties sends random traffic over random lines.
func TestShaperProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		sh := shape{rate: MinRate + r.Int64N(1e9), loss: float64(r.IntN(2)) * 0.3}
		s := shaper{shape: sh, chance: r.Float64}
		var now, last, first time.Duration
		sent, offered, losses := 0, 0, 0
		for range 1000 {
			now += time.Duration(r.Int64N(int64(2 * s.sending(800))))
			size := 20 + r.IntN(1480)
			departure, f := s.admit(now, size)
			if f == refused {
				continue
			}
			if departure < now || departure < now-grace+s.sending(size) || departure < last || departure-now > s.patience() {
				t.Fatalf("%+v: a packet of %d bytes at %s leaves at %s, the one before at %s", sh, size, now, departure, last)
			}
			if offered == 0 {
				first = now
			}
			offered++
			sent += size
			last = departure
			if f == lost {
				losses++
			}
		}
		if got := float64(sent) * 8 / (last - first + grace).Seconds(); got > float64(sh.rate)*1.001 {
			t.Errorf("%+v: %g bit/s left", sh, got)
		}
		if share := float64(losses) / float64(offered); share < sh.loss-0.08 || share > sh.loss+0.08 {
			t.Errorf("%+v: %g were lost", sh, share)
		}
	}
}

// TestShaperFillsTheLine offers more than the line takes.
func TestShaperFillsTheLine(t *testing.T) {
	for _, rate := range []int64{20e6, 100e6, 3e9} {
		s := shaper{shape: shape{rate: rate}, chance: never}
		bytes, step := 0, s.sending(1500)/2
		for now := time.Duration(0); now < time.Second; now += step {
			if departure, f := s.admit(now, 1500); f == carried && departure <= time.Second {
				bytes += 1500
			}
		}
		if got := float64(bytes) * 8 / float64(rate); got < 0.99 || got > 1.011 {
			t.Errorf("a line of %d bit/s carries %g of it", rate, got)
		}
	}
}
