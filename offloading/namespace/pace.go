package namespace

import (
	"sync"
	"time"
)

// writeEvery bounds how often is written what a peer can cause: who changes things all
// the time causes no more writes than others. writeBurst may follow each other at once,
// for a change of one namespace is several writes.
const (
	writeEvery = 250 * time.Millisecond
	writeBurst = 4
)

// pace spaces out writes, by name. The zero value has seen none.
type pace struct {
	mu sync.Mutex
	// due is when the next write would be, had each waited for the one before.
	due map[string]time.Time
}

// note counts a write.
func (p *pace) note(name string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.due == nil {
		p.due = map[string]time.Time{}
	}
	due := p.due[name]
	if due.Before(now) || due.Sub(now) > writeBurst*writeEvery { // silence, or the clock was set back
		due = now
	}
	p.due[name] = due.Add(writeEvery)
}

// wait returns how long the next write has to wait, 0 if it need not.
func (p *pace) wait(name string, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	free := now.Add((writeBurst - 1) * writeEvery) // a write that is due by then is done now
	wait := p.due[name].Sub(free)
	if wait > writeEvery { // the clock was set back
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
