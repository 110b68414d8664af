package health

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"
)

// ProberOptions is what a Prober needs.
type ProberOptions struct {
	// Peering whose tunnel it is; the label of its metrics.
	Peering string
	// Conn is a socket in the namespace of the tunnel. Run closes it.
	Conn Conn
	// Peer is where the other side's Responder is, inside the tunnel. Answers must come
	// from there.
	Peer netip.AddrPort
	// Kick, if any, is called when probes begin to have no answer, and after two seconds, four,
	// and every eight as long as they have none: somebody may want to force a handshake. One that
	// was answered is no end of it: keys may be agreed on with a process that ends. Whoever does
	// had better leave keys that still work alone, since it is also called where packets just get
	// lost. A call must end soon after its context.
	Kick func(context.Context)
	// Changed, if any, is called when Known or Alive change, and with what they are then:
	// changes while a call lasts are told in one. A call must end soon after its context.
	Changed func(context.Context, Report)
	// Told, if any, is called when the other side's Responder tells another number than
	// before, which is believed as it is. A call must end soon: answers wait for it.
	Told func(number uint64)
	// Heralded, if any, is called when the other side's Responder tells which pods are recent,
	// which is believed as it is. A call must end soon: answers wait for it.
	Heralded func(Recent)
	// Metrics, if any.
	Metrics *Metrics
}

// Prober asks through a tunnel whether it is alive.
type Prober struct {
	options ProberOptions
	session session
	measure measure

	mu    sync.Mutex
	state State
	seq   uint64
	shown liveness // what changes has been signalled for

	// kicks and changes have room for one: there is something to call for.
	kicks, changes chan struct{}
}

// NewProber makes a Prober that Run starts.
func NewProber(o ProberOptions) *Prober {
	p := &Prober{options: o, kicks: make(chan struct{}, 1), changes: make(chan struct{}, 1)}
	_, _ = rand.Read(p.session[:]) // never fails
	return p
}

// Report says what is known now.
func (p *Prober) Report() Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.At(time.Now())
}

// Run probes until the context ends, and returns nil then, or until its socket is closed
// by somebody else. Nothing of it runs any more when it returns.
func (p *Prober) Run(ctx context.Context) error {
	var end func()
	p.measure, end = p.options.Metrics.begin(p.options.Peering, p)
	defer end()
	inner, cancel := context.WithCancelCause(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel(nil)
	parts.Go(func() { <-inner.Done(); _ = p.options.Conn.Close() })
	parts.Go(func() { cancel(p.listen(inner)) })
	parts.Go(func() { p.callKick(inner) })
	parts.Go(func() { p.callChanged(inner) })
	p.ask(inner)
	if ctx.Err() != nil {
		return nil
	}
	return context.Cause(inner)
}

// ask sends probes and watches the time.
func (p *Prober) ask(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	next := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if now := time.Now(); !now.Before(next) {
			p.send()
			// From when it was due, so that five late ones are not five times late.
			if next = next.Add(Interval - mathrand.N(Interval/10)); next.Before(now) {
				next = now.Add(Interval) // it was away for longer
			}
		}
		wait := time.Until(next)
		if due, ok := p.look(); ok {
			wait = min(wait, due)
		}
		timer.Reset(wait)
	}
}

// send sends the next probe. What becomes of it, the answer shows.
func (p *Prober) send() {
	p.mu.Lock()
	p.seq++
	b := message{kind: question, session: p.session, seq: p.seq}.encode()
	p.state.Sent(time.Now(), p.seq)
	p.mu.Unlock()
	p.measure.sent.Inc()
	_ = p.options.Conn.SetWriteDeadline(time.Now().Add(sendWithin))
	_, _ = p.options.Conn.WriteToUDPAddrPort(b[:], p.options.Peer)
}

// look finds out what time alone has changed, and when to look again.
func (p *Prober) look() (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.state.Kick(now) {
		signal(p.kicks)
	}
	p.show()
	return p.state.Next(now)
}

// show signals a change, if there is one.
func (p *Prober) show() {
	if is := (liveness{p.state.known, p.state.alive}); is != p.shown {
		p.shown = is
		signal(p.changes)
	}
}

// liveness is what Changed is called about.
type liveness struct{ known, alive bool }

// listen takes answers, and what is told, until the socket is closed.
func (p *Prober) listen(ctx context.Context) error {
	var number *uint64
	err := receive(ctx, p.options.Conn, largest, func(b []byte, from netip.AddrPort) {
		if len(b) > size {
			to, recent, err := heed(b)
			if err == nil && to == p.session && plain(from) == plain(p.options.Peer) && p.options.Heralded != nil {
				p.options.Heralded(recent)
			}
			return
		}
		m, err := decode(b)
		if err != nil || m.kind == question || m.session != p.session || plain(from) != plain(p.options.Peer) {
			return
		}
		if m.kind == told {
			if p.options.Told != nil && (number == nil || *number != m.seq) {
				number = &m.seq
				p.options.Told(m.seq)
			}
			return
		}
		p.mu.Lock()
		took, ok := p.state.Heard(time.Now(), m.seq)
		p.show()
		p.mu.Unlock()
		if ok {
			p.measure.answered.Inc()
			p.measure.latency.Observe(took.Seconds())
		}
	})
	return fmt.Errorf("listening for answers of peering %s: %w", p.options.Peering, err)
}

func (p *Prober) callKick(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.kicks:
			if p.options.Kick != nil {
				p.options.Kick(ctx)
			}
		}
	}
}

func (p *Prober) callChanged(ctx context.Context) {
	var told liveness
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changes:
		}
		r := p.Report()
		is := liveness{r.Known, r.Alive}
		if is == told { // it changed and changed back meanwhile
			continue
		}
		told = is
		if p.options.Changed != nil {
			p.options.Changed(ctx, r)
		}
	}
}

// signal makes sure that something will be looked at.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it will anyway
	}
}

// receive calls take with each datagram, of at most a size, without keeping any, until the socket is
// closed or the context ends. Other errors pass.
func receive(ctx context.Context, conn Conn, most int, take func(b []byte, from netip.AddrPort)) error {
	b := make([]byte, most+1) // a longer one is cut, and still too long
	for {
		n, from, err := conn.ReadFromUDPAddrPort(b)
		switch {
		case err == nil:
			take(b[:n], from)
		case errors.Is(err, net.ErrClosed):
			return err
		default:
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(Interval):
			}
		}
	}
}

// plain is an address without what depends on who reads it.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}
