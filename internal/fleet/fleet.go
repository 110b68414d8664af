// Package fleet holds the connections to providers: one per peering, with a client
// for single calls and one watch set in the tenant namespace that all rooms share.
// It knows whether a peer answers, and tells controllers when that or a watched
// object changes. It never writes to a peer by itself and stores nothing: whoever
// owns a credential calls Set again after a restart.
package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Options of a fleet. Only Scheme is required.
type Options struct {
	// Scheme knows the kinds that clients of peers read and write.
	Scheme *runtime.Scheme
	// Logger; nothing is logged if absent.
	Logger logr.Logger
	// Clock for since when a peer answers or not, and for back-offs; the real one if nil.
	Clock clock.Clock
	// Jitter returns a number in [0,1) that spreads retries; random if nil.
	Jitter func() float64
	// Dial opens connections to peers and proxies; an ordinary dialer if nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Connection says where a provider is and who this cluster is there. It holds
// secrets: it must not be logged.
type Connection struct {
	// Peering is the name of the Peering, and of the connection.
	Peering string
	// ClusterID of the provider.
	ClusterID string
	// ServerURL of the provider's API server, https://HOST:PORT.
	ServerURL string
	// CA of ServerURL in PEM; the system's if empty.
	CA []byte
	// At is where ServerURL is in truth, at one of these addresses, if its name means something else
	// here or nothing: of a provider that is reached through a tunnel.
	At []netip.AddrPort
	// ProxyURL is an HTTP proxy on the way, none if empty.
	ProxyURL string
	// Certificate and Key in PEM, if the credential is a certificate.
	Certificate, Key []byte
	// Token, if the credential is one.
	Token string
	// TenantNamespace is the only namespace that is watched.
	TenantNamespace string
}

// ErrStarted is returned by Watch when the fleet runs already.
var ErrStarted = errors.New("fleet: watch after start")

// Fleet is all connections of this cluster. It is a runnable of the manager: watches
// run while it does.
type Fleet struct {
	options Options
	budget  *budget

	mu          sync.Mutex
	ctx         context.Context // of Start; nil before it
	kinds       []watched
	peers       map[string]*Peer
	subscribers map[*subscriber]struct{}
	running     sync.WaitGroup
}

// watched is a kind in every peer's watch set.
type watched struct {
	gvk      schema.GroupVersionKind
	resource schema.GroupVersionResource
	name     string // only the object of this name, if not empty
	bounds   Bounds
}

// New makes a fleet without connections.
func New(o Options) *Fleet {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Jitter == nil {
		o.Jitter = rand.Float64
	}
	if o.Logger.GetSink() == nil {
		o.Logger = logr.Discard()
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext
	}
	return &Fleet{options: o, budget: newBudget(), peers: map[string]*Peer{}, subscribers: map[*subscriber]struct{}{}}
}

// Watch adds a kind to the watch set of every peer; if the object has a name, only the
// object of that name, for kinds of which this cluster may see no other. It is called
// before Start, by the rooms that read the kind; a kind may be added more than once.
func (f *Fleet) Watch(kind client.Object) error {
	gvk, err := apiutil.GVKForObject(kind, f.options.Scheme)
	if err != nil {
		return fmt.Errorf("finding the kind to watch: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.kinds, func(w watched) bool { return w.gvk == gvk }) {
		return nil
	}
	if f.ctx != nil {
		return ErrStarted
	}
	known := meta.NewDefaultRESTMapper(nil)
	v1alpha1.AddKind(known, gvk, meta.RESTScopeNamespace)
	called, err := known.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return fmt.Errorf("finding the resource to watch: %w", err)
	}
	f.kinds = append(f.kinds, watched{gvk: gvk, resource: called.Resource, name: kind.GetName()})
	return nil
}

// NeedLeaderElection says that only the leader holds connections.
func (f *Fleet) NeedLeaderElection() bool { return true }

// Start runs the watches until ctx ends.
func (f *Fleet) Start(ctx context.Context) error {
	f.mu.Lock()
	f.ctx = ctx
	peers := make([]*Peer, 0, len(f.peers))
	for _, p := range f.peers {
		peers = append(peers, p)
	}
	f.mu.Unlock()
	for _, p := range peers {
		p.start(ctx)
	}
	<-ctx.Done()
	f.mu.Lock()
	peers = peers[:0]
	for _, p := range f.peers {
		peers = append(peers, p)
	}
	f.mu.Unlock()
	for _, p := range peers {
		p.stop()
	}
	f.running.Wait()
	return nil
}

// Set makes or replaces a connection. It returns at once; setting what is already
// set does nothing. A new credential or address takes over when its watches have
// what the old ones had, or at once if the old connection does not work; calls in
// flight end on the old one. An error says that the connection is malformed.
func (f *Fleet) Set(_ context.Context, c Connection) error {
	f.mu.Lock()
	p := f.peers[c.Peering]
	kinds := slices.Clone(f.kinds)
	f.mu.Unlock()
	if p != nil && p.has(c) {
		return nil
	}
	s, err := newSession(c, kinds, &f.options)
	if err != nil {
		return fmt.Errorf("connecting to the provider of peering %s: %w", c.Peering, err)
	}
	f.mu.Lock()
	p = f.peers[c.Peering]
	ctx := f.ctx
	fresh := p == nil
	if fresh {
		p = newPeer(f, c.Peering, s)
		f.peers[c.Peering] = p
	}
	f.mu.Unlock()
	if !fresh {
		p.replace(s)
	}
	if ctx != nil && ctx.Err() == nil {
		p.start(ctx)
	}
	f.publishState(c.Peering)
	return nil
}

// Remove ends a connection; calls in flight end by themselves. Removing one that is
// not there does nothing.
func (f *Fleet) Remove(peering string) {
	f.mu.Lock()
	p := f.peers[peering]
	delete(f.peers, peering)
	f.mu.Unlock()
	if p != nil {
		p.stop()
		p.share.leave()
		f.publishState(peering)
		for _, s := range f.listeners() {
			s.forget(peering)
		}
	}
}

// Peer returns the connection of a peering. It may be kept: it follows new
// credentials until the connection is removed.
func (f *Fleet) Peer(peering string) (*Peer, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p, ok := f.peers[peering]
	return p, ok
}

// Seen is a fleet whose peers are seen as what a room wants of them.
type Seen[P any] struct {
	*Fleet
	as func(*Peer) P
}

// As makes a fleet fit the interface of a room, which has an interface of peers in it: as
// makes a peer fit that one.
func As[P any](f *Fleet, as func(*Peer) P) Seen[P] { return Seen[P]{Fleet: f, as: as} }

// Peer returns the connection of a peering, if there is one.
func (s Seen[P]) Peer(peering string) (P, bool) {
	p, ok := s.Fleet.Peer(peering)
	return s.as(p), ok
}

// Client returns a client for single calls over a connection that is not part of the
// fleet and watches nothing, and what closes it.
func (f *Fleet) Client(c Connection) (client.Client, func(), error) {
	s, err := newSession(c, nil, &f.options)
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to the provider of peering %s: %w", c.Peering, err)
	}
	return s.client, s.close, nil
}

// Times of a connection. A dead peer is known after pingAfter + pingTimeout, and
// answers again at most dialTimeout + retryMax after the link heals.
const (
	callTimeout  = 10 * time.Second
	dialTimeout  = 2 * time.Second
	keepAlive    = 15 * time.Second
	pingAfter    = 5 * time.Second
	pingTimeout  = 4 * time.Second
	retryMin     = 500 * time.Millisecond
	retryMax     = 2500 * time.Millisecond
	graceToReset = 2 * time.Second
	drainTimeout = 30 * time.Second
)
