package network

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/ipam"
)

const (
	// watchEvery is how soon it is noticed that a Lease has run out.
	watchEvery = 500 * time.Millisecond
	// candidateFor is how long a node without a live agent stays among the endpoints: one that
	// restarts must not change what peers are told, who try the next one meanwhile.
	candidateFor = 30 * time.Second
	// leastTerm and mostTerm bound what a Lease says of its duration.
	leastTerm, mostTerm = time.Second, time.Minute
)

// agents knows which agents live, by when their Leases were seen to change: clocks of nodes
// differ, and what is written in a Lease is another clock's.
type agents struct {
	clock   clock.PassiveClock
	changed chan event.GenericEvent
	// heard is called when they report something else, of pods too, or others live. Nil is nothing.
	heard func()

	mu    sync.Mutex
	seen  map[string]*sight // by node
	alive []string          // told last
	fit   []string          // candidates, told last
}

// sight is what was seen of one Lease.
type sight struct {
	renewed time.Time // as it is written there; only compared
	at      time.Time // when that was seen
	term    time.Duration
	held    bool
	text    string
	reports map[string]v1alpha1.TunnelReport
	// known is as it is written which pods gateways know, and applied what that means.
	known   string
	applied map[string]v1alpha1.AppliedPods
	// near is as it is written what the node is connected to, and networks what that means.
	near     string
	networks []netip.Prefix
}

// agent is one node's, as far as it matters now.
type agent struct {
	node    string
	alive   bool
	reports map[string]v1alpha1.TunnelReport
	applied map[string]v1alpha1.AppliedPods
	// networks are those that its node is connected to, by what it said last: they stay while it
	// is away.
	networks []netip.Prefix
}

func newAgents(c clock.PassiveClock) *agents {
	return &agents{clock: c, changed: make(chan event.GenericEvent, 1), seen: map[string]*sight{}}
}

func (s *sight) alive(now time.Time) bool { return s.held && now.Sub(s.at) < s.term }

// candidate says whether a node may be gateway again soon, if it is not now.
func (s *sight) candidate(now time.Time) bool { return s.held && now.Sub(s.at) < s.term+candidateFor }

// see takes a Lease as it is now, and says whether what it reports has changed, so that all is to be
// looked at; and whether only the pods have that gateways know.
func (a *agents) see(l *coordinationv1.Lease) (news, pods bool) {
	now := a.clock.Now()
	renewed := time.Time{}
	if l.Spec.RenewTime != nil {
		renewed = l.Spec.RenewTime.Time
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s, known := a.seen[l.Name]
	if !known {
		s = &sight{}
		a.seen[l.Name] = s
	}
	if !known || !s.renewed.Equal(renewed) {
		s.renewed, s.at = renewed, now
	}
	s.held = ptr.Deref(l.Spec.HolderIdentity, "") != "" && l.DeletionTimestamp == nil
	s.term = min(max(time.Duration(ptr.Deref(l.Spec.LeaseDurationSeconds, 0))*time.Second, leastTerm), mostTerm)
	news = !known
	if text := l.Annotations[v1alpha1.AnnotationTunnels]; !known || text != s.text {
		s.text, s.reports, news = text, read[v1alpha1.TunnelReport](text), true
	}
	if text := l.Annotations[v1alpha1.AnnotationAppliedPods]; text != s.known {
		s.known, s.applied, pods = text, read[v1alpha1.AppliedPods](text), true
	}
	if text := l.Annotations[v1alpha1.AnnotationNetworks]; text != s.near {
		s.near, s.networks, news = text, ipam.ParseNetworks(text, v1alpha1.MaxNetworks), true
	}
	return news || a.differs(now), pods
}

// maxReports bounds the text of an agent's reports, in bytes.
const maxReports = 256 << 10

// read reads what an agent says of tunnels, by their keys. What cannot be read says nothing.
func read[T any](text string) map[string]T {
	var reports map[string]T
	if len(text) > maxReports || json.Unmarshal([]byte(text), &reports) != nil {
		return nil
	}
	return reports
}

// fill sees all Leases there are, so that the first look does not take agents for dead of which
// nothing was told yet.
func (a *agents) fill(ctx context.Context, leases client.Reader) error {
	list := &coordinationv1.LeaseList{}
	if err := leases.List(ctx, list); err != nil {
		return fmt.Errorf("listing the Leases of agents: %w", err)
	}
	for i := range list.Items {
		a.see(&list.Items[i])
	}
	return nil
}

// gone forgets a Lease.
func (a *agents) gone(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.seen, node)
}

// differs says whether other agents live than was told. The caller holds the lock.
func (a *agents) differs(now time.Time) bool {
	alive, fit := a.count(now)
	return !slices.Equal(alive, a.alive) || !slices.Equal(fit, a.fit)
}

func (a *agents) count(now time.Time) (alive, fit []string) {
	for _, node := range slices.Sorted(maps.Keys(a.seen)) {
		if a.seen[node].alive(now) {
			alive = append(alive, node)
		}
		if a.seen[node].candidate(now) {
			fit = append(fit, node)
		}
	}
	return alive, fit
}

// now returns the agents there are, by node, the nodes that may be gateway, and those that may when
// their agents are back.
func (a *agents) now() (all []agent, candidates, away []string) {
	now := a.clock.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.alive, a.fit = a.count(now)
	all = a.list(now)
	for _, of := range all {
		if !slices.Contains(a.fit, of.node) {
			away = append(away, of.node)
		}
	}
	return all, slices.Clone(a.fit), away
}

// peek returns the agents there are, and is no look: what is new is told still.
func (a *agents) peek() []agent {
	now := a.clock.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.list(now)
}

// list returns the agents there are. The caller holds the lock.
func (a *agents) list(now time.Time) (all []agent) {
	for _, node := range slices.Sorted(maps.Keys(a.seen)) {
		all = append(all, agent{node: node, alive: a.seen[node].alive(now), reports: a.seen[node].reports, applied: a.seen[node].applied, networks: a.seen[node].networks})
	}
	return all
}

// tell says that something is new.
func (a *agents) tell() {
	if a.heard != nil {
		a.heard()
	}
}

// Start looks for Leases that run out, until ctx ends. Of those it cannot learn otherwise.
func (a *agents) Start(ctx context.Context) error {
	a.wake()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		a.mu.Lock()
		differs := a.differs(a.clock.Now())
		a.mu.Unlock()
		if differs {
			a.tell()
			a.wake()
		}
	}
}

// wake has everything looked at.
func (a *agents) wake() {
	select {
	case a.changed <- event.GenericEvent{Object: &corev1.Node{}}:
	default: // one is waiting already
	}
}

// handler takes Leases, and asks for a look when something about them is new: they are
// renewed more often than anything should be looked at.
func (a *agents) handler() handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	take := func(q queue, obj client.Object) {
		l, ok := obj.(*coordinationv1.Lease)
		if !ok {
			return
		}
		news, pods := a.see(l)
		if news || pods {
			a.tell()
		}
		if news {
			q.Add(whole)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { take(q, e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) { take(q, e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			a.gone(e.Object.GetName())
			a.tell()
			q.Add(whole)
		},
	}
}
