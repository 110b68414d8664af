package auth

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
)

// attempts limits how often each invitation is tried: whoever has one could have this cluster work for it
// without end.
type attempts struct {
	mu    sync.Mutex
	paces map[types.UID]*rate.Limiter
}

// allow says whether an invitation may be tried once more now.
func (a *attempts) allow(invitation types.UID, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for uid, pace := range a.paces {
		if pace.TokensAt(now) >= attemptsAtOnce {
			delete(a.paces, uid) // as if it had never been tried
		}
	}
	if a.paces == nil {
		a.paces = map[types.UID]*rate.Limiter{}
	}
	if a.paces[invitation] == nil {
		a.paces[invitation] = rate.NewLimiter(attemptsPerSecond, attemptsAtOnce)
	}
	return a.paces[invitation].AllowN(now, 1)
}
