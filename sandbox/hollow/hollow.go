// Package hollow is the kubelet of nodes that run nothing: it registers Nodes,
// renews their Leases, and writes into the status of pods bound to them what a
// kubelet would write, after a stated delay. One process serves all hollow
// nodes of a cluster with one watch. It never starts a container, mounts a
// volume, answers for logs or exec, or touches what is not on its nodes.
package hollow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// EndsAfter is the annotation of pods that end well by themselves: how long
// after its start the pod is Succeeded, as Go writes durations ("30s").
const EndsAfter = "sandbox.pelago.dev/ends-after"

// Taint is the key of the taint that keeps pods off hollow nodes unless they
// tolerate it, and of the label that every hollow node carries.
const Taint = "sandbox.pelago.dev/hollow"

// Options say which nodes are served and how. They are the file that the
// program is started with.
type Options struct {
	// Kubeconfig is the file of an administrator's access.
	Kubeconfig string `json:"kubeconfig"`
	// Nodes are the names of the hollow nodes.
	Nodes []string `json:"nodes"`
	// Labels are put on every node.
	Labels map[string]string `json:"labels,omitempty"`
	// Tainted: no pod lands on the nodes that does not tolerate Taint.
	Tainted bool `json:"tainted,omitempty"`
	// Addresses are what pods say of their node's, the same for all: one per IP family.
	Addresses []netip.Addr `json:"addresses"`
	// PodRanges are the cluster's, one per IP family; pods get addresses of
	// their upper halves.
	PodRanges []netip.Prefix `json:"podRanges"`
	// Version is what the nodes say their kubelet is.
	Version string `json:"version"`
	// Start is how long after it was seen a bound pod runs, in nanoseconds.
	Start time.Duration `json:"start"`
}

// ReadOptions reads the file of Options.
func ReadOptions(path string) (Options, error) {
	var o Options
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &o)
	}
	if err != nil {
		return o, fmt.Errorf("reading the hollow nodes: %w", err)
	}
	return o, nil
}

// Run serves the nodes until ctx ends. It returns early only if the options
// cannot be used; an API server that is away is waited for.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading kubeconfig of the hollow nodes: %w", err)
	}
	return serve(ctx, config, o, log)
}

func serve(ctx context.Context, config *rest.Config, o Options, log *slog.Logger) error {
	config = rest.CopyConfig(config)
	config.QPS = -1 // the API server's fairness is the only limit
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	config.UserAgent = "pelago-hollow"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("connecting hollow nodes: %w", err)
	}
	addresses, err := newPool(o.PodRanges)
	if err != nil {
		return err
	}
	var group sync.WaitGroup
	for i, name := range o.Nodes {
		n := &node{name: name, options: o, client: client, log: log.With("node", name)}
		group.Go(func() { n.beat(ctx, renewInterval*time.Duration(i)/time.Duration(len(o.Nodes))) })
	}
	k := newKubelet(client, o, addresses, log)
	err = k.run(ctx)
	group.Wait()
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// taints are what a hollow node has for them.
func (o Options) taints() []corev1.Taint {
	if !o.Tainted {
		return nil
	}
	return []corev1.Taint{{Key: Taint, Effect: corev1.TaintEffectNoSchedule}}
}
