package fleet

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Mapper says which requests a watched object of a peer stands for.
type Mapper func(peering string, obj client.Object) []reconcile.Request

// StateMapper says which requests follow from a change of a peer's connection.
type StateMapper func(peering string) []reconcile.Request

// subscriber is a queue that wants to know of a kind, or of states if kind is empty.
type subscriber struct {
	kind  schema.GroupVersionKind
	make  func() client.Object
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	map1  Mapper
	map2  StateMapper
	clock clock.PassiveClock
	pace  Pace

	mu     sync.Mutex
	pacers map[string]*pacer // by peering
}

// Source returns a source for controllers: objects of a watched kind that were
// added, changed or removed at any peer. The kind is as for Watch, and the mapper
// gets objects of its type. The mapper must return quickly.
func (f *Fleet) Source(kind client.Object, mapper func(peering string, obj client.Object) []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		gvk, err := apiutil.GVKForObject(kind, f.options.Scheme)
		if err != nil {
			return fmt.Errorf("finding the kind of the source: %w", err)
		}
		fresh := func() client.Object { return f.fresh(kind, gvk) }
		f.subscribe(ctx, &subscriber{kind: gvk, make: fresh, queue: queue, map1: mapper, pace: f.paceOf(gvk)})
		return nil
	})
}

// StateSource returns a source for controllers: peers that began or ceased to
// answer, whose connection is new, replaced or removed.
func (f *Fleet) StateSource(mapper func(peering string) []reconcile.Request) source.Source {
	return f.StateSourceAt(Pace{}, mapper)
}

// StateSourceAt is StateSource with another pace, for mappers that return a great many
// requests.
func (f *Fleet) StateSourceAt(pace Pace, mapper func(peering string) []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		f.subscribe(ctx, &subscriber{queue: queue, map2: mapper, pace: pace})
		return nil
	})
}

// fresh returns an empty object of the type a subscriber wants.
func (f *Fleet) fresh(kind client.Object, gvk schema.GroupVersionKind) client.Object {
	if _, ok := kind.(*unstructured.Unstructured); !ok {
		if obj, err := f.options.Scheme.New(gvk); err == nil {
			return obj.(client.Object)
		}
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

// subscribe adds a subscriber until ctx ends, and tells it what is there already.
func (f *Fleet) subscribe(ctx context.Context, s *subscriber) {
	s.clock, s.pacers = f.options.Clock, map[string]*pacer{}
	f.mu.Lock()
	f.subscribers[s] = struct{}{}
	peers := make([]*Peer, 0, len(f.peers))
	for _, p := range f.peers {
		peers = append(peers, p)
	}
	f.mu.Unlock()
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		delete(f.subscribers, s)
		f.mu.Unlock()
	})
	for _, p := range peers {
		s.state(p.name)
		for _, u := range p.objects(s.kind) {
			s.object(p.name, u)
		}
	}
}

// publish tells all subscribers of a kind about an object.
func (f *Fleet) publish(peering string, u *unstructured.Unstructured) {
	for _, s := range f.listeners() {
		if s.map1 != nil && s.kind == u.GroupVersionKind() {
			s.object(peering, u)
		}
	}
}

// publishState tells all subscribers of states about a peering.
func (f *Fleet) publishState(peering string) {
	for _, s := range f.listeners() {
		s.state(peering)
	}
}

// lag is how long the watch of a kind has to wait for its slowest subscriber.
func (f *Fleet) lag(peering string, kind schema.GroupVersionKind) time.Duration {
	var longest time.Duration
	for _, s := range f.listeners() {
		if s.kind == kind {
			longest = max(longest, s.pacer(peering).lag(s.clock.Now()))
		}
	}
	return longest
}

func (f *Fleet) listeners() []*subscriber {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := make([]*subscriber, 0, len(f.subscribers))
	for s := range f.subscribers {
		all = append(all, s)
	}
	return all
}

func (s *subscriber) object(peering string, u *unstructured.Unstructured) {
	if s.map1 == nil {
		return
	}
	obj := s.make()
	if err := into(u, obj); err != nil {
		// What cannot be read is still somewhere: its reader will say what is wrong.
		obj = s.make()
		obj.SetName(u.GetName())
		obj.SetNamespace(u.GetNamespace())
	}
	for _, r := range s.map1(peering, obj) {
		s.add(peering, r)
	}
}

func (s *subscriber) state(peering string) {
	if s.map2 == nil {
		return
	}
	for _, r := range s.map2(peering) {
		s.add(peering, r)
	}
}

// add queues a request at the pace that a peer may set. A request that waits is added
// again all the same: the queue may have handed it out earlier.
func (s *subscriber) add(peering string, r reconcile.Request) {
	if wait := s.pacer(peering).delay(r, s.clock.Now()); wait > 0 {
		s.queue.AddAfter(r, wait)
		return
	}
	s.queue.Add(r)
}

func (s *subscriber) pacer(peering string) *pacer {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pacers[peering] == nil {
		s.pacers[peering] = newPacerAt(s.pace)
	}
	return s.pacers[peering]
}

// forget drops what is kept of a peering.
func (s *subscriber) forget(peering string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.pacers, peering)
}
