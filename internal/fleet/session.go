package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// session is one credential at one address: its transport, client and watch set.
type session struct {
	conn      Connection
	options   *Options
	base      *url.URL
	transport *transport
	client    client.Client
	stream    *http.Client
	reader    reader
	large     gate // of what it reads

	// changed is called for a changed object, or with nil for a changed health.
	changed func(*session, *unstructured.Unstructured)
	// lag is how long a watch has to wait for those who work on what it told; nil is 0.
	lag func(*mirror) time.Duration

	mu      sync.Mutex
	cancel  context.CancelFunc
	started bool
	closed  bool
}

func newSession(c Connection, kinds []watched, o *Options) (*session, error) {
	base, err := url.Parse(c.ServerURL)
	if err != nil || base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
		return nil, errors.New("reading the server's address: not https://HOST:PORT")
	}
	if c.TenantNamespace == "" {
		return nil, errors.New("reading the tenant namespace: it is empty")
	}
	t, err := newTransport(c, o.Dial)
	if err != nil {
		return nil, err
	}
	s := &session{conn: c, options: o, base: base, transport: t, stream: t.client(0), large: make(gate, 1)}
	if s.client, err = newClient(c.ServerURL, t.client(callTimeout), o.Scheme); err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	s.reader = reader{mirrors: map[schema.GroupVersionKind]*mirror{}, scheme: o.Scheme, live: s.client, clock: o.Clock}
	for _, k := range kinds {
		s.reader.mirrors[k.gvk] = &mirror{
			watched: k, namespace: c.TenantNamespace, pace: newPacerAt(k.bounds.Pace), objects: map[string]*unstructured.Unstructured{},
		}
	}
	return s, nil
}

// start runs the watches until ctx ends or the session is closed. It does nothing
// the second time.
func (s *session) start(ctx context.Context, running *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || s.closed {
		return
	}
	s.started = true
	ctx, s.cancel = context.WithCancel(ctx)
	for _, m := range s.reader.mirrors {
		running.Go(func() { s.follow(ctx, m) })
	}
}

// of makes what the session keeps count for a peer, and says which one it takes over from.
func (s *session) of(sh *share, before *session) {
	for gvk, m := range s.reader.mirrors {
		var old *mirror
		if before != nil {
			old = before.reader.mirrors[gvk]
		}
		m.of(sh, old)
	}
}

// close ends the watches at once, and the connections when nothing is in flight.
func (s *session) close() {
	s.mu.Lock()
	s.closed = true
	if s.cancel != nil {
		s.cancel()
	}
	s.mu.Unlock()
	for _, m := range s.reader.mirrors {
		m.release()
	}
	s.transport.retire()
}

func (s *session) setHealth(m *mirror, h health, err error) {
	if m.setHealth(h, err) {
		s.changed(s, nil)
	}
}

// synced says whether all that can be read has been.
func (s *session) synced() bool {
	for _, m := range s.reader.mirrors {
		if h, synced, _ := m.getHealth(); h != forbidden && h != unknown && (!synced || h != up) {
			return false
		}
	}
	return true
}

// state sums up the watches: the worst of them counts.
func (s *session) state() State {
	worst, state := up, State{Reachable: true, Reason: v1alpha1.ReasonPeerReachable}
	rank := map[health]int{up: 0, unknown: 0, forbidden: 1, connecting: 2, over: 3, down: 4}
	var beyond error
	for _, m := range s.reader.mirrors {
		if more := m.leftOut(); more != nil && (beyond == nil || more.Error() < beyond.Error()) {
			beyond = more
		}
		h, _, err := m.getHealth()
		if h == forbidden && m.bounds.Optional {
			continue
		}
		if rank[h] <= rank[worst] {
			continue
		}
		worst = h
		switch h {
		case forbidden:
			state = State{Reachable: true, Reason: v1alpha1.ReasonForbidden, Err: err}
		case connecting:
			state = State{Reason: v1alpha1.ReasonPending, Err: ErrNotSynced}
		case over:
			state = State{Reason: v1alpha1.ReasonTooMany, Err: err}
		case down:
			state = State{Reason: v1alpha1.ReasonPeerUnreachable, Err: err}
		}
	}
	state.Beyond = beyond
	return state
}

// same says whether two connections are one.
func same(a, b Connection) bool { return reflect.DeepEqual(a, b) }
