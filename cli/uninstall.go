package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/setup"
)

// uninstall is the command's flags.
type uninstall struct {
	purge   bool
	timeout time.Duration
}

func newUninstall(e *Env) *cobra.Command {
	u := &uninstall{}
	c := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Pelago from a cluster",
		Long: `Removes all that "pelago install" made, and on the nodes what the network made there, and
waits until it is gone. It refuses while there
are peerings or offloaded namespaces. The definitions of Pelago's kinds stay, with the objects that people wrote,
unless --purge is given.`,
		Example: "  pelago uninstall\n  pelago uninstall --purge",
		Args:    exactly(),
		RunE:    e.does(u.run),
	}
	c.Flags().BoolVar(&u.purge, "purge", false, "remove the definitions of Pelago's kinds too, with all objects of these kinds, and goodbyes not heard yet")
	durationFlag(c.Flags(), &u.timeout, "timeout", waitDefault, "how long to wait until everything is gone")
	return c
}

func (u *uninstall) run(ctx context.Context, e *Env, _ []string) error {
	c, err := e.open()
	if err != nil {
		return err
	}
	ctx, cancel := bound(ctx, u.timeout)
	defer cancel()
	if _, err := c.kubernetes(ctx); err != nil {
		return err
	}
	if _, err := c.ownSettings(ctx); err != nil { // by Helm
		return err
	}
	if err := u.refuse(ctx, c); err != nil {
		return err
	}
	if u.purge {
		untold, err := tombstones(ctx, c)
		if err != nil {
			return err
		}
		for _, name := range untold {
			noteTenant(ctx, e, c, name)
		}
	}
	values := map[string]any{}
	put(values, "none-is-needed", "config", "cluster", "name")
	rendered, err := e.Render(values)
	if err != nil {
		return fmt.Errorf("rendering what to remove: %w", err)
	}
	progress := e.progress()
	defer progress.Stop()
	site := setup.Site{Client: c.Client, Clock: e.Clock, Say: progress.Step}
	if err := site.Remove(ctx, rendered, u.purge); err != nil {
		state, remedy := "", "see what is left with: kubectl get namespace pelago-system -o yaml"
		if runs := (*setup.StillRunsError)(nil); errors.As(err, &runs) {
			state, remedy = runs.Error(), runs.Remedy
		}
		return ended(describe(err, c), "removing Pelago", u.timeout, state, remedy+"; then run pelago uninstall again")
	}
	progress.Stop()
	fmt.Fprintln(e.Out, "Pelago is removed.")
	if !u.purge {
		e.note("The definitions of its kinds stay; to remove them too: pelago uninstall --purge")
	}
	return nil
}

// refuse returns an error while somebody relies on this installation.
func (u *uninstall) refuse(ctx context.Context, c *Cluster) error {
	var peerings v1alpha1.PeeringList
	if err := c.Client.List(ctx, &peerings); err != nil && !notServed(err) {
		return describe(fmt.Errorf("listing peerings: %w", err), c)
	}
	var tenants v1alpha1.TenantList
	if err := c.Client.List(ctx, &tenants); err != nil && !notServed(err) {
		return describe(fmt.Errorf("listing tenants: %w", err), c)
	}
	var names []string
	for _, p := range peerings.Items {
		names = append(names, p.Name)
	}
	for _, t := range tenants.Items {
		if !slices.ContainsFunc(peerings.Items, func(p v1alpha1.Peering) bool {
			return p.Spec.Provide != nil && p.Spec.Provide.Tenant == t.Name
		}) {
			names = append(names, t.Name)
		}
	}
	if len(names) > 0 {
		return fmt.Errorf("this cluster is peered, and the other side has to be told first; run: pelago unpeer %s", strings.Join(names, "; pelago unpeer "))
	}
	var offloadings v1alpha1.NamespaceOffloadingList
	if err := c.Client.List(ctx, &offloadings); err != nil && !notServed(err) {
		return describe(fmt.Errorf("listing offloadings: %w", err), c)
	}
	for _, o := range offloadings.Items {
		names = append(names, o.Namespace)
	}
	if len(names) > 0 {
		return fmt.Errorf("namespaces are offloaded, and nobody would be left to bring them home; run: pelago unoffload namespace %s", strings.Join(names, "; pelago unoffload namespace "))
	}
	if u.purge {
		return nil
	}
	names, err := tombstones(ctx, c)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		return fmt.Errorf("clusters that were left with --force have not been told yet; wait, or give up: pelago unpeer %s --forget", strings.Join(names, " --forget; pelago unpeer "))
	}
	return nil
}

// tombstones names the clusters that have not been told yet that a peering is over. Of their Secrets nothing is read but
// the labels.
func tombstones(ctx context.Context, c *Cluster) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	if err := c.Client.List(ctx, list, client.InNamespace(v1alpha1.SystemNamespace), client.HasLabels{v1alpha1.LabelTombstone}); err != nil {
		return nil, describe(fmt.Errorf("listing tombstones: %w", err), c)
	}
	var names []string
	for _, s := range list.Items {
		names = append(names, s.Labels[v1alpha1.LabelTombstone])
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
