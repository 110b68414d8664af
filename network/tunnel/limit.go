package tunnel

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"golang.zx2c4.com/wireguard/device"
)

// How many questions for a handshake, with the seal of who knows our key, are taken a second, and
// how many at once. A peer has one now and then, and at most two a second when it seeks us. All at
// once are fewer than the library takes for a flood, for which it asks for cookies.
const (
	// Of each address, of which the last sourcesMost are remembered.
	sourceRate, sourceBurst = 5, 10
	sourcesMost             = 1024
	// Of all addresses together, and beside that of those where the peer is or may be.
	questionsRate, questionsBurst = 30, 60
	expectedRate, expectedBurst   = 20, 40
	// questionsMost is how many questions are remembered that were taken.
	questionsMost = 1024
)

// seal is what only who knows our key puts on a question, about all that is in it.
type seal [16]byte

// sealOf is that of a whole question, which ends with it and with a cookie of the same length.
func sealOf(question []byte) seal { return seal(question[device.MessageInitiationSize-32:]) }

// limits say which questions for a handshake the library is to work for: it does so for
// milliseconds, which others' packets would wait for. The seal says that somebody knew our key
// once, and neither who nor when: what was seen on the wire can be sent again from anywhere.
type limits struct {
	mu sync.Mutex
	// all and expected are made with the first question.
	all, expected *rate.Limiter
	sources       recent[netip.Addr, *rate.Limiter]
	taken         recent[seal, struct{}]
	// places are where the peer may be, spoken to where it is: sources, both.
	places   []netip.Addr
	spokenTo netip.Addr
}

// source is what is limited as one: an address of IPv4, a network of IPv6.
func source(a netip.Addr) netip.Addr {
	if a = a.Unmap().WithZone(""); a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

// expect takes where the peer may be.
func (l *limits) expect(places []netip.AddrPort) {
	sources := make([]netip.Addr, len(places))
	for i, p := range places {
		sources[i] = source(p.Addr())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.places = sources
}

// spoke takes where the peer is by what it said last in a session.
func (l *limits) spoke(at netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.spokenTo = source(at)
}

// copied reports whether a question is one that was taken before. The library would find the
// same, after half of its work.
func (l *limits) copied(s seal) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, is := l.taken.of[s]
	return is
}

// take reports whether a question is taken.
func (l *limits) take(s seal, from netip.Addr, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all, l.expected = rate.NewLimiter(questionsRate, questionsBurst), rate.NewLimiter(expectedRate, expectedBurst)
	}
	from = source(from)
	own, is := l.sources.of[from]
	if !is {
		own = rate.NewLimiter(sourceRate, sourceBurst)
		l.sources.add(from, own, sourcesMost)
	}
	if !own.AllowN(now, 1) {
		return false
	}
	known := from.IsValid() && (from == l.spokenTo || slices.Contains(l.places, from))
	if !(known && l.expected.AllowN(now, 1)) && !l.all.AllowN(now, 1) {
		return false
	}
	l.taken.add(s, struct{}{}, questionsMost)
	return true
}

// recent is a map of the last that were added, the oldest of which is forgotten.
type recent[K comparable, V any] struct {
	of    map[K]V
	order []K
	next  int
}

// add adds what is not there yet, as one of at most so many, which are always as many.
func (r *recent[K, V]) add(k K, v V, most int) {
	if _, is := r.of[k]; is {
		return
	}
	if r.of == nil {
		r.of = map[K]V{}
	}
	if len(r.order) < most {
		r.order = append(r.order, k)
	} else {
		delete(r.of, r.order[r.next])
		r.order[r.next] = k
		r.next = (r.next + 1) % most
	}
	r.of[k] = v
}
