package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/health"
	"github.com/pelago-dev/pelago/network/holder"
	"github.com/pelago-dev/pelago/network/netns"
	"github.com/pelago-dev/pelago/network/plan"
	"github.com/pelago-dev/pelago/network/tunnel"
)

// tunnels are those that end on this node, with their probes. All methods but reports, stats,
// tell and peers are called by one goroutine.
type tunnels struct {
	spaces    dataplane.Namespaces
	keeper    Keeper
	host      *os.File
	userspace bool
	// sharing is what they share processors by.
	sharing *tunnel.Sharing
	metrics *health.Metrics
	log     logr.Logger
	// changed is called with the key of a tunnel that comes to life or dies, or whose provider tells
	// another number.
	changed func(key string)
	// elsewhere is called when a peer is.
	elsewhere func()
	// numbered and heralded, if any, are called with what providers tell of pods.
	numbered func(key string, number uint64)
	heralded func(key string, r health.Recent)

	mu      sync.Mutex
	running map[string]*running
	wrong   map[string]string // why there is no tunnel
	tuns    map[string]*os.File
	last    map[string]netip.AddrPort
	moved   map[string]time.Time // when it was told that a peer is elsewhere
	told    map[string]telling   // to peers
	// doubt is whether others may have what is here, and stances what the tunnels are in it.
	doubt   doubt
	stances map[string]stance
	// steady is how far direct paths can be relied upon.
	steady map[string]steady
	// places are where no peer is called; nil as long as that is not known.
	places *plan.Places
	// left are the tunnels of an earlier process, as that had them.
	left map[string]wanted
}

func newTunnels(o Options, held dataplane.Namespaces, metrics *health.Metrics, changed func(key string), elsewhere func()) *tunnels {
	t := &tunnels{
		spaces: held, keeper: o.Keeper, host: o.Host, userspace: o.Userspace, metrics: metrics, log: o.Log, changed: changed, elsewhere: elsewhere,
		running: map[string]*running{}, wrong: map[string]string{}, tuns: map[string]*os.File{}, last: map[string]netip.AddrPort{},
		sharing: tunnel.NewSharing(), moved: map[string]time.Time{}, stances: map[string]stance{}, steady: map[string]steady{},
	}
	maps.Copy(t.tuns, o.Left.TUNs)
	maps.Copy(t.last, o.Left.Last)
	t.left = t.read(o.Left.Notes)
	return t
}

// running is a tunnel with its probes. Of its fields, config and probing are guarded by the
// mutex of tunnels.
type running struct {
	space  *os.File
	device *tunnel.Device
	config tunnel.Config
	tun    *os.File // of an earlier process, nil if none
	held   *os.File // the TUN device that is kept
	turn   turn
	probing
}

// probing is the prober and the responder of a tunnel, while there are some.
type probing struct {
	prober    *health.Prober
	responder *health.Responder
	ends      plan.Probe
	cancel    context.CancelFunc
	parts     *sync.WaitGroup
	peer      *atomic.Pointer[int64] // what the other side has told
}

// wanted is a tunnel that shall be, with its key.
type wanted struct {
	plan.Tunnel
	probe plan.Probe
}

// errNoKey is why there is no tunnel where this side's private key is not to be found.
var errNoKey = errors.New("this side's private key is not in the Secret " + v1alpha1.NetworkKeysName)

// of are the tunnels of a plan, as far as there are keys, and those without one.
func of(p plan.Plan, secrets map[string]tunnel.Secret) (all map[string]wanted, locked []string) {
	all = map[string]wanted{}
	for _, t := range p.Tunnels {
		secret, ok := secrets[t.Secret]
		if !ok {
			locked = append(locked, t.Peering)
			continue
		}
		t.Config.PrivateKey = secret
		all[t.Peering] = wanted{Tunnel: t}
	}
	for _, probe := range p.Probes {
		if w, ok := all[probe.Peering]; ok {
			w.probe = probe
			all[probe.Peering] = w
		}
	}
	return all, locked
}

// close ends the tunnels that are not wanted, and forgets those that others have left: also what was noted of them,
// by which the next process would open them again.
func (t *tunnels) close(want map[string]wanted) error {
	var failed []error
	for key := range t.all() {
		if _, ok := want[key]; !ok {
			failed = append(failed, t.end(key))
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, file := range t.tuns {
		if _, ok := want[key]; !ok {
			_ = file.Close()
			delete(t.tuns, key)
			failed = append(failed, t.keeper.Drop(holder.TUN, key))
		}
	}
	for key := range t.left {
		if _, ok := want[key]; !ok {
			delete(t.left, key)
			failed = append(failed, t.keeper.Drop(holder.Note, key))
		}
	}
	for key := range t.wrong {
		if _, ok := want[key]; !ok {
			delete(t.wrong, key)
		}
	}
	return errors.Join(failed...)
}

func (t *tunnels) all() map[string]*running {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.running)
}

// end ends a tunnel, and has its device go.
func (t *tunnels) end(key string) error {
	t.mu.Lock()
	r := t.running[key]
	delete(t.running, key)
	t.mu.Unlock()
	t.quiet(r)
	var failed []error
	if stats, err := r.device.Stats(); err == nil && stats.Endpoint.IsValid() {
		t.remember(key, stats.Endpoint)
	}
	if r.held != nil {
		failed = append(failed, t.keeper.Drop(holder.TUN, key))
	}
	failed = append(failed, t.keeper.Drop(holder.Note, key))
	return errors.Join(append(failed, r.close())...)
}

// close lets go of a tunnel's files. The device goes with the last one of them.
func (r *running) close() error {
	failed := []error{r.device.Close(), r.space.Close()}
	if r.tun != nil {
		failed = append(failed, r.tun.Close())
	}
	return errors.Join(failed...)
}

// quiet ends the probes of a tunnel.
func (t *tunnels) quiet(r *running) {
	t.mu.Lock()
	p := r.probing
	r.probing = probing{}
	t.mu.Unlock()
	if p.cancel != nil {
		p.cancel()
		p.parts.Wait()
	}
}

// open makes the tunnels that are wanted, and reports whether there are new devices. With
// all, those are looked after that have been made before.
func (t *tunnels) open(want map[string]wanted, all bool) (made bool, err error) {
	var failed []error
	running := t.all()
	for key, w := range want {
		fresh, err := t.set(key, w, running[key], all)
		made = made || fresh
		if err != nil {
			failed = append(failed, err)
		}
		t.say(key, err)
	}
	return made, errors.Join(failed...)
}

// leave is what is wanted but for tunnels with whose gateways something is wrong, which is said of them.
func (t *tunnels) leave(want map[string]wanted, broken dataplane.GatewaysError) map[string]wanted {
	if len(broken) == 0 {
		return want
	}
	want = maps.Clone(want)
	for key, err := range broken {
		if _, is := want[key]; is {
			delete(want, key)
			t.say(key, err)
		}
	}
	return want
}

func (t *tunnels) say(key string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.wrong, key)
	if err != nil {
		t.wrong[key] = err.Error()
	}
}

func (t *tunnels) set(key string, w wanted, r *running, all bool) (fresh bool, err error) {
	if r != nil && r.config.Name != w.Config.Name {
		if err := t.end(key); err != nil {
			return false, err
		}
		r = nil
	}
	if r == nil {
		if r, err = t.make(key); err != nil {
			return false, fmt.Errorf("making the tunnel of %s: %w", key, err)
		}
		fresh, all = true, true
	}
	w.Config = r.turn.hold(r.config, w.Config, t.using(r), time.Now())
	same := reflect.DeepEqual(bare(r.config), bare(w.Config)) && r.config.PrivateKey.Equal(w.Config.PrivateKey)
	if same && !all {
		return fresh, nil
	}
	err = r.device.Set(w.Config)
	if err == nil {
		err = t.keep(key, r)
	}
	if err == nil && (fresh || !same) {
		err = t.note(key, w)
	}
	if fresh && err != nil {
		if r.tun != nil {
			err = errors.Join(err, t.keeper.Drop(holder.TUN, key))
		}
		return false, errors.Join(err, r.close())
	}
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.config = w.Config
	t.running[key] = r
	return fresh, nil
}

// using is the peer's key that a tunnel uses.
func (t *tunnels) using(r *running) tunnel.PublicKey {
	if r.config.NextPeer.IsZero() {
		return r.config.Peer
	}
	s, err := r.device.Stats()
	if err != nil {
		return r.config.Peer
	}
	return s.Peer
}

// bare is a config without what cannot be compared.
func bare(c tunnel.Config) tunnel.Config {
	c.PrivateKey = tunnel.Secret{}
	return c
}

// make opens the namespace and a device, with the TUN device of an earlier process if there
// is one: of a second attempt there is none, in case that was to blame.
func (t *tunnels) make(key string) (*running, error) {
	space, err := t.spaces.Open(key)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	tun, last := t.tuns[key], t.last[key]
	delete(t.tuns, key)
	t.mu.Unlock()
	device, err := tunnel.New(tunnel.Options{
		Namespace: space, Host: t.host, TUN: tun, Last: last, Userspace: t.userspace, Sharing: t.sharing, Refuse: t.refuser(key), Log: t.log.WithValues("peering", key),
	})
	if err != nil {
		err = errors.Join(err, space.Close())
		if tun != nil {
			_ = tun.Close()
			err = errors.Join(err, t.keeper.Drop(holder.TUN, key))
		}
		return nil, err
	}
	return &running{space: space, device: device, tun: tun, held: tun}, nil
}

// keep has the TUN device held over the end of this process, if there is one.
func (t *tunnels) keep(key string, r *running) error {
	file := r.device.File()
	if file == nil || file == r.held {
		return nil
	}
	if err := t.keeper.Hold(holder.TUN, key, file); err != nil {
		return err
	}
	r.held = file
	return nil
}

// probe probes the tunnels that there are.
func (t *tunnels) probe(ctx context.Context, want map[string]wanted) error {
	var failed []error
	for key, r := range t.all() {
		w, ok := want[key]
		if !ok || r.prober != nil && r.ends == w.probe && !r.config.Passive {
			continue
		}
		t.quiet(r)
		if r.config.Passive {
			continue // nothing of it passes, and it begins anew when it does
		}
		p, err := t.begin(ctx, r, w.probe)
		if err != nil {
			failed = append(failed, fmt.Errorf("probing the tunnel of %s: %w", key, err))
			continue
		}
		t.mu.Lock()
		r.probing = p
		t.mu.Unlock()
	}
	return errors.Join(failed...)
}

func (t *tunnels) begin(ctx context.Context, r *running, at plan.Probe) (probing, error) {
	var answers, questions *net.UDPConn
	err := netns.In(r.space, func() (err error) {
		if answers, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at.At)); err == nil {
			questions, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at.At.Addr(), 0)))
		}
		return err
	})
	if err != nil {
		if answers != nil {
			_ = answers.Close()
		}
		return probing{}, err
	}
	from := []netip.Prefix{netip.PrefixFrom(at.Peer.Addr(), at.Peer.Addr().BitLen())}
	responder := health.NewResponder(health.ResponderOptions{Peering: at.Peering, Conn: answers, From: from, Metrics: t.metrics})
	t.mu.Lock()
	if what, ok := t.told[at.Peering]; ok {
		responder.Tell(uint64(what.number), what.recent)
	}
	t.mu.Unlock()
	peer := &atomic.Pointer[int64]{}
	prober := health.NewProber(health.ProberOptions{
		Peering: at.Peering, Conn: questions, Peer: at.Peer, Metrics: t.metrics,
		Kick: func(context.Context) {
			if t.doubting() {
				return // who asks takes the peer from another one, who may be right
			}
			if err := r.device.Kick(); err != nil {
				t.log.V(1).Info("a tunnel cannot be kicked", "peering", at.Peering, "error", err.Error())
			}
		},
		Changed: func(_ context.Context, h health.Report) {
			t.log.Info("a tunnel has changed", "peering", at.Peering, "alive", h.Alive)
			t.changed(at.Peering)
		},
		Told: func(number uint64) {
			if n := int64(number); n >= 0 && consumes(at.Peering) {
				if t.numbered != nil {
					t.numbered(at.Peering, number)
				}
				peer.Store(&n)
				t.changed(at.Peering)
			}
		},
		Heralded: func(r health.Recent) {
			if t.heralded != nil && consumes(at.Peering) {
				t.heralded(at.Peering, r)
			}
		},
	})
	inner, cancel := context.WithCancel(ctx)
	p := probing{prober: prober, responder: responder, ends: at, cancel: cancel, parts: &sync.WaitGroup{}, peer: peer}
	for _, run := range []func(context.Context) error{responder.Run, prober.Run} {
		p.parts.Go(func() {
			if err := run(inner); err != nil {
				t.log.Error(err, "probing a tunnel")
			}
		})
	}
	return p, nil
}

// movedRest is the least time between two plans that follow from where one peer is: it may be here and
// there as often as it likes.
const movedRest = 2 * time.Second

// heard are the addresses at which peers were heard last.
func (t *tunnels) heard() map[string]netip.Addr {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]netip.Addr, len(t.last))
	for key, at := range t.last {
		all[key] = at.Addr()
	}
	return all
}

// remember has it kept where the other side of a tunnel was.
func (t *tunnels) remember(key string, at netip.AddrPort) {
	t.mu.Lock()
	known := t.last[key]
	t.last[key] = at
	now := time.Now()
	tell := known.Addr() != at.Addr() && now.Sub(t.moved[key]) >= movedRest
	if tell {
		t.moved[key] = now
	}
	t.mu.Unlock()
	if known == at {
		return
	}
	if tell { // what it sends from there is a stranger's until then
		t.elsewhere()
	}
	if err := t.keeper.Last(key, at); err != nil {
		t.log.Error(err, "keeping where a peer is", "peering", key)
	}
}
