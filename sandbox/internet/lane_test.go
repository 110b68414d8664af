package internet

import (
	"bytes"
	"testing"
	"time"
)

// arrivals moves a clock on and notes when each packet arrives.
func arrivals(t *testing.T, l *lane, from, to time.Duration) (at []time.Duration, first []byte) {
	t.Helper()
	for now := from; now <= to; {
		p, wait := l.pop(now)
		switch {
		case p != nil:
			at, first = append(at, now), append(first, p[0])
			l.giveBack(p)
		case wait < 0:
			return at, first
		case wait == 0:
			t.Fatal("a lane that says to wait for no time never ends")
		default:
			now += wait
		}
	}
	return at, first
}

func filled(sh shape, packets ...byte) *lane {
	l := newLane(never)
	l.reshape(0, sh)
	for _, p := range packets {
		l.push(0, bytes.Repeat([]byte{p}, 1000))
	}
	return l
}

func TestLane(t *testing.T) {
	const ms = time.Millisecond
	slow := shape{rate: 8e5, delay: 50 * ms} // 10 ms for each packet
	for _, c := range []struct {
		reason string
		change func(*lane)
		want   []time.Duration
	}{
		{"rate, then delay", func(*lane) {}, []time.Duration{60 * ms, 70 * ms, 80 * ms}},
		{"less delay holds for what is under way", func(l *lane) { l.reshape(15*ms, shape{rate: 8e5}) }, []time.Duration{15 * ms, 25 * ms, 35 * ms}},
		{"more delay too", func(l *lane) { l.reshape(15*ms, shape{rate: 8e5, delay: 100 * ms}) }, []time.Duration{110 * ms, 125 * ms, 135 * ms}},
		{"a faster line sends what waits at once", func(l *lane) { l.reshape(15*ms, shape{rate: 8e6, delay: 50 * ms}) }, []time.Duration{60 * ms, 66 * ms, 67 * ms}},
		{"a slower line takes longer", func(l *lane) { l.reshape(15*ms, shape{rate: 4e5, delay: 50 * ms}) }, []time.Duration{60 * ms, 85 * ms, 105 * ms}},
		{"no shape lets all go", func(l *lane) { l.reshape(15*ms, shape{}) }, []time.Duration{15 * ms, 15 * ms, 15 * ms}},
		{"loss begins with the next packet", func(l *lane) { l.reshape(15*ms, shape{rate: 8e5, delay: 50 * ms, loss: 1}) }, []time.Duration{60 * ms, 75 * ms, 85 * ms}},
	} {
		l := filled(slow, 'a', 'b', 'c')
		c.change(l)
		at, order := arrivals(t, l, 15*ms, time.Second)
		if string(order) != "abc" || len(at) != 3 || at[0] != c.want[0] || at[1] != c.want[1] || at[2] != c.want[2] {
			t.Errorf("%s: %s arrive at %v, want %v", c.reason, order, at, c.want)
		}
	}
}

func TestLaneIsBounded(t *testing.T) {
	l := newLane(never)
	l.reshape(0, shape{delay: time.Second})
	for range laneLimit + 10 {
		l.push(0, []byte{1})
	}
	if got := l.drops.Load(); got != 10 {
		t.Errorf("%d drops", got)
	}
	at, _ := arrivals(t, l, time.Second, 2*time.Second)
	if len(at) != laneLimit || !l.empty() || len(l.free) != spare {
		t.Errorf("%d arrive, empty: %v, %d buffers are kept", len(at), l.empty(), len(l.free))
	}
}

func TestLaneReusesBuffers(t *testing.T) {
	l := newLane(never)
	l.reshape(0, shape{delay: time.Millisecond})
	packet := make([]byte, 1500)
	now := time.Duration(0)
	allocations := testing.AllocsPerRun(5000, func() {
		now += time.Microsecond
		l.push(now, packet)
		if p, _ := l.pop(now); p != nil {
			l.giveBack(p)
		}
	})
	if allocations > 0.3 {
		t.Errorf("%.2f allocations for each packet", allocations)
	}
}

func TestLaneTakesLargePackets(t *testing.T) {
	l := filled(shape{})
	l.push(0, make([]byte, biggestPacket))
	if p, _ := l.pop(0); len(p) != biggestPacket {
		t.Errorf("%d bytes arrive", len(p))
	}
}

func TestLaneCopiesPackets(t *testing.T) {
	l := newLane(never)
	buffer := []byte("first")
	l.push(0, buffer)
	copy(buffer, "other")
	if p, _ := l.pop(0); string(p) != "first" {
		t.Errorf("%q arrives", p)
	}
}
