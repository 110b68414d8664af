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

// listeners are told of keys of peerings. The zero value has none.
type listeners struct {
	mu  sync.Mutex
	all map[*listener]bool
}

// tell wakes each listener for the keys of which two states say not the same. It never waits.
func tell[V comparable](to *listeners, before, now map[string]V) {
	to.mu.Lock()
	defer to.mu.Unlock()
	for l := range to.all {
		l.wake(changes(before, now, l.prefix))
	}
}

// changes are the names, after a prefix, of the keys of which two states say not the same.
func changes[V comparable](before, now map[string]V, prefix string) []string {
	var names []string
	note := func(key string) {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			names = append(names, name)
		}
	}
	for key, is := range now {
		if was, known := before[key]; !known || was != is {
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

// listener is told of keys that have a prefix.
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

// source tells of keys that have a prefix, from its start on.
func (l *listeners) source(prefix string, mapper func(name string) []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		one := &listener{prefix: prefix, awake: make(chan struct{}, 1), names: map[string]bool{}}
		l.mu.Lock()
		if l.all == nil {
			l.all = map[*listener]bool{}
		}
		l.all[one] = true
		l.mu.Unlock()
		go func() {
			defer func() {
				l.mu.Lock()
				delete(l.all, one)
				l.mu.Unlock()
			}()
			for {
				select {
				case <-ctx.Done():
					return
				case <-one.awake:
				}
				for name := range one.take() {
					for _, r := range mapper(name) {
						queue.Add(r)
					}
				}
			}
		}()
		return nil
	})
}
