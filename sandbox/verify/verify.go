// Package verify proves that a cluster does what people expect of Kubernetes:
// it runs pods, Services, volumes and workloads through the cluster's own API
// and nodes, then takes a node and the API server away. It works in a namespace
// of its own and removes it. It never changes anything else in the cluster,
// never looks inside the sandbox, and never runs kubectl: what it proves of a
// sandbox cluster it can prove of any other.
package verify

import (
	"context"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Target is the cluster to verify and the caller's hold on it.
type Target struct {
	// Config reaches the API server as an administrator.
	Config *rest.Config
	// Cluster is the cluster's name, for messages only.
	Cluster string
	// Nodes are the names of the nodes that run pods. The last is the one that
	// gets stopped.
	Nodes []string
	// Families are the IP families every pod and Service is to have; empty
	// demands nothing.
	Families []corev1.IPFamily
	// Busybox is an image that every node has already: busybox with its commands
	// on the PATH and /bin/sh.
	Busybox string
	// Addons holds the add-ons the cluster was configured with, by their names in
	// package config. A check whose add-on is not there is skipped.
	Addons map[string]bool
	// StopNode and StartNode pull and push back the plug of a node. Without them
	// that check is skipped.
	StopNode, StartNode func(ctx context.Context, node string) error
	// PauseAPI and ResumeAPI stop and continue the API server. Without them that
	// check is skipped.
	PauseAPI, ResumeAPI func(ctx context.Context) error
	// Dial connects from the host to node and load-balancer addresses; nil dials
	// as usual.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Result is what became of one check.
type Result struct {
	Name     string
	Duration time.Duration
	// Err is nil for a check that passed or was skipped. It holds the state of the
	// check's pods when it failed.
	Err error
	// Skipped says why a check was not made; empty if it was.
	Skipped string
}

// parallel is how many checks run at once; more would only wait for each other
// on the two cores the sandbox is made for.
const parallel = 3

// Run makes all checks and returns their results in the order of the list.
// Report, unless nil, is called once for each as it ends, never twice at a time.
// The error says that checks could not be made at all; a failed check is in its
// result only. The namespace is removed even if ctx ends early.
func Run(ctx context.Context, t Target, report func(Result)) ([]Result, error) {
	if len(t.Nodes) == 0 || t.Busybox == "" {
		return nil, fmt.Errorf("verifying %s: it needs the names of the nodes and an image", t.Cluster)
	}
	if t.Dial == nil {
		t.Dial = (&net.Dialer{}).DialContext
	}
	t.Config = rest.CopyConfig(t.Config)
	t.Config.QPS = -1 // no limit: waiting for one's own client says nothing about a cluster
	client, err := kubernetes.NewForConfig(t.Config)
	if err != nil {
		return nil, fmt.Errorf("verifying %s: making a client: %w", t.Cluster, err)
	}
	e := &env{Target: t, client: client}
	if err := e.prepare(ctx); err != nil {
		if e.namespace != "" {
			_ = e.remove(context.WithoutCancel(ctx))
		}
		return nil, fmt.Errorf("verifying %s: %w", t.Cluster, err)
	}
	results := runner{one: e.make, report: report, parallel: parallel}.run(ctx, checks())
	if err := ctx.Err(); err != nil {
		return results, fmt.Errorf("verifying %s: %w", t.Cluster, err)
	}
	return results, nil
}
