package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/screen"
)

// managerDeployment is the name of the Deployment with the controllers.
const managerDeployment = "pelago-manager"

// Versions is what `pelago version -o json` prints.
type Versions struct {
	// Client is the version of this program.
	Client string `json:"client"`
	// Server is nil without a cluster.
	Server *ServerVersions `json:"server,omitempty"`
}

// ServerVersions are the versions around one cluster.
type ServerVersions struct {
	// Kubernetes is the version of the API server.
	Kubernetes string `json:"kubernetes"`
	// Image of pelago-manager; empty if Pelago is not installed.
	Image string `json:"image,omitempty"`
	// Peers are the remote clusters.
	Peers []PeerVersion `json:"peers,omitempty"`
}

// PeerVersion is what a remote cluster says it runs.
type PeerVersion struct {
	// Name of the Peering.
	Name string `json:"name"`
	// Version of Pelago there.
	Version string `json:"version,omitempty"`
	// Kubernetes there.
	Kubernetes string `json:"kubernetes,omitempty"`
}

func newVersion(e *Env) *cobra.Command {
	var output string
	var clientOnly bool
	c := &cobra.Command{
		Use:     "version",
		Short:   "Show the versions of this program, the cluster and its peers",
		Example: "  pelago version\n  pelago version --client",
		Args:    exactly(),
		RunE: e.does(func(ctx context.Context, e *Env, _ []string) error {
			v := Versions{Client: e.Version}
			var failed error
			if !clientOnly {
				v.Server, failed = e.serverVersions(ctx)
			}
			if err := printVersions(e, output, v); err != nil {
				return err
			}
			return failed
		}),
	}
	c.Flags().BoolVar(&clientOnly, "client", false, "do not ask the cluster")
	outputFlag(c, &output)
	return c
}

func (e *Env) serverVersions(ctx context.Context) (*ServerVersions, error) {
	c, err := e.open()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	v, err := c.kubernetes(ctx)
	if err != nil {
		return nil, err
	}
	s := &ServerVersions{Kubernetes: v.GitVersion}
	var manager appsv1.Deployment
	if c.Client.Get(ctx, inSystem(managerDeployment), &manager) == nil && len(manager.Spec.Template.Spec.Containers) > 0 {
		s.Image = manager.Spec.Template.Spec.Containers[0].Image
	}
	var peerings v1alpha1.PeeringList
	if err := c.Client.List(ctx, &peerings); err != nil && !permanent(err) {
		return s, describe(fmt.Errorf("listing peerings: %w", err), c)
	}
	for _, p := range peerings.Items {
		peer := PeerVersion{Name: p.Name}
		if r := p.Status.Remote; r != nil {
			peer.Version, peer.Kubernetes = r.Version, r.KubernetesVersion
		}
		s.Peers = append(s.Peers, peer)
	}
	return s, nil
}

// kubernetes asks the API server for its version. It is the first question to a
// cluster, so it ends soon.
func (c *Cluster) kubernetes(ctx context.Context) (*version.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, reachLimit)
	defer cancel()
	raw, err := c.Discovery.RESTClient().Get().AbsPath("/version").Do(ctx).Raw()
	if err != nil {
		return nil, describe(fmt.Errorf("asking the cluster at %s for its version: %w", c.Server, err), c)
	}
	return decodeVersion(raw)
}

func printVersions(e *Env, output string, v Versions) error {
	if output != "" {
		return screen.Document(e.Out, output, v)
	}
	rows := [][]screen.Cell{screen.Row("pelago", v.Client, "this program")}
	if s := v.Server; s != nil {
		image := s.Image
		if image == "" {
			image = "not installed"
		}
		rows = append(rows, screen.Row("pelago-manager", image, "the cluster"), screen.Row("kubernetes", s.Kubernetes, "the cluster"))
		for _, p := range s.Peers {
			rows = append(rows, screen.Row("pelago", orDash(p.Version), p.Name), screen.Row("kubernetes", orDash(p.Kubernetes), p.Name))
		}
	}
	return screen.Table(e.Out, e.paint(), e.width(), []string{"PROGRAM", "VERSION", "WHERE"}, rows)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// decodeVersion reads the answer of an API server.
func decodeVersion(raw []byte) (*version.Info, error) {
	var v version.Info
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, fmt.Errorf("reading the cluster's version: %w", err)
	}
	return &v, nil
}
