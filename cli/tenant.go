package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// tenantVerb is a command that sets the state of a tenant.
type tenantVerb struct {
	state   v1alpha1.TenantState
	done    string
	timeout time.Duration
}

func newCordon(e *Env) *cobra.Command {
	return newTenantVerb(e, &tenantVerb{state: v1alpha1.TenantCordoned, done: "is cordoned: it keeps what it has and gets nothing new"},
		"cordon", "Accept nothing new from a consumer",
		`What the consumer runs here stays and is kept alive; new pods, namespaces and requests are
refused, and its virtual node shows no room, until "pelago uncordon".`)
}

func newUncordon(e *Env) *cobra.Command {
	c := newTenantVerb(e, &tenantVerb{state: v1alpha1.TenantActive, done: "is active"},
		"uncordon", "Let a consumer use this cluster again",
		`Ends what "pelago cordon" or "pelago drain" began.`)
	c.Aliases = []string{"activate"}
	return c
}

func newDrain(e *Env) *cobra.Command {
	return newTenantVerb(e, &tenantVerb{state: v1alpha1.TenantDrained, done: "is drained: it has nothing here any more"},
		"drain", "Remove what a consumer has here, and accept nothing new",
		`Refuses what is new, ends the pods that the consumer runs here, withdraws its offers, and
waits until both are done. Controllers at the consumer make theirs again elsewhere; pods
without a controller are lost. The peering stays; "pelago uncordon" opens it again.`)
}

func newTenantVerb(e *Env, v *tenantVerb, verb, short, long string) *cobra.Command {
	group := &cobra.Command{Use: verb, Short: short, Long: long, Example: fmt.Sprintf("  pelago %s tenant rome", verb)}
	c := &cobra.Command{
		Use:               "tenant NAME",
		Short:             short,
		Long:              long + "\nNAME is the tenant, the consumer's own name, or its cluster id.",
		Example:           group.Example,
		Args:              exactly("NAME"),
		ValidArgsFunction: e.completeTenants,
		RunE:              e.does(v.run),
	}
	durationFlag(c.Flags(), &v.timeout, "timeout", waitDefault, "how long to wait until it is so; it goes on after that")
	group.AddCommand(c)
	return group
}

func (v *tenantVerb) run(ctx context.Context, e *Env, args []string) error {
	c, err := e.open()
	if err != nil {
		return err
	}
	ctx, cancel := bound(ctx, v.timeout)
	defer cancel()
	t, err := c.tenant(ctx, args[0])
	if errors.Is(err, errUnknown) {
		if p, _ := c.peering(ctx, args[0]); p != nil && p.Spec.Consume != nil && p.Spec.Provide == nil {
			return fmt.Errorf("%s is a provider: this cluster uses it, and it uses nothing here; to stop using it: pelago unpeer %[1]s", p.Name)
		}
	}
	if err != nil {
		return err
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"state":%q}}`, v.state))
	if err := c.Client.Patch(ctx, t, patch, fieldOwner); err != nil {
		return describe(fmt.Errorf("setting the state of tenant %s: %w", t.Name, err), c)
	}
	if err := v.wait(ctx, e, c, t); err != nil {
		return err
	}
	fmt.Fprintf(e.Out, "Tenant %s %s.\n", t.Name, v.done)
	return nil
}

// wait follows the tenant until it is as asked for.
func (v *tenantVerb) wait(ctx context.Context, e *Env, c *Cluster, t *v1alpha1.Tenant) error {
	progress := e.progress()
	defer progress.Stop()
	name, generation, state := t.Name, t.Generation, ""
	see := func(text string) {
		state = text
		progress.Step("%s: %s", t.Name, text)
	}
	err := await(ctx, e, c.Client, &v1alpha1.TenantList{}, client.ObjectKeyFromObject(t), func(t *v1alpha1.Tenant) (bool, error) {
		switch {
		case t == nil:
			return true, fmt.Errorf("somebody has removed tenant %s meanwhile; see what is there: pelago status", name)
		case t.Spec.State != v.state:
			return true, fmt.Errorf("somebody has set the state of tenant %s to %s meanwhile; if %s is what you want, run the command again", t.Name, t.Spec.State, v.state)
		case t.Status.ObservedGeneration < generation:
			see("waiting for pelago-manager")
			return false, nil
		}
		if v.state == v1alpha1.TenantDrained && inUse(t) {
			using := "waiting until its namespaces are gone"
			if used := positive(t.Status.Used); len(used) > 0 {
				using = "still uses " + chain.Amounts(used)
			}
			see(using)
			return false, nil
		}
		return true, nil
	})
	if err == nil && v.state == v1alpha1.TenantDrained {
		see("withdrawing its offers")
		err = v.withdrawn(ctx, e, c, t.Name)
	}
	return ended(describe(err, c), fmt.Sprintf("setting tenant %s to %s", t.Name, v.state), v.timeout, state,
		fmt.Sprintf("it goes on by itself; see: pelago explain tenant %s", t.Name))
}

// withdrawn waits until the tenant namespace holds no offer.
func (v *tenantVerb) withdrawn(ctx context.Context, e *Env, c *Cluster, tenant string) error {
	for {
		var offers v1alpha1.ResourceOfferList
		if err := c.Client.List(ctx, &offers, client.InNamespace(v1alpha1.TenantNamespace(tenant))); err == nil && len(offers.Items) == 0 {
			return nil
		} else if permanent(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.Clock.After(againAfter):
		}
	}
}

// inUse reports whether a tenant has anything here.
func inUse(t *v1alpha1.Tenant) bool {
	return t.Status.Namespaces > 0 || len(positive(t.Status.Used)) > 0
}

// positive drops amounts of zero.
func positive(list v1alpha1.ResourceList) v1alpha1.ResourceList {
	some := v1alpha1.ResourceList{}
	for name, quantity := range list {
		if quantity.Cmp(resource.Quantity{}) > 0 {
			some[name] = quantity
		}
	}
	return some
}
