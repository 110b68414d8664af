package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pelago-dev/pelago/api/v1alpha1"
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
