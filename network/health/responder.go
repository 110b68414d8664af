package health

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// How many questions are answered: of one address four times what a Prober asks, and of
// so many addresses at a time.
const (
	perSecond = 10
	burst     = 20
	sources   = 64
)

// ResponderOptions is what a Responder needs.
type ResponderOptions struct {
	// Peering whose tunnel it is; the label of its metrics.
	Peering string
	// Conn is a socket in the namespace of the tunnel, at the very address that the other
	// side asks: from another one the answer would not count. Run closes it.
	Conn Conn
	// From are the addresses whose questions are answered; all if there is none.
	From []netip.Prefix
	// Metrics, if any.
	Metrics *Metrics
}

// Responder answers the other side's Prober, and tells it a number.
type Responder struct {
	options ResponderOptions
	limits  map[netip.Addr]*rate.Limiter

	mu     sync.Mutex
	number *uint64
	recent Recent
	last   asker
	// told is with how many answers in a row the number was due to the last one who asked.
	told int
	// upTo is the version up to which that one was told of pods, and marks the same before each of its
	// last answers.
	upTo  uint64
	marks [heraldedAgain]uint64
	// answers is how many it had since all that is recent was due to it.
	answers int
}

// Who asks is told a number with its first answers, and then with one of so many. Who lost all of the
// first has it two seconds after its packets arrive again. What is recent is told again with two answers, as it
// is larger and costs one write more where it is lost.
const (
	toldFirst     = deadAfter + 1
	toldThen      = 4
	heraldedAgain = 2
)

// asker is who asked, as far as it can be told something.
type asker struct {
	at      netip.AddrPort
	session session
}

// NewResponder makes a Responder that Run starts.
func NewResponder(o ResponderOptions) *Responder {
	return &Responder{options: o, limits: map[netip.Addr]*rate.Limiter{}}
}

// Run answers until the context ends, and returns nil then, or until its socket is closed
// by somebody else. Nothing of it runs any more when it returns.
func (r *Responder) Run(ctx context.Context) error {
	questions, ended := r.options.Metrics.asked(r.options.Peering)
	defer ended()
	inner, cancel := context.WithCancel(ctx)
	var closing sync.WaitGroup
	defer closing.Wait()
	defer cancel()
	closing.Go(func() { <-inner.Done(); _ = r.options.Conn.Close() })
	conn := r.options.Conn
	err := receive(inner, conn, size, func(b []byte, from netip.AddrPort) {
		now := time.Now()
		out, result := r.answer(now, b, from)
		if result == answered {
			// First, so that who is answered has been told.
			r.meet(asker{from, session(out[8:24])})
			_ = conn.SetWriteDeadline(now.Add(sendWithin))
			if _, err := conn.WriteToUDPAddrPort(out[:], from); err != nil {
				result = failed
			}
		}
		questions[result].Inc()
	})
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("listening for questions of peering %s: %w", r.options.Peering, err)
}

// Tell has a number told to who asks: at once to the last one who did, if it is another one
// than before, with its next answers, and now and then. What is new of what is recent up to that number
// goes at once too, and again with the next two answers. All of it is lost as any datagram may be, and the
// number comes again.
func (r *Responder) Tell(number uint64, recent Recent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	recent.UpTo = number
	same := r.number != nil && *r.number == number
	if same && recent.After == r.recent.After && slices.Equal(recent.Pods, r.recent.Pods) {
		return
	}
	r.recent = recent
	if !same {
		r.number, r.told = &number, 0
		r.tell()
	}
	if number < r.upTo { // it begins anew
		r.begin()
	}
	r.herald(recent.parts(r.upTo))
}

// begin has all that is recent told with the next answers. The caller holds the lock.
func (r *Responder) begin() { r.upTo, r.marks, r.answers = 0, [heraldedAgain]uint64{}, 0 }

// meet remembers who asked and was answered, and tells it if that is due.
func (r *Responder) meet(who asker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if who != r.last {
		r.last, r.told = who, 0
		r.begin()
	}
	if r.told++; r.told <= toldFirst || r.told%toldThen == 0 {
		r.tell()
	}
	if r.number == nil {
		return
	}
	again := r.recent.parts(r.marks[0])
	if len(again) == 0 && r.answers < heraldedAgain { // there is somebody who tells
		again = []Recent{{After: r.recent.UpTo, UpTo: r.recent.UpTo}}
	}
	r.answers++
	r.herald(again)
	copy(r.marks[:], r.marks[1:])
	r.marks[heraldedAgain-1] = r.upTo
}

// herald tells of pods to who asked last. The caller holds the lock.
func (r *Responder) herald(all []Recent) {
	if !r.last.at.IsValid() {
		return
	}
	for _, part := range all {
		_ = r.options.Conn.SetWriteDeadline(time.Now().Add(sendWithin))
		_, _ = r.options.Conn.WriteToUDPAddrPort(herald(r.last.session, part), r.last.at)
		r.upTo = max(r.upTo, part.UpTo)
	}
}

// tell tells the number to who asked last. The caller holds the lock.
func (r *Responder) tell() {
	if r.number == nil || !r.last.at.IsValid() {
		return
	}
	b := message{told, r.last.session, *r.number}.encode()
	_ = r.options.Conn.SetWriteDeadline(time.Now().Add(sendWithin))
	_, _ = r.options.Conn.WriteToUDPAddrPort(b[:], r.last.at)
}

// result is what became of a question.
type result int

const (
	answered  result = iota
	malformed        // no question of a version we know
	stranger         // from an address that we do not answer
	limited          // too many
	failed           // could not be sent
)

// resultNames are the results as metrics say them.
var resultNames = [...]string{answered: "answered", malformed: "malformed", stranger: "stranger", limited: "limited", failed: "failed"}

// answer decides about one datagram.
func (r *Responder) answer(now time.Time, b []byte, from netip.AddrPort) (out [size]byte, what result) {
	m, err := decode(b)
	if err != nil || m.kind != question {
		return out, malformed
	}
	source := plain(from).Addr()
	known := slices.ContainsFunc(r.options.From, func(p netip.Prefix) bool { return p.Contains(source) })
	if len(r.options.From) > 0 && !known {
		return out, stranger
	}
	if !r.allow(now, source) {
		return out, limited
	}
	m.kind = answer
	return m.encode(), answered
}

// allow counts a question of an address against its limit. When there are too many
// addresses, those that have been quiet make room, and new ones wait until one is: who
// asks steadily keeps being answered, however many others there are.
func (r *Responder) allow(now time.Time, source netip.Addr) bool {
	l := r.limits[source]
	if l == nil {
		if len(r.limits) >= sources {
			for a, other := range r.limits {
				if other.TokensAt(now) >= burst {
					delete(r.limits, a)
				}
			}
		}
		if len(r.limits) >= sources {
			return false
		}
		l = rate.NewLimiter(perSecond, burst)
		r.limits[source] = l
	}
	return l.AllowN(now, 1)
}
