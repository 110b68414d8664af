package cli

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
	"github.com/pelago-dev/pelago/internal/home"
)

const (
	// tunnelLimit is how long to wait for the tunnel of an invitation. A load balancer has to
	// give it an address.
	tunnelLimit = time.Minute
	// mostLined is how many endpoints a line has, mostEndpoints how many a Peering may have.
	mostLined, mostEndpoints = 4, 16
)

var keyPattern = regexp.MustCompile(`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw480]=$`)

// hasNetwork fails if the network of a cluster is off. Whoever may not see that finds out later.
func (c *Cluster) hasNetwork(ctx context.Context, whose string) error {
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.AgentName}, &appsv1.DaemonSet{})
	switch {
	case apierrors.IsNotFound(err):
		return fmt.Errorf("in band everything goes through the tunnel, and the network of %s (%s) is off; switch it on there (pelago install --set network.enabled=true), or peer without --in-band", whose, c.Server)
	case err == nil, apierrors.IsForbidden(err):
		return nil
	}
	return describe(fmt.Errorf("reading the DaemonSet of the agents: %w", err), c)
}

// tunnel waits until the cluster has a tunnel for an invitation, and notes where it is.
func (e *Env) tunnel(ctx context.Context, c *Cluster, i *invitation, settings home.Network) error {
	ctx, cancel := bound(ctx, tunnelLimit)
	defer cancel()
	progress := e.progress()
	defer progress.Stop()
	progress.Step("Waiting for the tunnel of the invitation")
	key := client.ObjectKey{Namespace: v1alpha1.NetworkNamespace, Name: v1alpha1.InvitationPrefix + i.object}
	var made *v1alpha1.NetworkConfig
	err := await(ctx, e, c.Client, &v1alpha1.NetworkConfigList{}, key, func(n *v1alpha1.NetworkConfig) (bool, error) {
		if made = n; n == nil {
			return false, nil
		}
		i.Tunnel.PublicKey, i.Tunnel.Endpoints = n.Spec.PublicKey, n.Spec.Endpoints
		if len(i.Tunnel.Endpoints) > 0 {
			return i.Tunnel.PublicKey != "", nil
		}
		progress.Step("Waiting for an address of the tunnel of the invitation")
		return false, nil
	})
	if err == nil {
		if err = checkTunnel(i.Tunnel); err != nil {
			err = fmt.Errorf("the tunnel of this cluster cannot be told of: %w; correct config.network.endpoints", err)
		}
		return err
	}
	looking, done := bound(context.WithoutCancel(ctx), undoLimit)
	defer done()
	state, remedy := c.uncalled(looking, key.Name, made, settings)
	return ended(describe(err, c), "making the tunnel of the invitation", tunnelLimit, state, remedy)
}

// uncalled says why nobody could call the tunnel of an invitation, and what to do.
func (c *Cluster) uncalled(ctx context.Context, tunnel string, made *v1alpha1.NetworkConfig, settings home.Network) (state, remedy string) {
	const override = "or say where others call it: pelago install --set 'config.network.endpoints=[HOST]'"
	if made == nil {
		return "there is no NetworkConfig " + tunnel + " in namespace " + v1alpha1.NetworkNamespace, "see whether " + managerDeployment + " and the agents run: pelago status"
	}
	if settings.Service == "" {
		return "no node that may be gateway has an address", "see the agents: kubectl -n " + v1alpha1.NetworkNamespace + " get pods -o wide, " + override
	}
	var s corev1.Service
	name := "tunnel-" + tunnel
	see := "see: kubectl -n " + v1alpha1.NetworkNamespace + " describe service " + name + ", "
	if ready := meta.FindStatusCondition(made.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status == metav1.ConditionFalse { // earlier builds say nothing
		return ready.Message, see + override
	}
	err := c.Client.Get(ctx, client.ObjectKey{Namespace: v1alpha1.NetworkNamespace, Name: name}, &s)
	switch {
	case apierrors.IsNotFound(err):
		return "its Service " + name + " is not there", see + override
	case err == nil && s.Spec.Type == corev1.ServiceTypeLoadBalancer:
		return "the load balancer has given its Service " + name + " no address", see + override
	}
	return "its Service " + name + " has no address", see + override
}

// checkTunnel says which part of an invitation's tunnel cannot be right, in the words of the flags.
func checkTunnel(t v1alpha1.InBand) error {
	switch {
	case !keyPattern.MatchString(t.PublicKey):
		return fmt.Errorf("--tunnel-key has to be a key of WireGuard, 44 characters; copy the whole line that pelago generate peer-command printed")
	case len(t.Endpoints) > mostEndpoints:
		return fmt.Errorf("--tunnel-endpoint is given %d times, and may be %d times", len(t.Endpoints), mostEndpoints)
	}
	for _, text := range t.Endpoints {
		if !isEndpoint(text) {
			return fmt.Errorf("--tunnel-endpoint %.80q is not of the form HOST:PORT, with a port of 1 to 65535", text)
		}
	}
	return nil
}

// isEndpoint says whether a text is HOST:PORT, and free of what a shell would act upon.
func isEndpoint(text string) bool {
	host, port, err := net.SplitHostPort(text)
	return err == nil && host != "" && len(text) <= 261 && hostPattern.MatchString(text) && !badPort(port)
}

func badPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err != nil || n == 0 || len(text) > 5
}

// ofTunnel are the words of a line that name the tunnel.
func (i invitation) ofTunnel() string {
	words := []string{"--tunnel-key", i.Tunnel.PublicKey}
	for _, at := range i.Tunnel.Endpoints[:min(len(i.Tunnel.Endpoints), mostLined)] {
		words = append(words, "--tunnel-endpoint", at)
	}
	return strings.Join(words, " ")
}

// inBand says that an invitation names a tunnel.
func (i invitation) inBand() bool { return i.Tunnel.PublicKey != "" || len(i.Tunnel.Endpoints) > 0 }

// checkTunnel finds flags that contradict a tunnel.
func (p *peer) checkTunnel() error {
	i := p.invitation
	switch {
	case !p.inBand && !i.inBand():
		return nil
	case p.inBand && p.remote == (Access{}):
		return usage("--in-band is for --remote-kubeconfig; without that run at the provider: pelago generate peer-command --in-band, and here the line it prints")
	case p.remote != (Access{}) && i.inBand():
		return usage("--remote-kubeconfig makes the invitation itself; leave out --tunnel-key and --tunnel-endpoint")
	case i.AuthURL != "":
		return usage("--tunnel-key and --auth-url exclude each other: in band the provider accepts invitations in the tunnel; copy the whole line that pelago generate peer-command printed")
	case p.consume.serverURL != "" || p.consume.proxyURL != "":
		return usage("--server-url and --proxy-url are of no use in band: the provider's API server is reached through the tunnel; leave them out")
	}
	return nil
}

// unchanged fails if a Peering was begun in band by another invitation: its tunnel keeps the key
// that it had first.
func unchanged(p *v1alpha1.Peering, with *v1alpha1.Consume) error {
	was := p.Spec.Consume
	switch {
	case was == nil, was.InBand == nil && with.InBand == nil:
		return nil
	case was.InBand == nil || with.InBand == nil:
		return fmt.Errorf("peering %s was begun %s, which cannot be changed; run: pelago unpeer %[1]s --force, then the line again", p.Name, way(was))
	case was.TokenSecret != with.TokenSecret:
		return fmt.Errorf("peering %s was begun in band with another invitation; run: pelago unpeer %[1]s --force, then the line again", p.Name)
	}
	return nil
}

func way(c *v1alpha1.Consume) string {
	if c.InBand != nil {
		return "in band"
	}
	return "without a tunnel"
}

// way is what is known here of the tunnel by which a provider in band is reached; nil for others.
func (c *Cluster) way(ctx context.Context, p *v1alpha1.Peering, now time.Time) (*chain.Way, error) {
	if p.Spec.Consume == nil || p.Spec.Consume.InBand == nil {
		return nil, nil
	}
	s := &snapshot{}
	if err := c.network(ctx, s); err != nil {
		if apierrors.IsForbidden(err) {
			return &chain.Way{}, nil
		}
		return nil, err
	}
	w := &chain.Way{Off: s.fabric.agents == nil}
	reports := s.reports(now)
	own, is := reports[v1alpha1.NetworkKey(v1alpha1.PeeringNamespace(p.Name))]
	first, was := reports[v1alpha1.IntroductionPrefix+p.Name]
	for _, one := range []struct {
		told
		is    bool
		which string
	}{{own, is, "the peering's own"}, {first, was, "the invitation's"}} {
		if !one.is || w.Up {
			continue
		}
		w.Up = one.Alive && !one.silent
		w.Dead = w.Dead || !w.Up && one.Since != nil
		w.Evidence = one.which + ", from node " + one.node
		if one.Endpoint != "" {
			w.Evidence += " to " + one.Endpoint
		}
		if one.Problem != "" {
			w.Evidence += ": " + one.Problem
		}
	}
	w.Dead = w.Dead && !w.Up
	return w, nil
}
