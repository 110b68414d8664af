package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/pelago-dev/pelago/sandbox/addon"
	"github.com/pelago-dev/pelago/sandbox/cluster"
	"github.com/pelago-dev/pelago/sandbox/config"
)

func newBuild(e *env) *cobra.Command {
	var versions []string
	var images bool
	command := &cobra.Command{
		Use:   "build",
		Short: "Build Kubernetes and the add-ons into the cache ahead of time",
		Long: `Build compiles Kubernetes of the given versions and the programs of all add-ons
into the cache, which up would do otherwise. It needs Go and no root (--images may,
to refresh the lists of Debian packages). The first time takes about ten minutes
on two cores.`,
		Example: "  pelago-sandbox build\n  pelago-sandbox build --versions v1.34.4,v1.36.3 --images",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cache, err := e.cache()
			if err != nil {
				return err
			}
			board := newBoard(e.err, time.Now)
			defer board.close()
			cache.Progress = func(line string) { board.set("", line) }
			if err := checkVersions(versions); err != nil {
				return err
			}
			for _, version := range versions {
				file, err := cache.Kube(cmd.Context(), version)
				if err != nil {
					return err
				}
				fmt.Fprintln(e.out, file)
			}
			for _, program := range addon.Programs {
				if _, err := cache.Program(cmd.Context(), program.Name, program.Source, program.Modules); err != nil {
					return err
				}
			}
			for _, i := range addon.Images {
				if !images {
					break
				}
				if _, err := cluster.BuildImage(cmd.Context(), cache, i.Ref); err != nil {
					return err
				}
			}
			return nil
		},
	}
	command.Flags().BoolVar(&images, "images", false, "also build the images of the add-ons, from Debian packages where they need them")
	command.Flags().StringSliceVar(&versions, "versions", []string{config.DefaultVersion}, "Kubernetes versions")
	return command
}

// checkVersions asks of versions what sandbox.yaml asks.
func checkVersions(versions []string) error {
	for _, version := range versions {
		wanted, err := config.Default([]string{"any"}, 1)
		if err != nil {
			return err
		}
		wanted.Clusters[0].Version = version
		if err := wanted.Validate(); err != nil {
			return fmt.Errorf("--versions: %w", err)
		}
	}
	return nil
}

func newAPIServer(e *env) *cobra.Command {
	var dir string
	var watched int
	command := &cobra.Command{
		Use:   "apiserver --dir DIR",
		Short: "Run a bare API server on loopback, for tests",
		Long: `Apiserver runs etcd and kube-apiserver on loopback as an ordinary user, prints one
line of JSON when they answer, and ends with SIGTERM or with the process that
--watch-pid names. It removes DIR when it ends, and takes none that has anything in it. No controller
and no node runs.`,
		Example: "  pelago-sandbox apiserver --dir /tmp/api --watch-pid $$",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return fmt.Errorf("--dir is missing: name a folder that may be made and removed")
			}
			return e.serveAPI(cmd, dir, watched)
		},
	}
	command.Flags().StringVar(&dir, "dir", "", "folder for data, certificates and logs; removed at the end")
	command.Flags().IntVar(&watched, "watch-pid", 0, "end when this process ends")
	return command
}

func (e *env) serveAPI(cmd *cobra.Command, dir string, watched int) error {
	start := time.Now()
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := makeOwn(dir); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cache, err := e.cache()
	if err != nil {
		return err
	}
	kube, err := cache.Kube(cmd.Context(), config.DefaultVersion)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if watched != 0 {
		inner, cancel := whileAlive(ctx, watched)
		defer cancel()
		ctx = inner
	}
	return cluster.APIServer(ctx, kube, dir, func(kubeconfig string, pid int) {
		_ = json.NewEncoder(e.out).Encode(map[string]any{
			"kubeconfig": kubeconfig, "pid": pid, "ready_ms": time.Since(start).Milliseconds(),
		})
	})
}

// makeOwn makes a folder that may be removed with all that will be in it: what was there before
// is somebody's.
func makeOwn(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("making --dir: %w", err)
	}
	there, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("reading --dir: %w", err)
	}
	if len(there) > 0 {
		return fmt.Errorf("--dir %s has %s in it, and would be removed at the end; name a folder that is empty or not there yet", dir, there[0].Name())
	}
	return nil
}

// newDocs writes the reference of all commands, for docs/cli.
func newDocs(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:    "docs DIR",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			root.DisableAutoGenTag = true
			return writeReference(root, filepath.Join(args[0], "pelago-sandbox.md"))
		},
	}
}

// writeReference writes one page of Markdown for a command and all below it.
func writeReference(root *cobra.Command, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making folder for the reference: %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the reference: %w", err)
	}
	defer file.Close()
	fmt.Fprintf(file, "<!-- Made by: make gen -->\n\n")
	var write func(*cobra.Command) error
	write = func(command *cobra.Command) error {
		if command.Hidden || !command.IsAvailableCommand() && command.HasParent() {
			return nil
		}
		link := func(name string) string { return "#" + name[:len(name)-len(".md")] }
		if err := doc.GenMarkdownCustom(command, file, link); err != nil {
			return err
		}
		for _, child := range command.Commands() {
			if err := write(child); err != nil {
				return err
			}
		}
		return nil
	}
	return write(root)
}
