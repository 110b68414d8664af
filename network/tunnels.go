package network

import (
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// tunnels knows which tunnels carry packets both ways, and tells whoever asked when that
// changes: as soon as an agent says so, without a look at anything else. Its zero value knows
// nothing.
type tunnels struct {
	mu sync.Mutex
	// wanted are the keys of the peerings that have a network.
	wanted map[string]bool
	// said is what was reported last, by key. It stays while no agent that lives says anything:
	// a gateway that moves, or an agent that starts anew, tells nothing about the tunnel.
	said map[string]bool
	// told is what of that was wanted when it was last told.
	told      map[string]bool
	listeners map[*listener]bool
}

// state says whether a tunnel carries packets both ways, and whether that is known.
func (t *tunnels) state(key string) (alive, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	alive, known = t.said[key]
	return alive && t.wanted[key], known && t.wanted[key]
}

// hear takes what agents report now.
func (t *tunnels) hear(agents func() []agent) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.said == nil {
		t.said = map[string]bool{}
	}
	for key, alive := range heard(agents()) {
		t.said[key] = alive
	}
	t.tell()
}

// want takes the keys of the tunnels that there are to be. What was known of others is
// forgotten.
func (t *tunnels) want(keys map[string]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted = keys
	for key := range t.said {
		if !keys[key] {
			delete(t.said, key)
		}
	}
	t.tell()
}

// heard is what agents that live say of tunnels, by key. While a gateway moves two of them may
// have it, and one that carries packets is enough. What has not been probed for long enough is
// not known.
func heard(agents []agent) map[string]bool {
	all := map[string]bool{}
	for _, a := range agents {
		if !a.alive {
			continue
		}
		for key, r := range a.reports {
			if r.Alive || r.Since != nil || r.Problem != "" {
				all[key] = all[key] || r.Alive
			}
		}
	}
	return all
}

// tell wakes the listeners of what is new. The caller holds the lock.
func (t *tunnels) tell() {
	now := map[string]bool{}
	for key, alive := range t.said {
		if t.wanted[key] {
			now[key] = alive
		}
	}
	for l := range t.listeners {
		l.wake(changes(t.told, now, l.prefix))
	}
	t.told = now
}

// changes are the names, after a prefix, of the keys of which two states say not the same.
func changes(before, now map[string]bool, prefix string) []string {
	var names []string
	note := func(key string) {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			names = append(names, name)
		}
	}
	for key, alive := range now {
		if was, known := before[key]; !known || was != alive {
			note(key)
		}
	}
	for key := range before {
		if _, known := now[key]; !known {
			note(key)
		}
	}
	slices.Sort(names)
	return names
}

// listener is told of tunnels whose keys have a prefix.
type listener struct {
	prefix string
	awake  chan struct{}

	mu    sync.Mutex
	names map[string]bool
}

// wake never waits: what is told again before it was taken is told once.
func (l *listener) wake(names []string) {
	if len(names) == 0 {
		return
	}
	l.mu.Lock()
	for _, name := range names {
		l.names[name] = true
	}
	l.mu.Unlock()
	select {
	case l.awake <- struct{}{}:
	default:
	}
}

func (l *listener) take() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	names := l.names
	l.names = map[string]bool{}
	return names
}

// source tells of changes of tunnels whose keys have a prefix, from its start on.
func (t *tunnels) source(prefix string, mapper func(name string) []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		l := &listener{prefix: prefix, awake: make(chan struct{}, 1), names: map[string]bool{}}
		t.mu.Lock()
		if t.listeners == nil {
			t.listeners = map[*listener]bool{}
		}
		t.listeners[l] = true
		t.mu.Unlock()
		go func() {
			defer func() {
				t.mu.Lock()
				delete(t.listeners, l)
				t.mu.Unlock()
			}()
			for {
				select {
				case <-ctx.Done():
					return
				case <-l.awake:
				}
				for name := range l.take() {
					for _, r := range mapper(name) {
						queue.Add(r)
					}
				}
			}
		}()
		return nil
	})
}
