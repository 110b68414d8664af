package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/network/dataplane"
	"github.com/pelago-dev/pelago/network/dns"
)

// The times of an end: for the API server, for others to take over, and for the kernel.
const (
	leavePatience = 2 * time.Second
	leaveHandover = 300 * time.Millisecond
	leaveKernel   = 10 * time.Second
)

// leave gives this node's gateways up, and takes away all that was made where no agent is wanted.
func (a *Agent) leave(ctx context.Context) error {
	a.mu.Lock()
	a.tenure.left = true
	gateway, ready := a.gateway, a.ready
	a.mu.Unlock()
	none := ""
	limited, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	// The tunnels' reports go with it: nobody answers for them any more.
	_, given := a.lease.write(limited, content{term: nextTerm, now: time.Now(), tunnels: &none, applied: &none})
	if given != nil {
		a.options.Log.Info("this node's Lease could not be given up, and runs out", "error", given.Error())
	}
	working, stop := context.WithTimeout(ctx, leaveKernel)
	defer stop()
	if why := a.reason(ctx, given).unwanted(); why != "" {
		a.options.Log.Info("everything of ours goes from this node", "reason", why)
		return errors.Join(a.tunnels.close(nil), a.last(working, dataplane.Config{}), dns.Remove(a.options.Host))
	}
	if errors.Is(ready, errStarting) {
		return nil // what an earlier agent has left is better than what is half known
	}
	if given != nil {
		a.mu.Lock()
		a.tenure.left = false // others go on thinking that this node is gateway
		a.mu.Unlock()
	} else if gateway {
		pause(working, leaveHandover)
	}
	_, p, _, _ := a.plan()
	return errors.Join(a.tunnels.close(nil), a.last(working, closed(p.Config)))
}

// last makes the kernel what a config says. No later step would do what fails now.
func (a *Agent) last(ctx context.Context, c dataplane.Config) error {
	return untilDone(ctx, func() error { return a.plane.Set(ctx, c) })
}

// untilDone tries something again until it succeeds or there is no more time for it.
func untilDone(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if pause(ctx, paceAgain); ctx.Err() != nil {
			return err
		}
	}
}

// closed is a config without gateways. What went by these goes nowhere: to another node
// it would come back from.
func closed(c dataplane.Config) dataplane.Config {
	c.Gateways, c.Routes = nil, slices.Clone(c.Routes)
	for i := range c.Routes {
		if c.Routes[i].Gateway != "" {
			c.Routes[i] = dataplane.Route{Prefix: c.Routes[i].Prefix}
		}
	}
	return c
}

// +kubebuilder:rbac:groups=apps,resources=daemonsets,resourceNames=pelago-agent,verbs=get,namespace=pelago-network,roleName=pelago-agent

// end is what an agent knows when it ends of why.
type end struct {
	// set is the agents' DaemonSet and node this Node, if there was no error.
	set             *appsv1.DaemonSet
	node            *corev1.Node
	setErr, nodeErr error
	// given is why the Lease could not be given up, and idle how long ago it was renewed.
	given error
	idle  time.Duration
}

// rightsLost is how long before its end an agent may have renewed its Lease whose rights were taken
// away as part of an uninstall.
const rightsLost = time.Minute

// reason reads what there is to know at an end. An API server that does not answer says nothing.
func (a *Agent) reason(ctx context.Context, given error) end {
	limited, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	a.mu.Lock()
	e := end{set: &appsv1.DaemonSet{}, node: &corev1.Node{}, given: given, idle: time.Since(a.tenure.last)}
	a.mu.Unlock()
	e.setErr = a.lease.client.Get(limited, types.NamespacedName{Namespace: a.options.Namespace, Name: v1alpha1.AgentName}, e.set)
	e.nodeErr = a.lease.client.Get(limited, types.NamespacedName{Name: a.options.Node}, e.node)
	return e
}

// unwanted is why no agent is wanted on this node any more, "" if one is or if that is not sure: an
// update or a restart must not cut what goes by this node. It is pure.
//
// That the rights are gone says little by itself: an owner may have changed them, or the API server
// its keys, and agents that are restarted then would take all nodes' networks with them. But tools
// that delete everything at once take the rights within seconds of the pods. So it counts only of
// an agent that could renew its Lease a moment ago, and now may neither write that nor read.
func (e end) unwanted() string {
	refused := func(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }
	switch {
	case apierrors.IsNotFound(e.setErr), e.setErr == nil && e.set.DeletionTimestamp != nil:
		return "the agents are being uninstalled"
	case refused(e.setErr) && refused(e.given) && e.idle < rightsLost:
		return "the agents' rights have just been taken away, as when they are uninstalled"
	case e.setErr != nil || e.nodeErr != nil:
		return ""
	}
	wants := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: e.set.Spec.Template.Spec})
	if match, err := wants.Match(e.node); err == nil && !match {
		return "the agents' DaemonSet does not select this node any more"
	}
	return ""
}
