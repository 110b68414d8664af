package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// leave gives this node's gateways up.
func (a *Agent) leave(ctx context.Context) error {
	a.mu.Lock()
	a.tenure.left = true
	gateway, ready := a.gateway, a.ready
	a.mu.Unlock()
	none := ""
	limited, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	// The tunnels' reports go with it: nobody answers for them any more.
	_, given := a.lease.write(limited, content{term: idleTerm, now: time.Now(), tunnels: &none})
	if given != nil {
		a.options.Log.Info("this node's Lease could not be given up, and runs out", "error", given.Error())
	}
	working, stop := context.WithTimeout(ctx, leaveKernel)
	defer stop()
	if a.uninstalled(ctx) {
		a.options.Log.Info("the agents are being uninstalled: everything of ours goes from this node")
		return errors.Join(a.tunnels.close(nil), a.plane.Set(working, dataplane.Config{}), dns.Remove(a.options.Host, dns.Address()))
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
	k, p, _, _ := a.plan()
	p.Config = closed(p.Config)
	return a.apply(working, p, k, true, false)
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

// uninstalled says whether the agents are not wanted any more. An API server that does not
// answer has not said so.
func (a *Agent) uninstalled(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, leavePatience)
	defer cancel()
	d := &appsv1.DaemonSet{}
	err := a.lease.client.Get(limited, client.ObjectKey{Namespace: a.options.Namespace, Name: v1alpha1.AgentName}, d)
	return unwanted(d, err)
}

func unwanted(d *appsv1.DaemonSet, err error) bool {
	if err != nil {
		return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	}
	return d.DeletionTimestamp != nil
}
