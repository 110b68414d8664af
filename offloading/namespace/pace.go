package namespace

import (
	"maps"
	"sync"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// writeEvery bounds how often is written what a peer can cause: who changes things all
// the time causes no more writes than others. writeBurst may follow each other at once,
// for a change of one namespace is several writes.
const (
	writeEvery = 250 * time.Millisecond
	writeBurst = 4
)

// answerEvery bounds the same in the long run, when answerBurst writes of the answers of one provider have followed each
// other: who changes its mind all the time is heard, but not each time. answersEarned is how many writes more each
// namespace is good for that home itself asks for, asks for in another way, or not any more.
const (
	answerEvery   = 5 * time.Second
	answerBurst   = 60
	answersEarned = 6
)

// pace spaces out writes, by name. The zero value has seen none.
type pace struct {
	// every and burst are writeEvery and writeBurst if not set.
	every time.Duration
	burst int

	mu sync.Mutex
	// due is when the next write would be, had each waited for the one before.
	due map[string]time.Time
}

// rate is how often, and how many at once.
func (p *pace) rate() (time.Duration, time.Duration) {
	if p.every == 0 {
		return writeEvery, writeBurst
	}
	return p.every, time.Duration(p.burst)
}

// note counts a write.
func (p *pace) note(name string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due == nil {
		p.due = map[string]time.Time{}
	}
	every, burst := p.rate()
	due := p.due[name]
	if due.Before(now) || due.Sub(now) > burst*every { // silence, or the clock was set back
		due = now
	}
	p.due[name] = due.Add(every)
}

// earn takes so many writes back.
func (p *pace) earn(name string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if due, ok := p.due[name]; ok {
		every, _ := p.rate()
		p.due[name] = due.Add(-time.Duration(n) * every)
	}
}

// wait returns how long the next write has to wait, 0 if it need not.
func (p *pace) wait(name string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	every, burst := p.rate()
	free := now.Add((burst - 1) * every) // a write that is due by then is done now
	wait := p.due[name].Sub(free)
	if wait > every { // the clock was set back
		return 0
	}
	return max(0, wait)
}

// forget forgets a name.
func (p *pace) forget(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.due, name)
}

// ration is the pace of what a provider answers to what home asks for, in the long run: by the names of peerings.
type ration struct {
	pace
	asked map[string]map[string]v1alpha1.NamespaceMapping
}

func newRation() *ration {
	return &ration{pace: pace{every: answerEvery, burst: answerBurst}, asked: map[string]map[string]v1alpha1.NamespaceMapping{}}
}

// asks notes which namespaces are asked for, and how. What home changes by that is answered at once.
func (r *ration) asks(name string, entries map[string]v1alpha1.NamespaceMapping) {
	r.mu.Lock()
	before, known := r.asked[name]
	changed := 0
	for namespace, entry := range entries {
		if was, there := before[namespace]; !there || was != entry {
			changed++
		}
	}
	for namespace := range before {
		if _, there := entries[namespace]; !there {
			changed++
		}
	}
	r.asked[name] = maps.Clone(entries)
	r.mu.Unlock()
	if known && changed > 0 {
		r.earn(name, changed*answersEarned)
	}
}

// forget forgets a peering.
func (r *ration) forget(name string) {
	r.pace.forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asked, name)
}

// times remembers since when something is so, by name. The zero value remembers nothing.
type times struct {
	mu sync.Mutex
	at map[string]time.Time
}

// first remembers now unless there is a time already, and returns the one remembered.
func (t *times) first(name string, now time.Time) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, ok := t.at[name]; ok && !at.After(now) {
		return at
	}
	if t.at == nil {
		t.at = map[string]time.Time{}
	}
	t.at[name] = now
	return now
}

// forget forgets a name.
func (t *times) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.at, name)
}
