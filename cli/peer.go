package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
	"github.com/pelago-dev/pelago/cli/screen"
)

// waitDefault is the default of --timeout.
const waitDefault = 2 * time.Minute

// peer is the command's flags.
type peer struct {
	invitation invitation
	consume    consumeFlags

	remote        Access
	reachability  string
	directPaths   bool
	bidirectional bool
	inBand        bool

	dryRun  bool
	output  string
	timeout time.Duration

	given func(flag string) bool
}

// consumeFlags are those that fill Peering.spec.consume beside the invitation.
type consumeFlags struct {
	serverURL, proxyURL string
	defaultRequest      bool
	cpu, memory, pods   string
	resources           []string
}

func newPeer(e *Env) *cobra.Command {
	p := &peer{}
	c := &cobra.Command{
		Use:   "peer [NAME]",
		Short: "Use another cluster: accept its invitation",
		Long: `Accepts the invitation of another cluster, the provider, and waits until its offer of
resources is accepted. The line to run is what "pelago generate peer-command" printed
there. NAME is what the provider will be called here.

With nothing but NAME and --reachability it changes, of a peering that is there, which pods of
this cluster the provider's may reach, and be reached by: none, those offloaded (and those
behind their Services), or all. The provider's owner says the same of his pods, in the Tenant
there, and the narrower of both holds. With --direct-paths it changes whether pods at this
provider and at another one may have a tunnel between the two, while they talk much, in place
of the way through this cluster; each provider learns where the other one's nodes are. The
other Peering has to allow it, and both providers in their Tenants, which with
--remote-kubeconfig this command does for this one.

With --remote-kubeconfig the invitation is made there first, so that one command does
both sides; with --bidirectional each cluster uses the other. With --in-band, or a line that
names a tunnel, all that is said between the two goes through the tunnel from the first word
on: one UDP port of the provider has to be in reach of this cluster's nodes, or of this cluster in
that of the provider's, and its API server need not be.`,
		Example: `  pelago peer milan --cluster-id 8f14e45f-ceea-4e7a-9c1d-0d5f3b6a1c2e --auth-url https://milan.example:30443 --ca-sha256 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae --token tOkEn
  pelago peer milan --reachability full
  pelago peer milan --direct-paths
  pelago peer milan --direct-paths=false
  pelago peer --remote-kubeconfig milan.kubeconfig
  pelago peer --remote-kubeconfig milan.kubeconfig --bidirectional
  pelago peer --remote-kubeconfig milan.kubeconfig --in-band
  pelago peer milan --cluster-id 8f14e45f-ceea-4e7a-9c1d-0d5f3b6a1c2e --tunnel-key QKrQ6rIlxWRnmhIQbXKXiR5oSSsYIyuOZqdKGvVeVBk= --tunnel-endpoint milan.example:7100 --ca-sha256 2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae --token tOkEn`,
		Args: atMost("NAME"),
		RunE: e.does(p.run),
	}
	f := c.Flags()
	f.StringVar(&p.invitation.ClusterID, "cluster-id", "", "the provider's cluster id, from its invitation")
	f.StringVar(&p.invitation.AuthURL, "auth-url", "", "where the provider accepts invitations, https://HOST:PORT")
	f.StringVar(&p.invitation.Tunnel.PublicKey, "tunnel-key", "", "the provider's key of the invitation's tunnel, in place of --auth-url")
	f.StringArrayVar(&p.invitation.Tunnel.Endpoints, "tunnel-endpoint", nil, "where that tunnel is called over UDP, HOST:PORT; repeatable")
	f.StringVar(&p.invitation.CASHA256, "ca-sha256", "", "fingerprint of the authority of the provider's authentication endpoint")
	f.StringVar(&p.invitation.Token, "token", "", "the invitation's token; - reads it from standard input, one line")
	f.StringVar(&p.consume.serverURL, "server-url", "", "address of the provider's API server, if not the one it names")
	f.StringVar(&p.consume.proxyURL, "proxy-url", "", "HTTP proxy through which the provider is reached")
	f.BoolVar(&p.consume.defaultRequest, "default-request", true, "ask for resources at once")
	f.StringVar(&p.consume.cpu, "cpu", "", "CPU to ask for; all that is free if no amount is given")
	f.StringVar(&p.consume.memory, "memory", "", "memory to ask for")
	f.StringVar(&p.consume.pods, "pods", "", "number of pods to ask for")
	f.StringArrayVar(&p.consume.resources, "resource", nil, "another resource to ask for, NAME=AMOUNT; repeatable")
	f.StringVar(&p.remote.Kubeconfig, "remote-kubeconfig", "", "kubeconfig of the provider: make the invitation there first")
	f.StringVar(&p.remote.Context, "remote-context", "", "context of --remote-kubeconfig, or of --kubeconfig without that")
	f.StringVar(&p.reachability, "reachability", "", "which pods here take part in the network with the provider: "+reachWords()+"; offloaded-only if never given")
	f.BoolVar(&p.directPaths, "direct-paths", false, "let pods at this provider and at others that allow it talk by a tunnel between the two")
	f.BoolVar(&p.bidirectional, "bidirectional", false, "let the remote cluster use this one as well")
	f.BoolVar(&p.inBand, "in-band", false, "with --remote-kubeconfig: reach the provider through the tunnel alone")
	f.BoolVar(&p.dryRun, "dry-run", false, "print the objects instead of making them")
	durationFlag(f, &p.timeout, "timeout", waitDefault, "how long to wait until the peering is ready; Pelago goes on after that")
	outputFlag(c, &p.output)
	p.given = f.Changed
	completeReach(c)
	return c
}

func (p *peer) run(ctx context.Context, e *Env, args []string) error {
	if len(args) > 0 {
		p.invitation.Name = args[0]
	}
	if err := checkReach(p.reachability); err != nil {
		return err
	}
	p.invitation.reach = v1alpha1.Reachability(p.reachability)
	if p.given("direct-paths") {
		p.invitation.direct = &p.directPaths
	}
	if i := p.invitation; i.bare() && i.Name != "" && !i.none() && p.remote == (Access{}) && !p.inBand {
		return p.change(ctx, e)
	}
	consume, err := p.check()
	if err != nil {
		return err
	}
	if p.remote != (Access{}) {
		return p.both(ctx, e, consume)
	}
	if p.invitation.Token, err = readToken(ctx, p.invitation.Token, e.In); err != nil {
		return err
	}
	if err := p.invitation.check(); err != nil {
		return err
	}
	if p.dryRun {
		return p.invitation.print(e, orYAML(p.output), consume)
	}
	c, err := e.open()
	if err != nil {
		return err
	}
	waiting, cancel := bound(ctx, p.timeout)
	defer cancel()
	a := &attempt{e: e, c: c, invitation: p.invitation, consume: consume, timeout: p.timeout}
	if err := a.run(waiting); err != nil {
		return err
	}
	return a.report(waiting, p.output)
}

// check finds flags that contradict each other, and makes what they ask for.
func (p *peer) check() (v1alpha1.Consume, error) {
	f := p.consume
	var consume v1alpha1.Consume
	if err := p.checkTunnel(); err != nil {
		return consume, err
	}
	switch i := p.invitation; {
	case p.remote != (Access{}) && (i.ClusterID != "" || i.AuthURL != "" || i.CASHA256 != "" || i.Token != ""):
		return consume, usage("--remote-kubeconfig makes the invitation itself; leave out --cluster-id, --auth-url, --ca-sha256 and --token")
	case p.remote != (Access{}) && p.dryRun:
		return consume, usage("--dry-run makes no invitation, so it has none to show with --remote-kubeconfig; run there: pelago generate peer-command -o yaml")
	case p.bidirectional && p.remote == (Access{}):
		return consume, usage("--bidirectional needs --remote-kubeconfig; with lines, run one in each cluster")
	case p.remote == (Access{}):
		if err := i.complete(); err != nil {
			return consume, err
		}
	}
	for _, one := range []struct{ flag, value string }{{"--server-url", f.serverURL}, {"--proxy-url", f.proxyURL}} {
		schemes := []string{"https"}
		if one.flag == "--proxy-url" {
			schemes = []string{"http", "https"}
		}
		if one.value == "" {
			continue
		}
		if err := checkURL(one.value, schemes...); err != nil {
			return consume, usage("%s: %w", one.flag, err)
		}
	}
	list, err := resources(f.cpu, f.memory, f.pods, f.resources)
	if err != nil {
		return consume, err
	}
	if list != nil && !f.defaultRequest {
		return consume, usage("amounts are what the default request asks for; leave out --default-request=false")
	}
	consume = v1alpha1.Consume{ServerURL: f.serverURL, ProxyURL: f.proxyURL, Resources: list}
	if !f.defaultRequest {
		consume.DefaultRequest = new(bool)
	}
	return consume, nil
}

// report says what came of it.
func (a *attempt) report(ctx context.Context, output string) error {
	name := a.invitation.Name
	if output != "" {
		var p v1alpha1.Peering
		if err := a.c.Client.Get(ctx, client.ObjectKey{Name: name}, &p); err != nil {
			return fmt.Errorf("reading Peering %s: %w", name, err)
		}
		p.ManagedFields = nil
		p.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Peering"))
		return screen.Document(a.e.Out, output, &p)
	}
	var offer v1alpha1.ResourceOffer
	key := client.ObjectKey{Namespace: v1alpha1.PeeringNamespace(name), Name: v1alpha1.DefaultRequestName}
	if !a.asks() || a.c.Client.Get(ctx, key, &offer) != nil {
		fmt.Fprintf(a.e.Out, "Peered with %s.\n", name)
		return nil
	}
	var request v1alpha1.ResourceRequest
	if err := a.c.Client.Get(ctx, key, &request); err != nil {
		request.Spec.Resources = nil // the offer is shown without what was asked for
	}
	fmt.Fprintf(a.e.Out, "Peered with %s, which offers %s.\n", name, chain.Answer(request.Spec.Resources, offer.Spec.Resources))
	return nil
}

// orYAML is the format of manifests.
func orYAML(output string) string {
	if output == "" {
		return "yaml"
	}
	return output
}
