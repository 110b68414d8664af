package namespace

import (
	"sync"
	"time"
)

// writeEvery bounds how often is written what a peer can cause: who changes things all
// the time causes no more writes than others.
const writeEvery = 250 * time.Millisecond

// times remembers a time by name. The zero value remembers none.
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
	t.put(name, now)
	return now
}

// note remembers a time in place of an earlier one.
func (t *times) note(name string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.put(name, now)
}

func (t *times) put(name string, now time.Time) {
	if t.at == nil {
		t.at = map[string]time.Time{}
	}
	t.at[name] = now
}

// wait returns how long the next write has to wait after the one noted, 0 if it need
// not.
func (t *times) wait(name string, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := t.at[name].Add(writeEvery).Sub(now)
	if left > writeEvery { // the clock was set back
		return 0
	}
	return max(0, left)
}

// forget forgets a name.
func (t *times) forget(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.at, name)
}
