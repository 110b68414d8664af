package dns

import "sync"

// slots bound what is done at once: for one tenant, and for all.
type slots struct {
	each, all int

	mu    sync.Mutex
	total int
	of    map[string]int
}

func newSlots(each, all int) *slots { return &slots{each: each, all: all, of: map[string]int{}} }

// take takes a slot for a tenant, if there is one; who got it gives it back.
func (s *slots) take(tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.total >= s.all || s.of[tenant] >= s.each {
		return false
	}
	s.total++
	s.of[tenant]++
	return true
}

func (s *slots) give(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total--
	if s.of[tenant]--; s.of[tenant] == 0 {
		delete(s.of, tenant)
	}
}
