package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// ttlDefault, ttlLeast and ttlMost bound how long an invitation lives.
const (
	ttlDefault = time.Hour
	ttlLeast   = time.Minute
	ttlMost    = 30 * 24 * time.Hour
)

// generate is the command's flags.
type generate struct {
	terms  terms
	output string
}

func newGenerate(e *Env) *cobra.Command {
	group := &cobra.Command{
		Use:     "generate",
		Short:   "Make something to hand to others",
		Example: `  pelago generate peer-command`,
	}
	g := &generate{}
	c := &cobra.Command{
		Use:   "peer-command",
		Short: "Invite a cluster: print the line it runs to use this one",
		Long: `Makes an invitation and prints the line that the consumer runs to use this cluster.
The line holds a secret, works once, and ends after --ttl. With -o yaml it prints the
objects to apply in the consumer's cluster instead, a Secret and a Peering, for GitOps.

With --in-band the consumer needs to reach nothing of this cluster but a UDP port of its
nodes, or of their load balancer: the API server and pelago-auth are reached through the
tunnel. It needs the network on both sides. If nobody can call this cluster it can call the consumer:
whoever runs the line is told what to run here.

With --direct-paths pods that the consumer has here may have tunnels to those it has at other
providers that allow it too, while they talk much; the owners of those learn where the nodes
of this cluster are.`,
		Example: `  pelago generate peer-command
  pelago generate peer-command --ttl 24h --consumer rome
  pelago generate peer-command --in-band
  pelago generate peer-command --direct-paths
  pelago generate peer-command -o yaml`,
		Args: exactly(),
		RunE: e.does(g.run),
	}
	durationFlag(c.Flags(), &g.terms.ttl, "ttl", ttlDefault, "how long the invitation can be used")
	c.Flags().StringVar(&g.terms.consumer, "consumer", "", "what the consumer will be called here, whatever it calls itself")
	c.Flags().BoolVar(&g.terms.inBand, "in-band", false, "let the consumer come through the tunnel alone: it needs to reach one UDP port")
	c.Flags().BoolVar(&g.terms.direct, "direct-paths", false, "let the consumer's pods here have tunnels to those at its other providers")
	outputFlag(c, &g.output)
	group.AddCommand(c)
	return group
}

func (g *generate) run(ctx context.Context, e *Env, _ []string) error {
	if g.terms.ttl < ttlLeast || g.terms.ttl > ttlMost {
		return usage("--ttl %s is not between %s and %s", g.terms.ttl, ttlLeast, ttlMost)
	}
	if g.terms.consumer != "" {
		if err := v1alpha1.CheckClusterName(g.terms.consumer); err != nil {
			return usage("--consumer: %w", err)
		}
	}
	c, err := e.open()
	if err != nil {
		return err
	}
	ctx, cancel := bound(ctx, waitDefault)
	defer cancel()
	i, err := e.invite(ctx, c, g.terms)
	if err != nil {
		return err
	}
	if g.output != "" {
		err = i.print(e, g.output, v1alpha1.Consume{})
	} else {
		_, err = fmt.Fprintln(e.Out, i.line())
	}
	if err != nil {
		return fmt.Errorf("printing the invitation: %w", err)
	}
	if n := len(i.Tunnel.Endpoints); n > mostLined && g.output == "" {
		e.note("The line names %d of the %d places where the tunnel may be called; -o yaml has all.", mostLined, n)
	}
	e.note("Keep this secret: whoever has it first becomes a consumer of %s. It works once, until %s.",
		i.Name, i.until.UTC().Format("2006-01-02 15:04 MST"))
	e.note("To take it back: kubectl delete invitation %s", i.object)
	if used := c.usedAlone(ctx); g.terms.consumer == "" && len(used) > 0 {
		e.note("This line is not for a cluster that this one uses already; name it for that: --consumer %s", strings.Join(used, " or "))
	}
	return nil
}

// usedAlone are the clusters that this one uses and that do not use it: their invitations have to name them, as
// anybody could claim to be one of them. It is beside the point when peerings cannot be read.
func (c *Cluster) usedAlone(ctx context.Context) (names []string) {
	var list v1alpha1.PeeringList
	if err := c.Client.List(ctx, &list); err != nil {
		return nil
	}
	for _, p := range list.Items {
		if p.Spec.Consume != nil && p.Spec.Provide == nil && p.DeletionTimestamp.IsZero() {
			names = append(names, p.Name)
		}
	}
	return names[:min(len(names), 5)]
}
