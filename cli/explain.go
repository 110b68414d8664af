package cli

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
	"github.com/pelago-dev/pelago/cli/screen"
)

func newExplain(e *Env) *cobra.Command {
	group := &cobra.Command{
		Use:     "explain",
		Short:   "Tell why something is as it is",
		Example: "  pelago explain peering milan\n  pelago explain tenant rome\n  pelago explain namespace shop\n  pelago explain pod web-0 -n shop",
	}
	var peeringOutput, tenantOutput string
	peering := &cobra.Command{
		Use:   "peering NAME",
		Short: "Walk from the invitation to the accepted offer, and stop at what is broken",
		Long: `Shows each thing that has to be so for the peering to work, in the order in which they
depend on each other, with how that is known; of the first that is not so, why and what to do.
NAME is the peering, the remote cluster's own name, or its id.`,
		Example:           "  pelago explain peering milan",
		Args:              exactly("NAME"),
		ValidArgsFunction: e.completePeerings,
		RunE: e.does(func(ctx context.Context, e *Env, args []string) error {
			return explain(ctx, e, args[0], peeringOutput, (*Cluster).peeringChains)
		}),
	}
	outputFlag(peering, &peeringOutput)
	tenant := &cobra.Command{
		Use:   "tenant NAME",
		Short: "Walk through what a consumer needs to use this cluster",
		Long: `Shows each thing that has to be so for the consumer to use this cluster; of the first that
is not so, why and what to do. NAME is the tenant, the consumer's own name, or its id.`,
		Example:           "  pelago explain tenant rome",
		Args:              exactly("NAME"),
		ValidArgsFunction: e.completeTenants,
		RunE: e.does(func(ctx context.Context, e *Env, args []string) error {
			return explain(ctx, e, args[0], tenantOutput, (*Cluster).tenantChains)
		}),
	}
	outputFlag(tenant, &tenantOutput)
	group.AddCommand(peering, tenant, newExplainNamespace(e), newExplainPod(e), newExplainConnection(e))
	return group
}

func explain(ctx context.Context, e *Env, word, output string, gather gatherer) error {
	c, err := e.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	chains, err := gather(c, ctx, e, word)
	if err != nil {
		return err
	}
	if output != "" {
		return screen.Document(e.Out, output, map[string]any{"chains": chains})
	}
	return printChains(e.Out, e.paint(), chains)
}

// printChains shows chains for people.
func printChains(w io.Writer, paint screen.Paint, chains []chain.Chain) error {
	for i, c := range chains {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, screen.Clean(c.Title))
		for _, s := range c.Steps {
			mark, colour := "✓", screen.Green
			switch s.State {
			case chain.Broken:
				mark, colour = "✗", screen.Red
			case chain.Waiting:
				mark, colour = "…", screen.Yellow
			case chain.Unknown:
				mark, colour = "·", screen.Faint
			case chain.Aside:
				mark, colour = "–", screen.Faint
			}
			fmt.Fprintf(w, "  %s %s\n", paint.Text(colour, mark), screen.Clean(s.Fact))
			if s.Evidence != "" {
				fmt.Fprintf(w, "      %s\n", screen.Wrap(s.Evidence, "      ", screen.Width-6))
			}
		}
		stops := c.Stops()
		if len(stops) == 0 {
			fmt.Fprintln(w, "\nAll is well.")
		}
		for _, stop := range stops {
			fmt.Fprintf(w, "\nIt stops where %s.\n", screen.Wrap("\""+stop.Fact+"\" is not so", "", screen.Width-16))
			if stop.Remedy != "" {
				fmt.Fprintln(w, wrapRemedy("What to do: "+stop.Remedy+fullStop(stop.Remedy), "  "))
			}
		}
	}
	return nil
}

// peeringChains gathers what is known of a peering and explains it.
func (c *Cluster) peeringChains(ctx context.Context, e *Env, word string) ([]chain.Chain, error) {
	p, err := c.peering(ctx, word)
	if err != nil {
		return nil, err
	}
	f := chain.Facts{Now: e.Clock.Now(), Peering: p}
	if consume := p.Spec.Consume; consume != nil {
		if consume.TokenSecret != "" {
			var secret corev1.Secret
			err := c.Client.Get(ctx, inSystem(consume.TokenSecret), &secret)
			f.TokenUnread = apierrors.IsForbidden(err)
			if client.IgnoreNotFound(err) != nil && !f.TokenUnread {
				return nil, describe(fmt.Errorf("reading the invitation's Secret: %w", err), c)
			}
			f.Token = err == nil
		}
		if f.Way, err = c.way(ctx, p, f.Now); err != nil {
			return nil, err
		}
		if f.Requests, f.Offers, err = c.negotiations(ctx, v1alpha1.PeeringNamespace(p.Name)); err != nil {
			return nil, err
		}
	}
	if p.Spec.Provide != nil {
		var t v1alpha1.Tenant
		err := c.Client.Get(ctx, client.ObjectKey{Name: p.Spec.Provide.Tenant}, &t)
		switch {
		case err == nil:
			if err := c.tenantFacts(ctx, &f, &t); err != nil {
				return nil, err
			}
		case client.IgnoreNotFound(err) != nil:
			return nil, describe(fmt.Errorf("reading the tenant: %w", err), c)
		}
	}
	return chain.Peering(f), nil
}

// tenantChains gathers what is known of a tenant and explains it.
func (c *Cluster) tenantChains(ctx context.Context, e *Env, word string) ([]chain.Chain, error) {
	t, err := c.tenant(ctx, word)
	if err != nil {
		return nil, err
	}
	f := chain.Facts{Now: e.Clock.Now()}
	if err := c.tenantFacts(ctx, &f, t); err != nil {
		return nil, err
	}
	return []chain.Chain{chain.Tenant(f)}, nil
}

func (c *Cluster) tenantFacts(ctx context.Context, f *chain.Facts, t *v1alpha1.Tenant) (err error) {
	f.Tenant = t
	f.TenantRequests, f.TenantOffers, err = c.negotiations(ctx, v1alpha1.TenantNamespace(t.Name))
	return err
}

// negotiations reads the requests and offers in a namespace.
func (c *Cluster) negotiations(ctx context.Context, namespace string) ([]v1alpha1.ResourceRequest, []v1alpha1.ResourceOffer, error) {
	var requests v1alpha1.ResourceRequestList
	if err := c.Client.List(ctx, &requests, client.InNamespace(namespace)); err != nil {
		return nil, nil, describe(fmt.Errorf("listing requests: %w", err), c)
	}
	var offers v1alpha1.ResourceOfferList
	if err := c.Client.List(ctx, &offers, client.InNamespace(namespace)); err != nil {
		return nil, nil, describe(fmt.Errorf("listing offers: %w", err), c)
	}
	return requests.Items, offers.Items, nil
}

// fullStop ends a sentence, unless somebody may copy its end into a shell.
func fullStop(remedy string) string {
	if strings.Contains(remedy, "kubectl ") {
		return ""
	}
	return "."
}
