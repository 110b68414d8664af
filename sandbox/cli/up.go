package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pelago-dev/pelago/sandbox/cluster"
	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/product"
)

// upFlags is what the command line of up says.
type upFlags struct {
	clusters    []string
	nodes       int
	profile     string
	hollow      int
	hollowStart time.Duration
	file        string
	pelago      bool

	given map[string]bool // flags that were on the command line
}

// describing are the flags that a file or a sandbox that is there makes needless.
var describing = []string{"clusters", "nodes", "profile", "hollow", "hollow-start"}

func newUp(e *env) *cobra.Command {
	var f upFlags
	command := &cobra.Command{
		Use:   "up",
		Short: "Start the sandbox, or complete what is missing of it",
		Long: `Up installs the Debian packages the machine lacks, builds Kubernetes and the
add-ons the first time (some minutes), starts the clusters and returns when every
node and add-on is ready. Run it again at any time: it starts what is not there
and changes nothing else.

Hollow nodes run pods in name only: a pod bound to one is Running after
--hollow-start, and no container runs. Beside real nodes they have the taint
sandbox.pelago.dev/hollow, so that only pods that tolerate it land there.

With --profile control-plane there are no machines: etcd, API server, controllers,
scheduler and hollow nodes of each cluster run on loopback, without root.

With --pelago it also gives the image of Pelago to every node and installs Pelago
in every cluster, not peered. The image and the program pelago are those beside
pelago-sandbox, as make build image leaves them; run it again after building.`,
		Example: `  pelago-sandbox up
  pelago-sandbox up --pelago
  pelago-sandbox up --clusters rome,milan,turin --nodes 1
  pelago-sandbox up --profile control-plane --hollow 100
  pelago-sandbox up -f sandbox.yaml --name test`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.given = map[string]bool{}
			for _, name := range describing {
				if cmd.Flags().Changed(name) {
					f.given[name] = true
				}
			}
			return e.up(cmd.Context(), f)
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&f.clusters, "clusters", []string{"rome", "milan"}, "names of the clusters")
	flags.IntVar(&f.nodes, "nodes", config.DefaultNodes, "nodes of each cluster")
	flags.StringVar(&f.profile, "profile", "", "control-plane: no machines, no root")
	flags.IntVar(&f.hollow, "hollow", 0, "hollow nodes of each cluster (default 2 with --profile control-plane)")
	flags.DurationVar(&f.hollowStart, "hollow-start", config.DefaultHollowStart, "how long pods take to start on hollow nodes")
	flags.StringVarP(&f.file, "file", "f", "", "file that describes the clusters, instead of the flags above (see docs/sandbox.md)")
	flags.BoolVar(&f.pelago, "pelago", false, "also install Pelago in every cluster")
	return command
}

func (e *env) up(ctx context.Context, f upFlags) error {
	wanted, err := wantedClusters(e.name, f)
	if err != nil {
		return err
	}
	if wanted.Profile != config.ProfileControlPlane {
		if err := requireRoot(); err != nil {
			return err
		}
	} else if f.pelago {
		return fmt.Errorf("--pelago: the profile %s has no nodes that could run Pelago; leave out one of the two", wanted.Profile)
	}
	var own product.Product
	if f.pelago {
		if own, err = product.Beside(); err != nil {
			return fmt.Errorf("--pelago: %w", err)
		}
	}
	s, err := cluster.Prepare(e.name, wanted)
	if err != nil {
		return err
	}
	if s.Cache, err = e.cache(); err != nil {
		return err
	}
	board := newBoard(e.err, time.Now)
	s.Report, s.Cache.Progress = board.set, func(line string) { board.set("", line) }
	err = s.Up(ctx)
	if err == nil && f.pelago {
		err = own.Install(ctx, targets(s), board.set)
	}
	board.close()
	if ctx.Err() != nil {
		return fmt.Errorf("interrupted; run the same again to go on, or: pelago-sandbox down --name %s", e.name)
	}
	if err != nil {
		return fmt.Errorf("%w\nrun the same again to go on, or: pelago-sandbox down --name %s", err, e.name)
	}
	fmt.Fprintf(e.out, "Sandbox %s is up: %s. Try: pelago-sandbox %skubectl %s -- get pods -A\n", e.name, strings.Join(clusterNames(s), ", "), e.nameFlag(), s.Clusters[0].Name)
	return nil
}

// targets are all clusters, to install Pelago into.
func targets(s *cluster.Sandbox) []product.Target {
	var all []product.Target
	for _, c := range s.Clusters {
		all = append(all, product.TargetOf(c))
	}
	return all
}

// nameFlag is what a command must begin with to be about the same sandbox.
func (e *env) nameFlag() string {
	if e.name == "default" {
		return ""
	}
	return "--name " + e.name + " "
}

func clusterNames(s *cluster.Sandbox) []string {
	var names []string
	for _, c := range s.Clusters {
		names = append(names, c.Name)
	}
	return names
}

// wantedClusters reads what the user asked for. A sandbox that is there needs
// no repetition: without flags, up completes it.
func wantedClusters(name string, f upFlags) (config.Sandbox, error) {
	if f.file != "" && len(f.given) > 0 {
		return config.Sandbox{}, fmt.Errorf("--file describes the clusters; leave out --%s", strings.Join(slices.Sorted(maps.Keys(f.given)), " and --"))
	}
	if f.file != "" {
		text, err := os.ReadFile(f.file)
		if err != nil {
			return config.Sandbox{}, fmt.Errorf("reading --file: %w", err)
		}
		return config.Parse(f.file, text)
	}
	if s, err := cluster.Open(name); err == nil && len(f.given) == 0 {
		return config.Sandbox{Profile: s.Profile}, nil
	}
	like := config.Cluster{}
	like.Nodes, like.Hollow = config.Counts(f.profile)
	if f.given["nodes"] {
		like.Nodes = f.nodes
	}
	if f.given["hollow"] {
		like.Hollow = f.hollow
	}
	if f.given["hollow-start"] {
		like.HollowStart = f.hollowStart
	}
	return config.Alike(f.clusters, f.profile, like)
}

func newDown(e *env) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Remove the sandbox: processes, mounts, interfaces, files",
		Long: `Down removes everything the sandbox has on this machine, also after a crash. The
cache of built programs and images stays. Nothing to remove is not an error.`,
		Example: "  pelago-sandbox down\n  pelago-sandbox down --name test",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if _, err := e.open(); errors.Is(err, errNeedsRoot) {
				return err
			}
			start := time.Now()
			if err := cluster.Down(e.name); err != nil {
				return err
			}
			fmt.Fprintf(e.out, "Sandbox %s is gone (%s).\n", e.name, time.Since(start).Round(100*time.Millisecond))
			return nil
		},
	}
}
