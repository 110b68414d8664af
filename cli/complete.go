package cli

import (
	"cmp"
	"context"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// completeLimit is how long somebody who pressed a key waits.
const completeLimit = 2 * time.Second

// completePeerings offers the names of peerings.
func (e *Env) completePeerings(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return e.offer(c, args, func(ctx context.Context, cluster *Cluster) ([]called, error) {
		var list v1alpha1.PeeringList
		err := cluster.Client.List(ctx, &list)
		return peeringWords(list.Items), err
	})
}

// completeTenants offers the names of tenants.
func (e *Env) completeTenants(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return e.offer(c, args, func(ctx context.Context, cluster *Cluster) ([]called, error) {
		var list v1alpha1.TenantList
		err := cluster.Client.List(ctx, &list)
		return tenantWords(list.Items), err
	})
}

// completeNamespaces offers the names of namespaces that can be offloaded.
func (e *Env) completeNamespaces(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return e.offer(c, args, func(ctx context.Context, cluster *Cluster) ([]called, error) {
		var list corev1.NamespaceList
		err := cluster.Client.List(ctx, &list)
		return namespaceWords(list.Items, func(name string) bool { return !chain.OwnNamespace(name) }), err
	})
}

// completeAnyNamespace offers the names of all namespaces, for a flag.
func (e *Env) completeAnyNamespace(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return e.offer(c, nil, func(ctx context.Context, cluster *Cluster) ([]called, error) {
		var list corev1.NamespaceList
		err := cluster.Client.List(ctx, &list)
		return namespaceWords(list.Items, func(string) bool { return true }), err
	})
}

func namespaceWords(list []corev1.Namespace, wanted func(string) bool) []called {
	var words []called
	for _, n := range list {
		if wanted(n.Name) {
			words = append(words, called{name: n.Name})
		}
	}
	return words
}

// completeOffloaded offers the names of namespaces that are offloaded.
func (e *Env) completeOffloaded(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	return e.offer(c, args, func(ctx context.Context, cluster *Cluster) ([]called, error) {
		var list v1alpha1.NamespaceOffloadingList
		err := cluster.Client.List(ctx, &list)
		var words []called
		for _, o := range list.Items {
			words = append(words, called{name: o.Namespace})
		}
		return words, err
	})
}

// completePods offers the names of pods in a namespace.
func (e *Env) completePods(c *cobra.Command, args []string, namespace string) ([]string, cobra.ShellCompDirective) {
	return e.offer(c, args, func(ctx context.Context, cluster *Cluster) ([]called, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := cluster.Client.List(ctx, list, client.InNamespace(cmp.Or(namespace, cluster.Namespace, metav1.NamespaceDefault)))
		var words []called
		for _, p := range list.Items {
			words = append(words, called{name: p.Name})
		}
		return words, err
	})
}

// offer completes the one argument of a command. Whatever goes wrong completes nothing.
func (e *Env) offer(c *cobra.Command, args []string, read func(context.Context, *Cluster) ([]called, error)) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx := c.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	cluster, err := e.open()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	things, err := read(ctx, cluster)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, 0, len(things))
	for _, thing := range things {
		name := thing.name
		if thing.display != "" && thing.display != thing.name {
			name += "\t" + thing.display
		}
		names = append(names, name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
