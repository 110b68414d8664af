package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pelago-dev/pelago/sandbox/cluster"
	"github.com/pelago-dev/pelago/sandbox/config"
	"github.com/pelago-dev/pelago/sandbox/product"
)

// upFlags is what the command line of up says.
type upFlags struct {
	clusters []string
	nodes    int
	file     string
	pelago   bool
}

func newUp(e *env) *cobra.Command {
	var f upFlags
	command := &cobra.Command{
		Use:   "up",
		Short: "Start the sandbox, or complete what is missing of it",
		Long: `Up installs the Debian packages the machine lacks, builds Kubernetes and the
add-ons the first time (some minutes), starts the clusters and returns when every
node and add-on is ready. Run it again at any time: it starts what is not there
and changes nothing else.

With --pelago it also gives the image of Pelago to every node and installs Pelago
in every cluster, not peered. The image and the program pelago are those beside
pelago-sandbox, as make build image leaves them; run it again after building.`,
		Example: `  pelago-sandbox up
  pelago-sandbox up --pelago
  pelago-sandbox up --clusters rome,milan,turin --nodes 1
  pelago-sandbox up -f sandbox.yaml --name test`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed("clusters") || cmd.Flags().Changed("nodes")
			return e.up(cmd.Context(), f, given)
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&f.clusters, "clusters", []string{"rome", "milan"}, "names of the clusters")
	flags.IntVar(&f.nodes, "nodes", config.DefaultNodes, "nodes of each cluster")
	flags.StringVarP(&f.file, "file", "f", "", "file that describes the clusters, instead of --clusters and --nodes (see docs/sandbox.md)")
	flags.BoolVar(&f.pelago, "pelago", false, "also install Pelago in every cluster")
	return command
}

func (e *env) up(ctx context.Context, f upFlags, given bool) error {
	if err := requireRoot(); err != nil {
		return err
	}
	wanted, err := wantedClusters(e.name, f.file, f.clusters, f.nodes, given)
	if err != nil {
		return err
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
func wantedClusters(name, file string, clusters []string, nodes int, given bool) (config.Sandbox, error) {
	if file != "" && given {
		return config.Sandbox{}, fmt.Errorf("--file describes the clusters; leave out --clusters and --nodes")
	}
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return config.Sandbox{}, fmt.Errorf("reading --file: %w", err)
		}
		return config.Parse(file, text)
	}
	if _, err := cluster.Open(name); err == nil && !given {
		return config.Sandbox{}, nil
	}
	return config.Default(clusters, nodes)
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
			if err := requireRoot(); err != nil {
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
