// Package tunnel makes a WireGuard device between the gateways of two clusters: its keys,
// its socket in the host's network namespace, its network device in the gateway's, and
// where the peer is. It knows one peer, whom it lets say anything: addresses, routes and
// what may pass are the data plane's. It uses the kernel's WireGuard where there is one and
// else a WireGuard in this process; both look the same from outside.
//
// A secret leaves this package only by Secret.Reveal.
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Options say where a device is made.
type Options struct {
	// Namespace is the network namespace of the gateway. It stays the caller's, and open
	// as long as the device is.
	Namespace *os.File
	// Host is the network namespace of the socket; nil is that of this process.
	Host *os.File
	// TUN is a device that File of an earlier Device gave out, in this process or another
	// that has ended. It goes on with its addresses and routes. It stays the caller's.
	TUN *os.File
	// Last is where that earlier Device had the peer: Stats.Endpoint. A device without
	// Config.Endpoints could not ask it for new keys otherwise.
	Last netip.AddrPort
	// Userspace keeps to WireGuard in this process.
	Userspace bool
	// Sharing is what the tunnels of a node have in common, so that one of them does not have others wait for
	// processors; nil for one that does not share. The kernel's WireGuard shares nothing by it.
	Sharing *Sharing
	// Resolve finds addresses of names; nil is as this process does it.
	Resolve Resolver
	// Refuse says why an address that a name leads to is not called, "" if it may be. It is asked whenever somebody
	// is to be called, and may say something else each time; nil refuses none.
	Refuse func(netip.Addr) (why string)
	// Log tells of names that cannot be resolved, and on its second level what
	// WireGuard itself says.
	Log logr.Logger
	// poke has the device look anew.
	poke func()
}

// Stats is what a device did and believes.
type Stats struct {
	// Kernel says that it is the kernel's WireGuard.
	Kernel bool
	// Handshake is when the last one was completed, by this node's clock; zero if never.
	Handshake time.Time
	// Received and Sent are bytes on the wire since the device was made, or the peer renewed.
	Received, Sent uint64
	// Dropped is how many packets the tunnel's sockets have not taken since they were opened: what looks like
	// data and is of no session, and what came faster than it was read. Of the kernel's WireGuard it is not known.
	Dropped uint64
	// Rested is for how long, since the device was made anew, the tunnel has let others that share this node's processors
	// go first, both directions together.
	Rested time.Duration
	// Endpoint is where the peer was heard last, or before that where it is sought.
	Endpoint netip.AddrPort
	// Listed says that this is one of Config.Endpoints, where others than this device may find
	// the peer as well.
	Listed bool
	// Peer is the key of the other side that is in use: Config.Peer or Config.NextPeer.
	Peer PublicKey
	// ListenPort is the UDP port.
	ListenPort uint16
	// Answers is how many answers to questions for a handshake have come, also those that came too late. Of the
	// kernel's WireGuard it is not known.
	Answers uint64
}

// engine is a WireGuard. Its methods are called one at a time.
type engine interface {
	// set makes everything as wanted but the endpoint, by difference.
	set(Config) error
	// stats also finishes the change to another key of the peer that was seen to be in use.
	stats() (Stats, error)
	// try asks for a handshake at each of some addresses, at most width, and has to
	// leave what the device believes of the peer's place as it is while it can. Rounds
	// are counted from 1, since the last handshake or since one is wanted.
	try(at []netip.AddrPort, round int) error
	width() int
	// expect says where the peer may be, whose handshakes come before strangers'. The
	// kernel has means of its own against these.
	expect([]netip.AddrPort)
	// watch is how soon stats has to be called again, 0 if it need not.
	watch() time.Duration
	// file is the TUN device, nil if there is none.
	file() *os.File
	// close removes what it made.
	close() error
}

// Device is a WireGuard device with one peer.
type Device struct {
	options Options
	cancel  context.CancelFunc
	ended   chan struct{}
	wake    chan struct{} // one place: something changed

	mu        sync.Mutex
	engine    engine
	config    Config
	state     state
	targets   []target
	resolving bool
	closed    bool
	failed    map[string]error // why names have no addresses
	problems  []string
	// place is where the engine has the peer, and leave says that it may not be called there any more.
	place netip.AddrPort
	leave bool
}

// New makes a device that does nothing until Set. Close ends it.
func New(o Options) (*Device, error) {
	if o.Namespace == nil {
		return nil, errors.New("making a tunnel: no namespace for its device")
	}
	if o.Resolve == nil {
		o.Resolve = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if o.Refuse == nil {
		o.Refuse = func(netip.Addr) string { return "" }
	}
	wake := make(chan struct{}, 1)
	o.poke = func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
	e, err := newEngine(o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &Device{
		options: o, engine: e, cancel: cancel,
		ended: make(chan struct{}), wake: wake, failed: map[string]error{},
	}
	d.state = state{Width: e.width(), Learnt: o.Last}
	go d.run(ctx)
	return d, nil
}

// newEngine prefers the kernel. A TUN device that is to go on is no business of it.
func newEngine(o Options) (engine, error) {
	if !o.Userspace && o.TUN == nil {
		has, err := kernelHas(o.Namespace)
		if err != nil {
			return nil, fmt.Errorf("asking the kernel for WireGuard: %w", err)
		}
		if has {
			return newKernel(o)
		}
	}
	return newUserspace(o)
}

// Set makes the device what config says, and changes nothing that is so already. It also
// makes anew what was removed or changed from outside. It does not wait for the peer,
// nor for names.
func (d *Device) Set(config Config) error {
	if err := config.validate(); err != nil {
		return fmt.Errorf("setting tunnel %s: %w", config.Name, err)
	}
	config = config.clone()
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.config
	switch {
	case d.closed:
		return fmt.Errorf("setting tunnel %s: it is closed", config.Name)
	case old.Name != "" && old.Name != config.Name:
		return fmt.Errorf("setting tunnel %s: name: it is %s and stays so; close it and make another", config.Name, old.Name)
	}
	if old.Name != "" { // a handshake that was before is no answer to what comes now
		if err := d.look(time.Now()); err != nil {
			d.options.Log.V(1).Info("a tunnel cannot be read", "tunnel", config.Name, "error", err.Error())
		}
	}
	if err := d.engine.set(config); err != nil {
		return fmt.Errorf("setting tunnel %s: %w", config.Name, err)
	}
	d.config = config
	d.poke() // what was made anew has to find its peer
	if old.equal(config) {
		return nil
	}
	d.targets = targets(config.Endpoints, d.targets)
	d.state.Named, d.state.Turn = false, 0
	d.sift()
	for _, t := range d.targets {
		d.state.Named = d.state.Named || t.named
	}
	d.state.Resolved = time.Time{}
	if old.Name != "" && !old.PrivateKey.Equal(config.PrivateKey) {
		// WireGuard asks the peer itself. Only if that is not answered, ask anew. What was heard went with the key.
		d.state.Heard = time.Time{}
		d.state = kicked(d.state, time.Now())
		d.state.Tried = time.Now()
	}
	if old.Name != "" && !old.accepts(config.Peer) {
		d.state.Heard = time.Time{} // nobody has heard that one
	}
	return nil
}

// accepts reports whether a key of the peer is one that is known already.
func (c Config) accepts(key PublicKey) bool { return key == c.Peer || key == c.NextPeer }

// Kick asks for a handshake now, and goes on asking until there is one. It is for
// whoever knows that the tunnel carries nothing: WireGuard itself takes 15 seconds to
// doubt. In userspace what is well is not disturbed; the kernel loses its keys, and
// packets wait for new ones.
func (d *Device) Kick() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.config.Name == "" {
		return errors.New("kicking a tunnel: it is not set")
	}
	if d.config.Passive {
		return nil
	}
	if err := d.look(time.Now()); err != nil {
		return err
	}
	d.state = kicked(d.state, time.Now())
	d.poke()
	return nil
}

// Stats tells how it is.
func (d *Device) Stats() (Stats, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.config.Name == "" {
		return Stats{}, nil
	}
	stats, err := d.engine.stats()
	if err != nil {
		return Stats{}, fmt.Errorf("reading tunnel %s: %w", d.config.Name, err)
	}
	stats.Listed = slices.Contains(d.state.Candidates, stats.Endpoint)
	return stats, nil
}

// File is the TUN device, for a process that is to hold it over the end of this one;
// nil before the first Set and with the kernel's WireGuard, which needs none. It is the
// Device's: pass it on, and do not close it. A Set that has to make the device anew
// changes it.
func (d *Device) File() *os.File {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.engine.file()
}

// Close removes the device, unless somebody else holds its TUN.
func (d *Device) Close() error {
	d.mu.Lock()
	again := d.closed
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	<-d.ended
	if again {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.engine.close(); err != nil {
		return fmt.Errorf("closing tunnel %s: %w", d.config.Name, err)
	}
	return nil
}

// poke has the loop decide anew.
func (d *Device) poke() { d.options.poke() }

// run does what next decides, until the device is closed.
func (d *Device) run(ctx context.Context) {
	defer close(d.ended)
	var asking sync.WaitGroup
	defer asking.Wait()
	for {
		wait := d.step(ctx, &asking)
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-d.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// step looks, decides and acts once, and returns how long nothing is to be done.
func (d *Device) step(ctx context.Context, asking *sync.WaitGroup) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	const idle = time.Hour
	if d.closed || d.config.Name == "" {
		return idle
	}
	now := time.Now()
	if err := d.look(now); err != nil {
		d.options.Log.V(1).Info("a tunnel cannot be read", "tunnel", d.config.Name, "error", err.Error())
	}
	d.sift()
	if d.leave {
		if err := d.forsake(); err != nil {
			d.options.Log.V(1).Info("a peer cannot be left", "tunnel", d.config.Name, "error", err.Error())
		}
	}
	d.engine.expect(d.state.ring())
	if d.config.Passive {
		return idle
	}
	d.state.Drawn = rand.N(jitter)
	var a action
	a, d.state = next(d.state, now)
	if a.Resolve && !d.resolving {
		d.resolving = true
		wanted := d.targets
		asking.Go(func() { d.ask(ctx, wanted) })
	}
	if len(a.Try) > 0 {
		if err := d.engine.try(a.Try, d.state.Rounds); err != nil {
			d.options.Log.V(1).Info("a peer cannot be asked for a handshake", "tunnel", d.config.Name, "error", err.Error())
		}
	}
	wait := idle
	if !a.Wake.IsZero() {
		wait = max(0, time.Until(a.Wake))
	}
	if watch := d.engine.watch(); watch > 0 {
		wait = min(wait, watch)
	}
	return wait
}

// look takes what the engine says into the state.
func (d *Device) look(now time.Time) error {
	seen, err := d.engine.stats()
	if err != nil {
		return fmt.Errorf("reading tunnel %s: %w", d.config.Name, err)
	}
	d.state, d.place = observed(d.state, seen, now), seen.Endpoint
	return nil
}

// ask resolves names, and takes what was found if the same are still wanted.
func (d *Device) ask(ctx context.Context, wanted []target) {
	answered, failures := resolve(ctx, d.options.Resolve, wanted)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resolving = false
	d.state.Resolved = time.Now()
	for host, err := range failures {
		if d.failed[host] == nil && ctx.Err() == nil {
			d.options.Log.Info("an endpoint's name cannot be resolved", "tunnel", d.config.Name, "host", host, "error", err.Error())
		}
	}
	failed := map[string]error{} // of those that are wanted alone: a peer may name others time and again
	for _, t := range answered {
		failed[t.host] = failures[t.host]
	}
	d.failed = failed
	// Endpoints may have changed meanwhile: take addresses by name.
	d.targets = targets(d.config.Endpoints, answered)
	for _, t := range d.targets {
		if _, asked := d.failed[t.host]; t.named && !asked {
			d.state.Resolved = time.Time{}
		}
	}
	d.poke() // which sifts
}
