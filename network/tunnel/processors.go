package tunnel

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A packet passes from goroutine to goroutine in the library, three of them on its way in or out. With processors to
// spare the runtime wakes a thread for each, and what wakes a processor that sleeps takes longer than
// all that is done with a packet: a small request through two tunnels takes 42 µs of work, and 140 µs where there
// are two processors to do it on. So there are no more of them than the work needs.

const (
	// lookEvery is how often is looked at what the process has used.
	lookEvery = 100 * time.Millisecond
	// more is how much of its processors it has to use to get twice as many, and fewer how much less than that, for
	// as many looks as calmLooks, to be left half of them. Half of them are then used less than more says.
	more, fewer = 0.6, 0.25
	calmLooks   = 20
)

// processors are how many Go runs on, at most most.
type processors struct{ now, most, calm int }

// look takes how many processors the process has kept busy, and returns whether to have more or fewer.
func (p *processors) look(used float64) (changed bool) {
	was := p.now
	if p.calm++; used >= fewer*float64(p.now) {
		p.calm = 0
	}
	switch {
	case used > more*float64(p.now):
		p.now = min(2*p.now, p.most)
	case p.calm >= calmLooks:
		p.now, p.calm = max(1, p.now/2), 0
	}
	return p.now != was
}

// Thrifty has this process run Go on as few processors as its work needs, until ctx ends, and on no more than it
// does when this is called; then it gives all of these back. It is for a process whose work is tunnels in userspace: others gain
// nothing, and lose some of what they do beside each other until more is noticed, a tenth of a second later.
func Thrifty(ctx context.Context) { thrifty(ctx, spent) }

// thrifty is Thrifty by what spent says of how long this process has kept processors busy.
func thrifty(ctx context.Context, spent func() time.Duration) {
	p := processors{now: 1, most: runtime.GOMAXPROCS(0)}
	runtime.GOMAXPROCS(p.now)
	defer runtime.GOMAXPROCS(p.most)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	worked, at := spent(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now, sum := time.Now(), spent()
		if p.look((sum - worked).Seconds() / now.Sub(at).Seconds()) {
			runtime.GOMAXPROCS(p.now)
		}
		worked, at = sum, now
	}
}

// spent is how long this process has kept processors busy since it began.
func spent() time.Duration {
	var all unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &all) // fails for a wrong argument alone
	return time.Duration(all.Utime.Nano() + all.Stime.Nano())
}
