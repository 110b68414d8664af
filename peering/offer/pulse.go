package offer

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// pulseEvery is the least time between two looks at all offers.
const pulseEvery = time.Second

// maxMeant bounds how many consumers are remembered one by one; beyond it is everyone.
const maxMeant = 1024

// pulse turns any number of changes of what is free into at most one look at the
// requests they concern a second; the first change is looked at at once.
type pulse struct {
	clock  clock.Clock
	client client.Reader
	wake   chan struct{} // of one place: there is something to do

	mu    sync.Mutex
	meant map[string]struct{} // cluster ids; "" is everyone
}

func newPulse(c clock.Clock, r client.Reader) *pulse {
	return &pulse{clock: c, client: r, wake: make(chan struct{}, 1), meant: map[string]struct{}{}}
}

// notify says that what is free has changed for a consumer, or for everyone.
func (p *pulse) notify(clusterID string) {
	p.mu.Lock()
	if len(p.meant) >= maxMeant {
		clusterID = ""
	}
	p.meant[clusterID] = struct{}{}
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pulse) take() map[string]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	meant := p.meant
	p.meant = map[string]struct{}{}
	return meant
}

// source is where a controller gets the requests to look at.
func (p *pulse) source() source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go p.run(ctx, queue.Add)
		return nil
	})
}

func (p *pulse) run(ctx context.Context, enqueue func(reconcile.Request)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		for _, r := range requestsOfConsumers(ctx, p.client, p.take()) {
			enqueue(r)
		}
		timer := p.clock.NewTimer(pulseEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}
