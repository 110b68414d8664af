package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
other, that the tunnels on the way carry packets, and that gateways and NetworkPolicies let the
connection begin; each for every family of addresses that both pods have.
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
	completes(c, "namespace", e.completeAnyNamespace)
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
	s, err := c.gatherNetwork(ctx)
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
		policies := slices.ContainsFunc(s.peerings, func(p v1alpha1.Peering) bool {
			return p.Name == t.Name && p.Status.Remote != nil && slices.Contains(p.Status.Remote.Features, v1alpha1.FeatureNetworkPolicy)
		})
		f.Links[t.Name] = chain.Link{Policies: policies, Up: t.Tunnel == TunnelUp, Problem: cmp.Or(t.Message, "it is "+string(t.Tunnel)), Remedy: cmp.Or(t.remedy, "pelago status "+t.Name),
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
	var endpoints discoveryv1.EndpointSliceList
	if err := c.Client.List(ctx, &endpoints, client.InNamespace(f.To.Namespace)); err != nil {
		return nil, describe(fmt.Errorf("listing endpoint slices: %w", err), c)
	}
	f.Slices = endpoints.Items
	var maps v1alpha1.NamespaceMapList
	if err := c.Client.List(ctx, &maps); err != nil {
		return nil, describe(fmt.Errorf("listing namespace maps: %w", err), c)
	}
	if err := c.policies(ctx, &f, maps.Items); err != nil {
		return nil, err
	}
	return []chain.Chain{chain.Connection(f)}, nil
}

// policies reads what NetworkPolicies of the namespaces of both pods follow from, and what this
// cluster's gateways have been told of them.
func (c *Cluster) policies(ctx context.Context, f *chain.ConnectionFacts, maps []v1alpha1.NamespaceMap) error {
	f.Mapped, f.Spaces = map[string][]string{}, map[string]map[string]string{}
	for _, namespace := range []string{f.From.Namespace, f.To.Namespace} {
		if _, known := f.Spaces[namespace]; known {
			continue
		}
		var n corev1.Namespace
		if err := c.Client.Get(ctx, client.ObjectKey{Name: namespace}, &n); err != nil {
			return describe(fmt.Errorf("reading namespace %s: %w", namespace, err), c)
		}
		f.Spaces[namespace] = n.Labels
		for peering := range mappedAt(maps, namespace) {
			f.Mapped[namespace] = append(f.Mapped[namespace], peering)
		}
		var policies networkingv1.NetworkPolicyList
		if err := c.Client.List(ctx, &policies, client.InNamespace(namespace)); err != nil {
			return describe(fmt.Errorf("listing network policies: %w", err), c)
		}
		f.Policies = append(f.Policies, policies.Items...)
	}
	for _, node := range []string{f.From.Spec.NodeName, f.To.Spec.NodeName} {
		if f.At[node] == "" {
			continue
		}
		var rules v1alpha1.NetworkRulesList
		err := eachPage(ctx, c.Client, &rules, func() {
			for i := range rules.Items {
				if _, concerned := f.Spaces[rules.Items[i].Spec.Namespace]; concerned {
					f.Rules = append(f.Rules, rules.Items[i])
				}
			}
			rules.Items = nil
		}, client.InNamespace(v1alpha1.PeeringNamespace(f.At[node])))
		if err != nil && !notServed(err) {
			return describe(fmt.Errorf("listing network rules: %w", err), c)
		}
	}
	return nil
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
			if missing := c.Client.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{}); apierrors.IsNotFound(missing) {
				return nil, fmt.Errorf("there is no namespace %s; see which are: kubectl get namespaces", namespace)
			}
			return nil, fmt.Errorf("there is no pod %s in namespace %s; see which are: kubectl -n %[2]s get pods", name, namespace)
		}
		return nil, describe(fmt.Errorf("reading the pod: %w", err), c)
	}
	return p, nil
}
