package fleet

import (
	"fmt"
	"math"
	"reflect"
	"runtime/debug"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// What is kept of all peers is a third of the memory that Go may use. Of the 450 MiB that the
// manager has by default that is 150 MiB, 20,000 ShadowPods of 7 KiB. The other two thirds are
// for one peer that has filled the third while all others have their parts; for what is being decoded,
// 2 × maxCost; for answers that are not read to their ends, some 5 MiB a peer at worst; and for
// this cluster's own objects.
const (
	partKept    = 3
	defaultKept = 150 << 20 // without a limit
	// fewKept is what a peer may show whatever others do of the kinds of which there are few, and
	// nothing may be left out.
	fewKept = 4 << 20
)

// budget is what the mirrors of all peers keep together. What is free, any peer may fill. When
// nothing is free, those who keep more than their part get no more; everybody else does,
// until the budget is spent twice: so one peer can take no other's part away, and
// the worst that one can do is to fill the budget once while the others have their parts.
type budget struct {
	most int

	mu    sync.Mutex
	kept  int
	peers int
}

func newBudget() *budget {
	limit := debug.SetMemoryLimit(-1)
	if limit == math.MaxInt64 {
		return &budget{most: defaultKept}
	}
	return &budget{most: int(limit / partKept)}
}

// join gives one more peer a part.
func (b *budget) join() *share {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.peers++
	return &share{budget: b, held: map[*unstructured.Unstructured]*holding{}}
}

// share is what the mirrors of one peer keep. An object that two sessions have counts once. A
// share that is nil has no bound.
type share struct {
	budget *budget
	kept   int
	few    int // of that, of kinds of which nothing may be left out
	held   map[*unstructured.Unstructured]*holding
}

// holding is how often an object is kept.
type holding struct {
	times, weight int
	few           bool
}

// leave gives the part back to the other peers.
func (s *share) leave() {
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.budget.peers--
}

// swap keeps an object in place of another, which may be nil, or refuses and keeps that one.
// Of what is kept, spare bytes are about to be dropped.
func (s *share) swap(old, fresh *unstructured.Unstructured, weight, spare int, few bool) error {
	if s == nil {
		return nil
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	if s.held[fresh] == nil {
		more := weight
		if h := s.held[old]; h != nil && h.times == 1 {
			more -= h.weight
		}
		if more > 0 && !s.fits(more, spare, few) {
			return fmt.Errorf("more than %d MiB in all, its part of what is kept of %d providers: %w",
				s.budget.most/max(1, s.budget.peers)>>20, s.budget.peers, ErrTooLarge)
		}
	}
	s.add(fresh, weight, few)
	s.remove(old)
	return nil
}

// fits says whether there will be room without what is spare, and is enough memory until then.
// The caller holds the lock.
func (s *share) fits(more, spare int, few bool) bool {
	b := s.budget
	if b.kept+more > 2*b.most {
		return false
	}
	more -= spare
	return b.kept+more <= b.most || s.kept+more <= b.most/max(1, b.peers) || few && s.few+more <= fewKept
}

// keep keeps one more time what is kept, or was a moment ago.
func (s *share) keep(u *unstructured.Unstructured, weight int, few bool) {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	s.add(u, weight, few)
}

// drop keeps objects no more.
func (s *share) drop(all ...*unstructured.Unstructured) {
	if s == nil {
		return
	}
	s.budget.mu.Lock()
	defer s.budget.mu.Unlock()
	for _, u := range all {
		s.remove(u)
	}
}

func (s *share) add(u *unstructured.Unstructured, weight int, few bool) {
	h := s.held[u]
	if h == nil {
		h = &holding{weight: weight, few: few}
		s.held[u] = h
		s.count(h, weight)
	}
	h.times++
}

func (s *share) remove(u *unstructured.Unstructured) {
	h := s.held[u]
	if h == nil {
		return
	}
	if h.times--; h.times == 0 {
		delete(s.held, u)
		s.count(h, -h.weight)
	}
}

func (s *share) count(h *holding, weight int) {
	s.kept += weight
	s.budget.kept += weight
	if h.few {
		s.few += weight
	}
}

// known is the object that this mirror, or the one before it, has already, or u itself: so
// what did not change is in memory once.
func (m *mirror) known(u *unstructured.Unstructured) *unstructured.Unstructured {
	m.mu.RLock()
	had, before := m.objects[u.GetName()], m.before
	m.mu.RUnlock()
	if equal(had, u) {
		return had
	}
	if before != nil {
		if had = before.get(u.GetName()); equal(had, u) {
			return had
		}
	}
	return u
}

// has says how much the mirror keeps, and whether an object is of that.
func (m *mirror) has(u *unstructured.Unstructured) (int, bool) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.kept, m.objects[u.GetName()] == u
}

// equal says whether an object is as it was.
func equal(had, u *unstructured.Unstructured) bool {
	return had != nil && had.GetResourceVersion() == u.GetResourceVersion() && reflect.DeepEqual(had.Object, u.Object)
}

// of makes what a mirror keeps count for a peer, and says which mirror it takes over from.
func (m *mirror) of(s *share, before *mirror) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.share = s
	if before != nil && before.namespace == m.namespace {
		m.before = before
	}
}

// release has what is kept count no more, when the session is over.
func (m *mirror) release() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.released {
		return
	}
	m.released, m.before = true, nil
	for _, u := range m.objects {
		m.share.drop(u)
	}
}
