// Package agent makes the network of one node what the cluster's peerings need, as long as
// it runs: it reads the API, has the plan computed, and runs data plane, tunnels and probes
// of its node. It says that it is alive by a Lease, in which it also reports on the tunnels
// that end here. It writes nothing else, and decides nothing that all agents do not decide
// alike: who is gateway follows from the Leases, views from NetworkConfigs.
//
// What outlives its process, namespaces and TUN devices, it has held by a Keeper.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/health"
	"github.com/pelago-dev/pelago/network/holder"
	"github.com/pelago-dev/pelago/network/plan"
)

// Keeper holds files over the end of this process; holder.Client is one.
type Keeper interface {
	// Hold holds a file, instead of one of the same kind and name.
	Hold(kind holder.Kind, name string, file *os.File) error
	// Drop lets go of it.
	Drop(kind holder.Kind, name string) error
	// Last remembers where the other side of a tunnel was.
	Last(name string, at netip.AddrPort) error
}

// nobody keeps nothing.
type nobody struct{}

func (nobody) Hold(holder.Kind, string, *os.File) error { return nil }
func (nobody) Drop(holder.Kind, string) error           { return nil }
func (nobody) Last(string, netip.AddrPort) error        { return nil }

// Options are what an agent needs.
type Options struct {
	// Node is the name of this node.
	Node string
	// Namespace is where Leases and keys are; NetworkNamespace if empty.
	Namespace string
	// Config reaches the API server, without a limit of its own.
	Config *rest.Config
	// Host is the network namespace of the node, nil for that of this process.
	Host *os.File
	// Keeper holds what is to outlive this process; nobody if nil. Left is what it held for
	// an earlier one, and the agent's from now on.
	Keeper Keeper
	Left   holder.Left
	// Follows is that the earlier one has just ended: it may have been gateway a moment ago, and
	// nobody can have taken over since.
	Follows bool
	// Userspace does without the kernel's WireGuard.
	Userspace bool
	// Names answers for home's names of tenants' pods; nil if nobody does.
	Names *Names
	// Registry takes the agent's metrics.
	Registry prometheus.Registerer
	// Log is told what changes, and what goes wrong.
	Log logr.Logger
}

// Agent is the network of one node.
type Agent struct {
	options Options
	lease   lease
	cluster *cluster
	plane   *dataplane.Kernel
	tunnels *tunnels
	names   *names // nil if nobody answers for names
	meter   *meter
	ledger  *ledger
	crowds  *crowds
	// work, renewal and telling have room for one: there is something to do.
	work, renewal, telling chan struct{}
	saying                 sync.Mutex
	began                  time.Time

	mu      sync.Mutex
	sight   sight
	tenure  tenure
	gateway bool
	ready   error
	// networks is what the Lease is to say of them, nil as long as that is not known.
	networks *string
	// mtu is what the Lease is to say of it, nil as long as that is not known.
	mtu *string
	// away and hosts are whose pods are away and here, and unreached how many addresses are not
	// reached in a peering, as in the last plan.
	away      map[string][]string
	hosts     map[string]string
	recent    map[string]health.Recent // as hosts
	unreached map[string]int
	// stale are the peerings whose gateways here are not what the last plan says.
	stale map[string]stale
	// uses are those of the direct paths here.
	uses uses
}

// errStarting is why an agent is not ready before its first plan was applied.
var errStarting = errors.New("nothing was applied yet")

// New opens the node's network and changes nothing.
func New(o Options) (*Agent, error) {
	o.Namespace = cmp.Or(o.Namespace, v1alpha1.NetworkNamespace)
	if o.Keeper == nil {
		o.Keeper = nobody{}
	}
	a := &Agent{
		options: o, work: make(chan struct{}, 1), renewal: make(chan struct{}, 1), telling: make(chan struct{}, 1),
		began: time.Now(), ready: errStarting,
	}
	held := &spaces{keeper: o.Keeper}
	held.adopt(o.Left.Namespaces)
	var err error
	if a.plane, err = dataplane.New(dataplane.Options{Host: o.Host, Namespaces: held}); err != nil {
		return nil, err
	}
	measures, err := health.NewMetrics(o.Registry)
	if err != nil {
		return nil, err
	}
	known := o.Left.Notes[namesNote] // all others are of tunnels
	delete(o.Left.Notes, namesNote)
	a.tunnels = newTunnels(o, held, measures, a.stirred, func() { signal(a.work) })
	a.tunnels.numbered, a.tunnels.heralded = a.numbered, a.heralded
	if a.meter, err = newMeter(o.Registry, a.plane, a.tunnels); err != nil {
		return nil, err
	}
	if a.ledger, err = newLedger(o.Registry, held, o.Log); err != nil {
		return nil, err
	}
	a.crowds = &crowds{spaces: held, log: o.Log, changed: func() { signal(a.work) }}
	if a.cluster, err = newCluster(o, func() { signal(a.work) }, func() { signal(a.telling) }, a.saw); err != nil {
		return nil, err
	}
	if o.Names != nil {
		if a.names, err = newNames(o, a.cluster, known); err != nil {
			return nil, err
		}
	}
	a.lease = lease{client: a.cluster.direct, namespace: o.Namespace, node: o.Node, log: o.Log}
	return a, nil
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it will be seen anyway
	}
}

// stirred is told that a tunnel came to life or died, or what its peer has told: of a path that
// is where packets go.
func (a *Agent) stirred(key string) {
	signal(a.renewal)
	if isPath(key) {
		signal(a.work)
	}
}

// Ready says why what is wanted is not so, nil if it is.
func (a *Agent) Ready(*http.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ready
}

// Run works until ctx ends, and then leaves the node as it is right for one without an
// agent: what is for peers goes by the gateways of others, or nowhere. If the agents are
// being uninstalled it removes everything.
func (a *Agent) Run(ctx context.Context) error {
	defer a.plane.Close()
	group, inner := errgroup.WithContext(ctx)
	group.Go(func() error { return a.cluster.run(inner) })
	group.Go(func() error { a.renew(inner); return nil })
	group.Go(func() error { a.look(inner); return nil })
	group.Go(func() error { a.survey(inner); return nil })
	group.Go(func() error { a.crowds.watch(inner); return nil })
	group.Go(func() error { a.recite(inner); return nil })
	group.Go(func() error { a.heed(inner); return nil })
	group.Go(func() error { return a.answer(inner) })
	group.Go(func() error {
		if !a.wait(inner) {
			return nil
		}
		a.labour(inner)
		return nil
	})
	err := group.Wait()
	a.ledger.close(nil)
	if err != nil {
		return fmt.Errorf("running the agent: %w", err)
	}
	return a.leave(context.WithoutCancel(ctx))
}

// The pace of work: so soon after each other, at least so often, and so soon after an error.
const (
	paceLeast = 100 * time.Millisecond
	paceMost  = 3 * time.Second
	paceAgain = 500 * time.Millisecond
)

// labour applies plans: when something has changed, here or in the kernel, and every few
// seconds.
func (a *Agent) labour(ctx context.Context) {
	notices, err := a.plane.Watch(ctx)
	if err != nil {
		a.options.Log.Error(err, "the kernel cannot be watched, and is looked at every few seconds")
	}
	for all := true; ctx.Err() == nil; {
		began := time.Now()
		next := a.step(ctx, all)
		all = a.idle(ctx, notices, next)
		pause(ctx, time.Until(began.Add(paceLeast)))
	}
}

// idle waits until there is something to do, at most for a time, and reports whether that may
// be anything.
func (a *Agent) idle(ctx context.Context, notices <-chan struct{}, most time.Duration) (all bool) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	var looks <-chan time.Time
	if a.tunnels.doubting() {
		ticker := time.NewTicker(doubtLook)
		defer ticker.Stop()
		looks = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return false
		case <-a.work:
			return false
		case <-notices:
			return true
		case <-timer.C:
			return true
		case now := <-looks:
			if a.tunnels.stirred(now) {
				return false
			}
		}
	}
}

// pause waits, but not beyond ctx.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// step applies what follows from all that is known now, and returns when to do so again.
// With all it also looks after what it thinks is so already.
func (a *Agent) step(ctx context.Context, all bool) time.Duration {
	a.mu.Lock()
	known := a.tenure.known()
	a.mu.Unlock()
	if !known {
		return a.linger(ctx) // the first renewal brings us back
	}
	k, p, doubt, until := a.plan()
	a.knows(k)
	set, broken, err := a.apply(ctx, p, k, doubt, all)
	if set {
		a.applied(k, broken)
	}
	if ctx.Err() != nil {
		return 0
	}
	a.meter.told(a.options.Log, slices.Concat(p.Problems, k.problems, a.tunnels.problems()), err)
	a.mu.Lock()
	a.ready = err
	gateway := len(p.Config.Gateways) > 0
	changed := gateway != a.gateway
	a.gateway = gateway
	a.mu.Unlock()
	if changed {
		signal(a.renewal)
	}
	next := paceMost
	if err != nil {
		next = paceAgain
	}
	if left := time.Until(until); gateway && left > 0 {
		next = min(next, left+time.Millisecond)
	}
	return k.wait(next, time.Now())
}

// plan is what follows, whether others may have taken over the gateways here, and until when
// they have not.
func (a *Agent) plan() (known, plan.Plan, doubt, time.Time) {
	a.cluster.rations.Begin(time.Now())
	f := a.cluster.facts()
	a.mu.Lock()
	f.alive, f.mtus = a.sight.all(), a.sight.mtus()
	delete(f.alive, f.self)
	others := len(f.alive)
	if a.tenure.alive() {
		f.alive[f.self] = true
	}
	inDoubt, until := a.tenure.doubt(time.Now(), others > 0), a.tenure.until
	a.mu.Unlock()
	if mtu := a.cluster.mtuHere(f.nodes); mtu > 0 {
		f.mtus[f.self] = mtu
		a.carries(mtu)
	}
	f.heard = a.tunnels.heard()
	paths := f.pathKeys()
	carrying, steady := a.tunnels.carrying(paths, f.now)
	a.tunnels.forget(f.tunnelKeys(paths))
	f.carrying = carrying
	k := input(f)
	k.again = sooner(k.again, steady)
	p := plan.Compute(k.input)
	if len(k.input.Peerings) == 0 {
		p.Config, p.Problems = dataplane.Config{}, nil // nothing of ours without a peer
	}
	a.crowds.limit(p.Config.Gateways)
	if len(p.Config.Gateways) > 0 {
		a.ledger.own(owners(f, k.input.Pods), time.Now())
	}
	return k, p, doubt{inDoubt, others}, until
}

// carries has this node's Lease say its MTU.
func (a *Agent) carries(mtu int) {
	text := strconv.Itoa(mtu)
	a.mu.Lock()
	news := a.mtu == nil || *a.mtu != text
	if news {
		a.mtu = &text
	}
	a.mu.Unlock()
	if news {
		signal(a.renewal)
	}
}

// apply makes the node what a plan says, and its tunnels what is right in doubt. It reports whether
// the data plane is what the plan says, but for some gateways, whose tunnels stay as they are.
func (a *Agent) apply(ctx context.Context, p plan.Plan, k known, d doubt, all bool) (set bool, broken dataplane.GatewaysError, err error) {
	want, locked := of(p, k.secrets)
	a.tunnels.avoid(p.Places)
	want = a.tunnels.hesitate(want, d, time.Now())
	err = a.tunnels.close(want)
	a.ledger.close(p.Config.Gateways)
	for _, key := range locked {
		a.tunnels.say(key, errNoKey)
	}
	failed := a.plane.Set(ctx, p.Config)
	if failed != nil && !errors.As(failed, &broken) {
		return false, nil, errors.Join(err, failed)
	}
	whole := slices.DeleteFunc(slices.Clone(p.Config.Gateways), func(g dataplane.Gateway) bool { return broken[g.Peering] != nil })
	a.ledger.open(whole, k.providers()) // before anything goes by a tunnel
	made, wrong := a.tunnels.open(a.tunnels.leave(want, broken), all)
	err, set = errors.Join(err, failed, wrong), true
	if made {
		failed := a.plane.Set(ctx, p.Config) // with the new devices
		err, broken = errors.Join(err, failed), nil
		set = failed == nil || errors.As(failed, &broken)
	}
	return set, broken, errors.Join(err, a.tunnels.probe(ctx, want))
}
