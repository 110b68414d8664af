package dns

import (
	"net/netip"
	"sync"
)

// asker is who asks: a tenant, or an address of which it is not known whose it is. They all have a share
// together, of which each address gets a part.
type asker struct {
	tenant string // "" if that is not known
	at     netip.Addr
}

// slots bound what is done at once: for one tenant, for one address that is nobody's, and for all.
type slots struct {
	each, stranger, all int

	mu    sync.Mutex
	total int
	of    map[string]int
	from  map[netip.Addr]int // of those that are nobody's
}

func newSlots(each, stranger, all int) *slots {
	return &slots{each: each, stranger: stranger, all: all, of: map[string]int{}, from: map[netip.Addr]int{}}
}

// take takes a slot for who asks, if there is one; who got it gives it back.
func (s *slots) take(who asker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.all || s.of[who.tenant] >= s.each || who.tenant == "" && s.from[who.at] >= s.stranger {
		return false
	}
	s.total++
	s.of[who.tenant]++
	if who.tenant == "" {
		s.from[who.at]++
	}
	return true
}

func (s *slots) give(who asker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	less(s.of, who.tenant)
	if who.tenant == "" {
		less(s.from, who.at)
	}
}

// less counts one less, and forgets who has none.
func less[K comparable](counts map[K]int, of K) {
	if counts[of]--; counts[of] == 0 {
		delete(counts, of)
	}
}
