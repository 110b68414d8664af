package fleet

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// State is how a connection is.
type State struct {
	// Reachable: the peer answers, be it with a refusal.
	Reachable bool
	// Reason is one of v1alpha1.ReasonPeerReachable, ReasonForbidden (it answers and
	// refuses this identity something), ReasonPeerUnreachable, ReasonTooMany (it shows more than
	// is taken, and counts as away) and ReasonPending (the first attempt is not over).
	Reason string
	// Since when Reachable and Reason are so.
	Since time.Time
	// Err says why, unless all is well.
	Err error
	// Beyond says of what the provider shows more than is kept, if it does; see [Bounds].
	Beyond error
}

// Peer is the connection to one provider. It stays the same while credentials and
// addresses change.
type Peer struct {
	fleet *Fleet
	name  string
	share *share

	mu      sync.Mutex
	current *session
	pending *session // takes over from current
	stated  State
	stopped bool
}

func newPeer(f *Fleet, name string, s *session) *Peer {
	pending := State{Reason: v1alpha1.ReasonPending, Since: f.options.Clock.Now(), Err: ErrNotSynced}
	p := &Peer{fleet: f, name: name, current: s, stated: pending, share: f.budget.join()}
	s.of(p.share, nil)
	s.changed, s.lag = p.changed, p.lag
	return p
}

// ClusterID of the provider.
func (p *Peer) ClusterID() string { return p.session().conn.ClusterID }

// TenantNamespace is this cluster's namespace at the provider.
func (p *Peer) TenantNamespace() string { return p.session().conn.TenantNamespace }

// Client returns a client that reads and writes at the provider, each call at most
// 10 s. It has the credential of this moment: ask for it again rather than keep it.
func (p *Peer) Client() client.Client { return p.session().client }

// Reader returns what reads from the watch set. Like Client, it is of this moment.
// Before the first list it answers ErrNotSynced; while the peer is away, with what
// was there last.
func (p *Peer) Reader() client.Reader { return p.session().reader }

// Reachable says whether the provider answers, since when, and what is wrong if
// anything is. It answers true with an error if it refuses this identity.
func (p *Peer) Reachable() (bool, time.Time, error) {
	s := p.State()
	return s.Reachable, s.Since, s.Err
}

// State says the same with a reason.
func (p *Peer) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := p.current.state()
	state.Since = p.stated.Since
	if state.Reachable != p.stated.Reachable || state.Reason != p.stated.Reason {
		state.Since = p.fleet.options.Clock.Now() // the change is about to be recorded
	}
	return state
}

func (p *Peer) session() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

// has says whether a connection is the newest that was set.
func (p *Peer) has(c Connection) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	newest := p.current
	if p.pending != nil {
		newest = p.pending
	}
	return same(newest.conn, c)
}

// replace makes s the newest session.
func (p *Peer) replace(s *session) {
	s.changed, s.lag = p.changed, p.lag
	p.mu.Lock()
	dropped := p.pending
	s.of(p.share, p.current)
	p.pending = s
	p.mu.Unlock()
	if dropped != nil {
		dropped.close()
	}
	p.changed(s, nil)
}

// start runs the watches of all sessions.
func (p *Peer) start(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return
	}
	for _, s := range []*session{p.current, p.pending} {
		if s != nil {
			s.start(ctx, &p.fleet.running)
		}
	}
}

func (p *Peer) stop() {
	p.mu.Lock()
	p.stopped = true
	sessions := []*session{p.current, p.pending}
	p.mu.Unlock()
	for _, s := range sessions {
		if s != nil {
			s.close()
		}
	}
}

// changed takes news of a session: an object, or nil for its health.
func (p *Peer) changed(s *session, u *unstructured.Unstructured) {
	if u != nil {
		if p.session() == s {
			p.fleet.publish(p.name, u)
		}
		return
	}
	p.mu.Lock()
	retired, news := p.promote()
	state := p.current.state()
	transition := state.Reachable != p.stated.Reachable || state.Reason != p.stated.Reason
	if transition {
		state.Since = p.fleet.options.Clock.Now()
		p.stated = state
	}
	stopped := p.stopped
	p.mu.Unlock()
	if retired != nil {
		retired.close()
	}
	if stopped {
		return
	}
	if transition {
		p.fleet.options.Logger.Info("connection changed", "peering", p.name, "reason", state.Reason)
	}
	if transition || retired != nil {
		p.fleet.publishState(p.name)
	}
	for _, u := range news {
		p.fleet.publish(p.name, u)
	}
}

// lag is how long the watch of a kind has to wait for its subscribers.
func (p *Peer) lag(m *mirror) time.Duration { return p.fleet.lag(p.name, m.gvk) }

// promote makes the pending session the current one if it has all the current one
// has, or if that does not work anyway. It returns the one that is over, and what
// differs. The caller holds the lock.
func (p *Peer) promote() (*session, []*unstructured.Unstructured) {
	if p.pending == nil {
		return nil, nil
	}
	working := p.current.state().Reason == v1alpha1.ReasonPeerReachable
	if working && !(p.pending.synced() && p.pending.state().Reason == v1alpha1.ReasonPeerReachable) {
		return nil, nil
	}
	old := p.current
	p.current, p.pending = p.pending, nil
	var news []*unstructured.Unstructured
	for gvk, m := range p.current.reader.mirrors {
		before := old.reader.mirrors[gvk]
		if before == nil || before.namespace != m.namespace {
			continue
		}
		m.adopt(before)
		news = append(news, m.since(before)...)
	}
	return old, news
}

// objects returns what the watch set has of a kind.
func (p *Peer) objects(kind schema.GroupVersionKind) []*unstructured.Unstructured {
	m := p.session().reader.mirrors[kind]
	if m == nil {
		return nil
	}
	var all []*unstructured.Unstructured
	for _, u := range m.all() {
		all = append(all, u)
	}
	return all
}
