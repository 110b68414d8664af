package tunnel

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

func TestProcessors(t *testing.T) {
	calm := func(used float64, times int) []float64 { return slices.Repeat([]float64{used}, times) }
	cases := []struct {
		reason    string
		now, most int
		used      []float64
		want      int
	}{
		{"little work needs one", 1, 8, calm(0.5, 100), 1},
		{"much work has more at once", 1, 8, []float64{0.7}, 2},
		{"and more again", 1, 8, []float64{0.9, 1.9}, 4},
		{"but no more than there are", 1, 3, []float64{1, 2, 3, 3}, 3},
		{"one is all there is", 1, 1, calm(1, 5), 1},
		{"what is over is left when it was for a while", 4, 8, calm(0.9, calmLooks), 2},
		{"and not before", 4, 8, calm(0.9, calmLooks-1), 4},
		{"a moment of work begins the while anew", 4, 8, slices.Concat(calm(0.9, calmLooks-1), []float64{1.5}, calm(0.9, calmLooks-1)), 4},
		{"all is left in steps", 8, 8, calm(0.01, 3*calmLooks), 1},
		{"what made it two keeps it two", 1, 8, append([]float64{0.61}, calm(0.61, 100)...), 2},
	}
	for _, c := range cases {
		p := processors{now: c.now, most: c.most}
		changes := 0
		for _, used := range c.used {
			if p.look(used) {
				changes++
			}
		}
		if p.now != c.want || (p.now != c.now) != (changes > 0) {
			t.Errorf("%s: %d processors after %d changes, want %d", c.reason, p.now, changes, c.want)
		}
	}
}

// TestThrifty has this process be said to work and to rest, and then left alone.
func TestThrifty(t *testing.T) {
	const most = 2
	was := runtime.GOMAXPROCS(most)
	defer runtime.GOMAXPROCS(was)
	ctx, end := context.WithCancel(t.Context())
	over := make(chan struct{})
	var busy atomic.Bool
	var sum time.Duration
	last := time.Now()
	go func() {
		defer close(over)
		thrifty(ctx, func() time.Duration {
			now := time.Now()
			if busy.Load() {
				sum += now.Sub(last)
			}
			last = now
			return sum
		})
	}()
	for _, work := range []bool{false, true, false} {
		busy.Store(work)
		want := map[bool]int{false: 1, true: most}[work]
		await(t, fmt.Sprintf("busy %t, Go runs on %d processors", work, want), patience, func() bool { return runtime.GOMAXPROCS(0) == want })
	}
	end()
	<-over
	if n := runtime.GOMAXPROCS(0); n != most {
		t.Errorf("left alone Go runs on %d processors, want %d as before", n, most)
	}
}

// TestSpent holds that work is counted, and waiting is not.
func TestSpent(t *testing.T) {
	const long = 50 * time.Millisecond
	await(t, "waiting is not counted", patience, func() bool { // what other tests have left may work meanwhile
		began := spent()
		wait(long)
		return spent()-began < long/2
	})
	began := spent()
	await(t, "work is counted", patience, func() bool {
		for end := time.Now().Add(time.Millisecond); time.Now().Before(end); {
		}
		return spent()-began > long
	})
}
