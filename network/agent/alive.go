package agent

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// lookEvery is how often Leases are looked at at least, and askMost how many are asked
	// for at once, each for askPatience.
	lookEvery   = 500 * time.Millisecond
	askMost     = 16
	askPatience = time.Second
	// renewPause is the least time from one renewal to the next.
	renewPause = 100 * time.Millisecond
	// earlyBurst renewals come as soon as there is something to say, and from then on one in
	// earlyEvery: while many pods come each would be one more write and change what is said a little.
	earlyBurst = 5
	earlyEvery = 300 * time.Millisecond
)

// renew keeps this node's Lease, and says in it how the tunnels are.
func (a *Agent) renew(ctx context.Context) {
	var said told
	var networks, applied, mtu *string // said of them
	var refused time.Time
	failures := 0
	if len(a.options.Left.Namespaces) > 0 { // an earlier process was gateway
		a.mu.Lock()
		a.tenure.led = a.began
		a.mu.Unlock()
	}
	early := rate.NewLimiter(rate.Every(earlyEvery), earlyBurst)
	for ctx.Err() == nil {
		a.mu.Lock()
		began := time.Now()
		t, connected, carries := termOf(a.gateway, a.tenure.is, len(a.sight.all())+1), a.networks, a.mtu
		hurries := a.tenure.hurries(a.gateway, began)
		a.mu.Unlock()
		reports := a.counted(a.tunnels.reports())
		c := content{holder: a.options.Node, term: t, now: began}
		if began.Sub(refused) >= reportEvery {
			if said.due(reports, began) {
				text := reportsText(reports)
				c.tunnels = &text
			}
			if connected != networks {
				c.networks = connected
			}
			if carries != mtu {
				c.mtu = carries
			}
			if text := a.appliedText(); applied == nil || text != *applied {
				c.applied = &text
			}
		}
		limited, cancel := context.WithTimeout(ctx, t.patience())
		was, err := a.lease.write(limited, c)
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			a.mu.Lock()
			news := !a.tenure.ever || !began.Before(a.tenure.until)
			a.tenure.renewed(began, t.holds)
			a.mu.Unlock()
			if news { // it may be gateway, or have its tunnels again
				signal(a.work)
			}
			switch {
			case was.made, was.refused:
				said, networks, applied, mtu = told{}, nil, nil, nil
				if was.refused {
					refused = began
				}
			default:
				if c.tunnels != nil {
					said = told{reports: reports, at: began, known: true}
				}
				if c.networks != nil {
					networks = c.networks
				}
				if c.applied != nil {
					applied = c.applied
				}
				if c.mtu != nil {
					mtu = c.mtu
				}
			}
		}
		if failed := err != nil; failed != (failures > 0) {
			a.options.Log.Info("this node's Lease", "renewed", !failed, "error", message(err))
		}
		failures++
		if err == nil {
			failures = 0
		}
		again := began.Add(t.pause(failures, hurries, rand.Float64()))
		timer := time.NewTimer(time.Until(again))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-a.renewal:
			soon := max(time.Until(began.Add(renewPause)), early.Reserve().Delay())
			pause(ctx, min(soon, time.Until(again)))
			select { // what came meanwhile is said by the renewal that follows
			case <-a.renewal:
			default:
			}
		}
		timer.Stop()
	}
}

func message(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// saw is told what a Lease of another node is, nil if it is gone.
func (a *Agent) saw(node string, l *coordinationv1.Lease) {
	if node == a.options.Node {
		return
	}
	a.mu.Lock()
	changed := a.sight.saw(node, l, time.Now())
	a.cluster.lives(node, a.sight.alive(node))
	a.mu.Unlock()
	if changed {
		signal(a.work)
	}
}

// look asks for the Leases that have run out, until ctx ends.
func (a *Agent) look(ctx context.Context) {
	for ctx.Err() == nil {
		a.mu.Lock()
		nodes, next := a.sight.lapsed(time.Now())
		if a.sight.blind {
			nodes = nodes[:min(len(nodes), 1)] // one is enough to find out
		}
		a.mu.Unlock()
		var asking sync.WaitGroup
		for _, node := range nodes[:min(len(nodes), askMost)] {
			asking.Go(func() { a.ask(ctx, node) })
		}
		asking.Wait()
		wait := lookEvery
		if !next.IsZero() {
			wait = min(wait, time.Until(next)+time.Millisecond)
		}
		pause(ctx, max(wait, 20*time.Millisecond))
	}
}

// ask asks the API server itself what a Lease is.
func (a *Agent) ask(ctx context.Context, node string) {
	limited, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	l := &coordinationv1.Lease{}
	err := a.lease.client.Get(limited, types.NamespacedName{Namespace: a.options.Namespace, Name: v1alpha1.AgentLease(node)}, l)
	if apierrors.IsNotFound(err) {
		l, err = nil, nil
	}
	a.mu.Lock()
	changed := a.sight.asked(node, l, err == nil, time.Now())
	alive := a.sight.alive(node)
	a.cluster.lives(node, alive)
	a.mu.Unlock()
	if changed && !alive {
		a.options.Log.Info("an agent is not alive any more", "node", node)
	}
	if changed {
		signal(a.work)
	}
}
