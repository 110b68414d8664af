package internet

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func within(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	t.Logf("%s: %.4g, stated %.4g", what, got, want)
	if got < want*(1-share) || got > want*(1+share) {
		t.Errorf("%s is %.4g, not within %.0f %% of %.4g", what, got, share*100, want)
	}
}

func TestWAN(t *testing.T) {
	w := newWorld(t)
	w.milan.echo(7)
	t.Run("delay", func(t *testing.T) { testDelay(t, w) })
	t.Run("loss", func(t *testing.T) { testLoss(t, w) })
	t.Run("rate", func(t *testing.T) { testRate(t, w) })
	t.Run("rate on busy cores", func(t *testing.T) { testBusy(t, w) })
	t.Run("live change", func(t *testing.T) { testLiveChange(t, w) })
}

// testDelay looks at the quickest of a few: nothing comes too early, and what else this
// machine runs at the moment is not the relay's doing.
func testDelay(t *testing.T, w *world) {
	w.set(Link{A: "milan", B: "rome", Delay: 50 * time.Millisecond})
	for _, to := range milanAt {
		quickest := patience
		for try := 0; try < 11 || try < 100 && quickest > 120*time.Millisecond; try++ {
			rtt, err := w.rome.ping(netip.AddrPort{}, at(to, 7), patience)
			if err != nil {
				t.Fatal(err)
			}
			quickest = min(quickest, rtt)
		}
		within(t, "round trip in ms", quickest.Seconds()*1000, 100, 0.2)
	}
}

func testLoss(t *testing.T, w *world) {
	const count = 8000
	for port, c := range []struct{ from, to *namespace }{{w.rome, w.milan}, {w.milan, w.rome}} {
		to := milanAt[0]
		if c.to == w.rome {
			to = romeAt[0]
		}
		got := c.to.receive(100 + port)
		var loss float64
		for try := 0; try == 0 || try < 5 && (loss < 0.08 || loss > 0.12); try++ { // the device may lose more while the relay waits for a core
			before := got.packets.Load()
			w.set(Link{A: "milan", B: "rome", Loss: 0.1})
			c.from.send(at(to, 100+port), 1, count, 200, 10)
			w.set(Link{A: "milan", B: "rome"}) // delivers the rest
			end := count + 1 + try
			c.from.send(at(to, 100+port), end, end, 200, 1)
			w.await("the last packet arrives", func() bool { return got.last.Load() == int64(end) })
			loss = 1 - float64(got.packets.Load()-before-1)/count
		}
		within(t, "loss", loss, 0.1, 0.2)
	}
}

func testRate(t *testing.T, w *world) {
	for i, rate := range []float64{20, 100} {
		total := w.milan.sink(200 + i)
		stop := w.rome.pour(at(milanAt[0], 200+i))
		carries(t, w, "TCP in Mbit/s", total, Link{A: "milan", B: "rome", Rate: int64(rate * 1e6)})
		stop()
	}
	// Twice what the line takes, without a sender that adapts.
	got := w.milan.receive(210)
	var enough atomic.Bool
	var sending sync.WaitGroup
	sending.Go(func() {
		for !enough.Load() {
			w.rome.send(at(milanAt[1], 210), 1, 1000, 1000, 5)
		}
	})
	carries(t, w, "UDP in Mbit/s", &got.bytes, Link{A: "milan", B: "rome", Rate: 20e6})
	enough.Store(true)
	sending.Wait()
}

func testBusy(t *testing.T, w *world) {
	for range runtime.NumCPU() {
		play(t, "busy", 0)
	}
	total := w.milan.sink(220)
	stop := w.rome.pour(at(milanAt[0], 220))
	defer stop()
	carries(t, w, "TCP in Mbit/s", total, Link{A: "milan", B: "rome", Rate: 100e6, Delay: 5 * time.Millisecond})
}

// carries measures what arrives until one second has the rate of the link, ten times at
// most: a sender or a reader that this machine leaves waiting makes it less, and more when
// it goes on, and that is not the relay's doing. Nor is it that a machine is too busy for the
// rate: the same link without one says so.
func carries(t *testing.T, w *world, what string, total *atomic.Int64, link Link) {
	t.Helper()
	rate := float64(link.Rate) / 1e6
	free := link
	free.Rate, free.Delay = 0, max(link.Delay, time.Millisecond)
	var got float64
	for range 10 {
		w.set(link)
		if got = megabits(total, time.Second, time.Second); got > 0.8*rate && got < 1.2*rate {
			break
		}
		w.set(free)
		if most := megabits(total, time.Second, time.Second); got < 1.2*rate && got > 0.4*most && most < 1.2*rate {
			t.Logf("%s: %.4g of %.4g, and %.4g without a rate: the machine is too busy for more", what, got, rate, most)
			return
		}
	}
	within(t, what, got, rate, 0.2)
}

// testLiveChange sends through every kind of change and misses next to no packet:
// datagrams carry no promise, and one may be in the device's queue when it goes.
func testLiveChange(t *testing.T, w *world) {
	w.set()
	got := w.milan.receive(300)
	const count = 4000
	var sending sync.WaitGroup
	sending.Go(func() { w.rome.send(at(milanAt[0], 300), 1, count, 100, 1) })
	next := func(n int64) {
		w.await("packets arrive", func() bool { return got.packets.Load() >= n })
	}
	next(200)
	w.set(Link{A: "milan", B: "rome", Delay: 30 * time.Millisecond})
	index := w.internet.link("w1-2").Attrs().Index
	next(800)
	w.set(Link{A: "milan", B: "rome", Delay: 5 * time.Millisecond, Rate: 10e6})
	next(1400)
	w.set(Link{A: "milan", B: "rome", Delay: 60 * time.Millisecond, Rate: 50e6}, Link{A: "milan", B: "oslo", Loss: 1})
	next(2000)
	if now := w.internet.link("w1-2").Attrs().Index; now != index {
		t.Errorf("the WAN device was made anew: index %d, then %d", index, now)
	}
	w.set()
	sending.Wait()
	w.await("the last packet arrives", func() bool { return got.last.Load() == count })
	if lost := count - got.packets.Load(); lost > count/1000 {
		t.Errorf("%d of %d packets were lost by changes, more than one in a thousand", lost, count)
	}
}
