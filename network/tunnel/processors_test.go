package tunnel

import (
	"context"
	"runtime"
	"slices"
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

// TestThrifty has this process work, rest and be left alone.
func TestThrifty(t *testing.T) {
	const most = 2
	was := runtime.GOMAXPROCS(most)
	defer runtime.GOMAXPROCS(was)
	ctx, end := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); Thrifty(ctx) }()
	becomes := func(what string, want func(n int) bool, work bool) {
		t.Helper()
		for until := time.Now().Add(patience); !want(runtime.GOMAXPROCS(0)); {
			if time.Now().After(until) {
				t.Fatalf("%s: Go runs on %d of %d processors", what, runtime.GOMAXPROCS(0), most)
			}
			if !work {
				time.Sleep(lookEvery / 10)
			}
		}
	}
	becomes("at rest", func(n int) bool { return n == 1 }, false)
	becomes("at work", func(n int) bool { return n > 1 }, true)
	becomes("at rest again", func(n int) bool { return n == 1 }, false)
	end()
	<-over
	if n := runtime.GOMAXPROCS(0); n != most {
		t.Errorf("left alone Go runs on %d processors, want %d as before", n, most)
	}
}
