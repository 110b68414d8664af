package fleet

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// EventBurst is how many events one provider may cause at once, and EventRate how many a second.
const EventBurst, EventRate = 100, 1

// Budget bounds the events that each provider causes.
type Budget struct {
	mu       sync.Mutex
	peerings map[string]*rate.Limiter
}

// NewBudget makes a Budget of which nothing is taken.
func NewBudget() *Budget { return &Budget{peerings: map[string]*rate.Limiter{}} }

// Take says whether a peering's provider may cause another event now.
func (b *Budget) Take(peering string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.peerings[peering] == nil {
		b.peerings[peering] = rate.NewLimiter(EventRate, EventBurst)
	}
	return b.peerings[peering].AllowN(now, 1)
}

// Forget drops a peering that is gone.
func (b *Budget) Forget(peering string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.peerings, peering)
}
