package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// beyondFor is how long a watch lives while something is left out: then all is listed
	// again, as by then there may be room.
	beyondFor = 5 * time.Minute
	// askFor is how long a peer has to show one object that may have been left out, and askAgain how
	// long it is asked for none after it did not: who watches well and does not answer this holds up nobody.
	askFor, askAgain = 2 * time.Second, 20 * time.Second
)

var errAsking = errors.New("what is not kept is not read now, as the provider does not answer soon")

type keptKey struct{}

// Kept has readers look only at what is kept, and ask no provider for what may have been left out.
func Kept(ctx context.Context) context.Context { return context.WithValue(ctx, keptKey{}, true) }

// leftOut says what there is beyond the bounds, nil if all is kept.
func (m *mirror) leftOut() error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.beyond
}

// leaveOut notes whether a list had more than is kept.
func (m *mirror) leaveOut(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.beyond = err
}

// full says whether there is no room for another object.
func (m *mirror) full() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.beyond != nil || len(m.objects) >= m.bounds.objects()
}

// lacks says whether an object may be there of which nothing is kept, or, of a kind of which one
// object is watched, nothing that is true.
func (m *mirror) lacks(name string) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.name != "" && m.health == over {
		return name == m.name
	}
	return m.beyond != nil && m.objects[name] == nil
}

// rests says whether the peer is not to be asked for anything.
func (m *mirror) rests(now time.Time) bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return now.Before(m.silent)
}

// rest has the peer asked for nothing for a while.
func (m *mirror) rest(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.silent = now.Add(askAgain)
}

// ask reads from the peer itself what may have been left out.
func (r reader) ask(ctx context.Context, m *mirror, name string, obj client.Object) error {
	if m.rests(r.clock.Now()) {
		return errAsking
	}
	limited, cancel := context.WithTimeout(ctx, askFor)
	defer cancel()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(m.gvk)
	err := r.live.Get(limited, client.ObjectKey{Namespace: m.namespace, Name: name}, u)
	switch {
	case apierrors.IsNotFound(err):
		return err
	case err != nil:
		if ctx.Err() == nil {
			m.rest(r.clock.Now())
		}
		return fmt.Errorf("reading what is not kept: %w", err)
	}
	m.tidy(u)
	return into(u, obj)
}

// Full says whether the provider shows as many objects of a kind as are kept here: then
// no more are to be made there.
func (p *Peer) Full(kind client.Object) bool {
	m, err := p.session().reader.mirror(kind, false)
	return err == nil && m.full()
}
