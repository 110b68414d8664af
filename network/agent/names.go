package agent

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/network/dns"
)

// Names is what answers on a node for home's names of tenants' pods.
type Names struct {
	// Upstream are the addresses of the cluster's DNS, Domain is that of the cluster.
	Upstream []string
	Domain   string
}

// newNames makes the server, and an index that follows the pods and namespaces of tenants.
func newNames(o Options, c *cluster) (*dns.Server, error) {
	index := dns.NewIndex(o.Node)
	for kind, handler := range map[kube.Object]toolscache.ResourceEventHandler{
		&corev1.Pod{}:       tell(index.SetPod, index.DeletePod),
		&corev1.Namespace{}: tell(index.SetNamespace, func(_, name string) { index.DeleteNamespace(name) }),
	} {
		if err := c.main.Listen(kind, handler); err != nil {
			return nil, err
		}
	}
	metrics, err := dns.NewMetrics(o.Registry)
	if err != nil {
		return nil, err
	}
	server, err := dns.New(dns.Options{
		Host: o.Host, Upstream: o.Names.Upstream, Domain: o.Names.Domain, Clients: index.Client, Metrics: metrics, Log: o.Log.WithName("names"),
	})
	if err != nil {
		return nil, fmt.Errorf("making the server for names: %w", err)
	}
	return server, nil
}

// tell passes on what there is, and what is gone.
func tell[T kube.Object](set func(T), gone func(namespace, name string)) toolscache.ResourceEventHandler {
	is := func(o any) {
		if o, ok := o.(T); ok {
			set(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: is, UpdateFunc: func(_, after any) { is(after) },
		DeleteFunc: func(o any) {
			if last, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = last.Obj
			}
			if o, ok := o.(kube.Object); ok {
				gone(o.GetNamespace(), o.GetName())
			}
		},
	}
}

// answer answers for names until ctx ends.
func (a *Agent) answer(ctx context.Context) error {
	if a.names == nil || !a.cluster.wait(ctx) {
		return nil
	}
	return a.names.Run(ctx)
}
