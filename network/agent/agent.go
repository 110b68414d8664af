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
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/dns"
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
	names   *dns.Server // nil if nobody answers for names
	meter   *meter
	// work and renewal have room for one: there is something to do.
	work, renewal chan struct{}

	mu      sync.Mutex
	sight   sight
	tenure  tenure
	gateway bool
	ready   error
	// networks is what the Lease is to say of them, nil as long as that is not known.
	networks *string
}

// errStarting is why an agent is not ready before its first plan was applied.
var errStarting = errors.New("nothing was applied yet")

// New opens the node's network and changes nothing.
func New(o Options) (*Agent, error) {
	o.Namespace = cmp.Or(o.Namespace, v1alpha1.NetworkNamespace)
	if o.Keeper == nil {
		o.Keeper = nobody{}
	}
	a := &Agent{options: o, work: make(chan struct{}, 1), renewal: make(chan struct{}, 1), ready: errStarting}
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
	a.tunnels = newTunnels(o, held, measures, func() { signal(a.renewal) })
	if a.meter, err = newMeter(o.Registry, a.plane, a.tunnels); err != nil {
		return nil, err
	}
	if a.cluster, err = newCluster(o, func() { signal(a.work) }, a.saw); err != nil {
		return nil, err
	}
	if o.Names != nil {
		if a.names, err = newNames(o, a.cluster); err != nil {
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
	group.Go(func() error { return a.answer(inner) })
	group.Go(func() error {
		if !a.cluster.wait(inner) {
			return nil
		}
		a.labour(inner)
		return nil
	})
	err := group.Wait()
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
		all = false
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-a.work:
		case <-notices:
			all = true
		case <-timer.C:
			all = true
		}
		timer.Stop()
		pause(ctx, time.Until(began.Add(paceLeast)))
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
		return paceAgain // what an earlier agent has left goes on; the first renewal brings us back
	}
	k, p, lost, until := a.plan()
	err := a.apply(ctx, p, k, lost, all)
	if ctx.Err() != nil {
		return 0
	}
	a.meter.told(a.options.Log, append(p.Problems, k.problems...), err)
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
	if left := time.Until(until); gateway && !lost && left > 0 {
		next = min(next, left+time.Millisecond)
	}
	return next
}

// plan is what follows, whether the gateways here may have been taken over, and until when
// they have not.
func (a *Agent) plan() (known, plan.Plan, bool, time.Time) {
	a.cluster.rations.Begin(time.Now())
	f := a.cluster.facts()
	a.mu.Lock()
	f.alive = a.sight.all()
	delete(f.alive, f.self)
	others := len(f.alive) > 0
	if a.tenure.alive() {
		f.alive[f.self] = true
	}
	lost, until := a.tenure.lost(time.Now(), others), a.tenure.until
	a.mu.Unlock()
	f.mtu = a.cluster.mtuHere(f.nodes)
	k := input(f)
	p := plan.Compute(k.input)
	if len(k.input.Peerings) == 0 {
		p.Config, p.Problems = dataplane.Config{}, nil // nothing of ours without a peer
	}
	return k, p, lost, until
}

// apply makes the node what a plan says. Tunnels that others may have go at once.
func (a *Agent) apply(ctx context.Context, p plan.Plan, k known, lost, all bool) error {
	want, locked := of(p, k.secrets)
	if lost {
		want, locked = nil, nil
	}
	err := a.tunnels.close(want)
	for _, key := range locked {
		a.tunnels.say(key, errNoKey)
	}
	if failed := a.plane.Set(ctx, p.Config); failed != nil {
		return errors.Join(err, failed)
	}
	made, failed := a.tunnels.open(want, all)
	err = errors.Join(err, failed)
	if made {
		err = errors.Join(err, a.plane.Set(ctx, p.Config)) // with the new devices
	}
	return errors.Join(err, a.tunnels.probe(ctx, want))
}
