package offer

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// remembered is how long a write is remembered: longer than anything waits after it.
const remembered = time.Minute

// pace remembers when something was last written for a request, also after it was
// removed: who makes and takes back all the time causes no more writes than others.
type pace struct {
	mu     sync.Mutex
	last   map[types.NamespacedName]time.Time
	pruned time.Time
}

// at returns the last write, the zero time if there was none lately.
func (p *pace) at(key types.NamespacedName) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[key]
}

// wait returns how long the next write has to wait, 0 if it may be done now.
func (p *pace) wait(key types.NamespacedName, now time.Time) time.Duration {
	left := p.at(key).Add(writeEvery).Sub(now)
	if left > writeEvery { // the clock was set back
		return 0
	}
	return max(0, left)
}

// note remembers a write, and forgets those of more than a minute ago.
func (p *pace) note(key types.NamespacedName, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[types.NamespacedName]time.Time{}
	}
	if age := now.Sub(p.pruned); age >= remembered || age < 0 {
		for k, at := range p.last {
			if now.Sub(at) >= remembered {
				delete(p.last, k)
			}
		}
		p.pruned = now
	}
	p.last[key] = now
}
