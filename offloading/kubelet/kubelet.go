// Package kubelet is the kubelet's API of every virtual node: a port each, at which
// the API server and those who gather metrics find logs, exec, attach, port-forward,
// the pods and what they use. What concerns a pod is carried to the API server of the
// provider that runs it, as bytes, with this cluster's own credential there. Every
// request is authenticated and authorised first, as kubelets do. It reads Nodes, pods
// and ShadowPods, changes none of them, and keeps nothing of a peer's answers.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/access"
	"github.com/pelago-dev/pelago/internal/throttle"
	"github.com/pelago-dev/pelago/internal/trust"
	"github.com/pelago-dev/pelago/offloading/stats"
)

const (
	// component is the value of v1alpha1.LabelManagedBy on signing requests.
	component = "kubelet"
	// firstPort is the lowest port of virtual nodes; ports is how many there may be.
	firstPort = 10350
	ports     = 1024
	// remembered and questions bound the gate, which all nodes share.
	remembered = 4096
	questions  = 32
	// podsOfNode is the name of the index of pods by the node they are bound to.
	podsOfNode = "pelago.dev/kubelet-node"
)

// Stats is what the pods of this cluster use at a provider.
type Stats interface {
	// Pods returns the usage of this cluster's pods at the provider of a peering.
	Pods(ctx context.Context, peering string) ([]stats.Pod, error)
}

// Options are what the virtual nodes' ports need. Fleet is required.
type Options struct {
	// Fleet is the connections to providers.
	Fleet Fleet
	// Address to listen on, without a port; all if empty.
	Address string
	// FirstPort is where ports begin; 10350 if zero.
	FirstPort int32
	// Stats tells what pods use; nobody does if nil.
	Stats Stats
	// Authorities of callers with certificates; followed by this room itself if nil.
	Authorities *access.Authorities
	// Clock is the real one if nil.
	Clock clock.Clock
	// Metrics is controller-runtime's registry if nil.
	Metrics prometheus.Registerer
}

// +kubebuilder:rbac:groups="",resources=nodes;pods,verbs=get;list;watch

// Register adds the ports of virtual nodes to a manager. They are open while it leads.
func Register(mgr ctrl.Manager, o Options) (*Kubelets, error) {
	if err := o.complete(mgr); err != nil {
		return nil, err
	}
	if err := o.Fleet.Watch(&v1alpha1.ShadowPod{}); err != nil {
		return nil, fmt.Errorf("watching at providers: %w", err)
	}
	err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.Pod{}, podsOfNode, func(o client.Object) []string {
		if pod, ok := o.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
			return []string{pod.Spec.NodeName}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("indexing pods by node: %w", err)
	}
	counted, err := newMetrics(o.Metrics)
	if err != nil {
		return nil, err
	}
	gate := access.New(access.Options{
		Ask: trust.Ask(mgr.GetClient()), Authorities: o.Authorities, Clock: o.Clock, Logger: mgr.GetLogger().WithName("kubelet"),
		Remembered: remembered, Questions: questions,
	})
	k := newKubelets(o, home{client: mgr.GetClient(), fleet: o.Fleet}, gate, counted, mgr.GetLogger().WithName("kubelet"))
	if err := mgr.Add(k); err != nil {
		return nil, fmt.Errorf("adding the ports of virtual nodes: %w", err)
	}
	r := &reconciler{
		client: mgr.GetClient(), fleet: o.Fleet, kubelets: k,
		certificates: newCertificates(mgr.GetAPIReader(), mgr.GetClient(), o.Clock),
	}
	err = ctrl.NewControllerManagedBy(mgr).Named("kubelet").
		For(&corev1.Node{}, builder.WithPredicates(predicate.Or(predicate.NewPredicateFuncs(isVirtual), unlabelled()))).
		WatchesRawSource(o.Fleet.StateSource(r.nodesOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: 8, RateLimiter: throttle.NewLimiter()}).
		Complete(r)
	if err != nil {
		return nil, fmt.Errorf("adding the virtual nodes' ports: %w", err)
	}
	return k, nil
}

// complete fills in what was left out.
func (o *Options) complete(mgr ctrl.Manager) error {
	switch {
	case o.Fleet == nil:
		return errors.New("the fleet is missing")
	case o.Address != "" && net.ParseIP(o.Address) == nil:
		return fmt.Errorf("the address %q to listen on is not an IP address", o.Address)
	}
	if o.FirstPort == 0 {
		o.FirstPort = firstPort
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = ctrlmetrics.Registry
	}
	if o.Authorities != nil {
		return nil
	}
	followed, err := trust.Follow(mgr)
	if err != nil {
		return err
	}
	o.Authorities = followed
	return nil
}

// isVirtual reports whether a node is one of ours.
func isVirtual(o client.Object) bool {
	return o.GetLabels()[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode
}

// nodesOf are the virtual nodes of a peering whose connection has changed.
func (r *reconciler) nodesOf(peering string) []reconcile.Request {
	var requests []reconcile.Request
	for _, name := range r.kubelets.nodesOf(peering) {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	}
	return requests
}
