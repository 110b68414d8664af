package agent

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
)

const (
	// talkEvery is how often it is looked how much providers' pods have to say to each other, and
	// whether paths are used.
	talkEvery = 10 * time.Second
	// talkFor is the time that is looked back, talkMuch how much within it makes two providers be
	// named, in bytes of both directions, and talkLittle how much keeps them so.
	talkFor    = time.Minute
	talkMuch   = 1 << 20
	talkLittle = 64 << 10
)

// talk is how much two providers' pods have exchanged lately by way of this cluster. It is pure; the
// zero value has seen nothing.
type talk struct {
	// marks are what was counted at some times, the first one a talkFor ago or at the beginning.
	marks []mark
	named bool
}

// mark is how much was counted until a time.
type mark struct {
	at    time.Time
	bytes uint64
}

// next is what follows from what was counted by now. What was counted before it looked first may be
// of long ago, and says nothing.
func (t talk) next(bytes uint64, now time.Time) talk {
	if n := len(t.marks); n > 0 && bytes < t.marks[n-1].bytes { // it is counted anew
		t = talk{}
	}
	marks := append(slices.Clone(t.marks), mark{now, bytes})
	for len(marks) > 1 && now.Sub(marks[1].at) >= talkFor {
		marks = marks[1:]
	}
	t.marks = marks
	switch lately := t.lately(); {
	case lately > talkMuch:
		t.named = true
	case lately < talkLittle: // what it was named for is longer ago
		t.named = false
	}
	return t
}

// lately is how much was counted within the time that is looked back.
func (t talk) lately() uint64 { return t.marks[len(t.marks)-1].bytes - t.marks[0].bytes }

// talks are those of one provider with others, by the keys of their peerings.
type talks map[string]talk

// next is what follows from what was counted of each. Others are forgotten.
func (t talks) next(counted map[string]uint64, now time.Time) talks {
	all := talks{}
	for other, bytes := range counted {
		all[other] = t[other].next(bytes, now)
	}
	return all
}

// through are those that a report names: of too many the largest.
func (t talks) through() []string {
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(t)), func(other string) bool { return !t[other].named })
	slices.SortStableFunc(keys, func(a, b string) int { return cmp.Compare(t[b].lately(), t[a].lately()) })
	keys = slices.Clip(keys[:min(len(keys), v1alpha1.MaxThrough)])
	slices.Sort(keys)
	return keys
}

// weigh looks how much goes through this cluster from one provider to another, as its gateways here
// see it, and reports whether others are to be named.
func (l *ledger) weigh(now time.Time) (news bool) {
	accounts := l.all()
	maps.DeleteFunc(accounts, func(_ string, a *account) bool { return len(a.passed()) == 0 })
	if len(accounts) > 0 {
		l.look(now)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.through
	l.through = map[string][]string{}
	all := map[string]talks{}
	for key, a := range accounts {
		all[key] = l.talks[key].next(a.passed(), now)
		if names := all[key].through(); len(names) > 0 {
			l.through[key] = names
		}
	}
	l.talks = all
	return !maps.EqualFunc(before, l.through, slices.Equal)
}

// transit is a view of another provider that a gateway's peer reaches through this cluster, and
// the key of that one's peering.
type transit struct {
	view netip.Prefix
	of   string
}

// use is what a path has carried, and when that was more than before.
type use struct {
	packets uint64
	at      time.Time
}

// next is what follows from a count. What was carried before it looked first says nothing of when;
// a count that is less began anew.
func (u use) next(p dataplane.Passed, now time.Time) use {
	packets := p.Sent + p.Received
	if packets > u.packets || packets < u.packets && packets > 0 {
		u.at = now
	}
	u.packets = packets
	return u
}

// uses are those of the paths whose gateways are here.
type uses map[string]use

// next is what follows from what gateways have passed. Others are forgotten.
func (u uses) next(passed []dataplane.Passed, now time.Time) uses {
	all := uses{}
	for _, p := range passed {
		if !isPath(p.Peering) {
			continue
		}
		if before, known := u[p.Peering]; known {
			all[p.Peering] = before.next(p, now)
		} else {
			all[p.Peering] = use{packets: p.Sent + p.Received}
		}
	}
	return all
}

// heed looks what goes through gateways here until ctx ends, and has the Lease say what follows.
func (a *Agent) heed(ctx context.Context) {
	for pause(ctx, talkEvery); ctx.Err() == nil; pause(ctx, talkEvery) {
		if a.ledger.weigh(time.Now()) {
			signal(a.renewal)
		}
		limited, cancel := context.WithTimeout(ctx, collectLimit)
		passed, err := a.plane.Passed(limited)
		cancel()
		if err != nil {
			continue // another time
		}
		a.mu.Lock()
		a.uses = a.uses.next(passed, time.Now())
		a.mu.Unlock()
	}
}

// counted adds to reports what was counted of what went by their tunnels, and of what cannot.
func (a *Agent) counted(reports map[string]v1alpha1.TunnelReport) map[string]v1alpha1.TunnelReport {
	through := a.ledger.named()
	a.mu.Lock()
	defer a.mu.Unlock()
	for key, r := range reports {
		r.Through, r.Unreached = through[key], a.unreached[key]
		if at := a.uses[key].at; !at.IsZero() {
			r.Used = stamp(at.Truncate(time.Minute))
		}
		reports[key] = r
	}
	return reports
}
