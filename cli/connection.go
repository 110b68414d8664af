package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

func newExplainConnection(e *Env) *cobra.Command {
	var output, namespace string
	c := &cobra.Command{
		Use:   "connection FROM TO",
		Short: "Walk the way from one pod to another, and stop where it breaks",
		Long: `Shows each thing that has to be so for a pod to reach another one, wherever the two run: that
both run, that there is a network between their clusters, by which address the one sees the
other, that the tunnels on the way carry packets, and that gateways let the connection begin.
FROM and TO are pods of this cluster, NAMESPACE/NAME or NAME. It reads this cluster only; to
try a way, run: pelago test network.`,
		Example: "  pelago explain connection web-0 db-0 -n shop\n  pelago explain connection shop/web-0 bank/db-0",
		Args:    exactly("FROM", "TO"),
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return e.completePods(c, nil, namespace)
		},
		RunE: e.does(func(ctx context.Context, e *Env, args []string) error {
			return explain(ctx, e, args[0], output, func(c *Cluster, ctx context.Context, e *Env, from string) ([]chain.Chain, error) {
				return c.connectionChain(ctx, e, cmp.Or(namespace, c.Namespace, metav1.NamespaceDefault), from, args[1])
			})
		}),
	}
	c.Flags().StringVarP(&namespace, "namespace", "n", "", "the pods' namespace; that of the kubeconfig's context if not given")
	if err := c.RegisterFlagCompletionFunc("namespace", e.completeAnyNamespace); err != nil {
		panic(err) // the flag is there, and registered once
	}
	outputFlag(c, &output)
	return c
}

// connectionChain gathers what is known of the way between two pods and explains it.
func (c *Cluster) connectionChain(ctx context.Context, e *Env, namespace, from, to string) ([]chain.Chain, error) {
	f := chain.ConnectionFacts{At: map[string]string{}, Links: map[string]chain.Link{}}
	for word, pod := range map[string]**corev1.Pod{from: &f.From, to: &f.To} {
		var err error
		if *pod, err = c.podNamed(ctx, namespace, word); err != nil {
			return nil, err
		}
	}
	if f.From == nil || f.To == nil {
		return nil, usage("FROM and TO are the same pod, %s; name two", from)
	}
	s, err := c.gather(ctx)
	if err != nil {
		return nil, err
	}
	for i := range s.nodes {
		f.At[s.nodes[i].Name] = s.nodes[i].Labels[v1alpha1.LabelPeering]
	}
	now := e.Clock.Now()
	reports := s.reports(now)
	for _, t := range s.tunnels() {
		if t.Role != v1alpha1.RoleConsumer {
			continue
		}
		t.look(s.fabric, reports[t.key], now)
		f.Links[t.Name] = chain.Link{Up: t.Tunnel == TunnelUp, Problem: cmp.Or(t.Message, "it is "+string(t.Tunnel)), Remedy: cmp.Or(t.remedy, "pelago status "+t.Name),
			Gateway: t.Gateway, Views: t.Views, SeenAs: t.SeenAs, Reach: t.Reachability}
	}
	for into, pod := range map[*v1alpha1.Reachability]*corev1.Pod{&f.FromSpace: f.From, &f.ToSpace: f.To} {
		o, err := c.offloadingOf(ctx, pod.Namespace)
		if err != nil {
			return nil, err
		}
		if o != nil {
			*into = o.Spec.Reachability
		}
	}
	var slices discoveryv1.EndpointSliceList
	if err := c.Client.List(ctx, &slices, client.InNamespace(f.To.Namespace)); err != nil {
		return nil, describe(fmt.Errorf("listing endpoint slices: %w", err), c)
	}
	f.Slices = slices.Items
	var maps v1alpha1.NamespaceMapList
	if err := c.Client.List(ctx, &maps); err != nil {
		return nil, describe(fmt.Errorf("listing namespace maps: %w", err), c)
	}
	for peering := range mappedAt(maps.Items, f.To.Namespace) {
		f.Mapped = append(f.Mapped, peering)
	}
	return []chain.Chain{chain.Connection(f)}, nil
}

// podNamed reads the pod that a word names, in a namespace if it names none.
func (c *Cluster) podNamed(ctx context.Context, namespace, word string) (*corev1.Pod, error) {
	name := word
	if first, second, both := strings.Cut(word, "/"); both {
		namespace, name = first, second
	}
	p := &corev1.Pod{}
	if err := c.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, p); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, fmt.Errorf("there is no pod %s in namespace %s; see which are: kubectl -n %[2]s get pods", name, namespace)
		}
		return nil, describe(fmt.Errorf("reading the pod: %w", err), c)
	}
	return p, nil
}
