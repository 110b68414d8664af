package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pelago-dev/pelago/sandbox/build"
	"github.com/pelago-dev/pelago/sandbox/image"
)

func newImage(e *env) *cobra.Command {
	group := &cobra.Command{
		Use:   "image",
		Short: "Build container images without Docker, and load them",
		Example: `  pelago-sandbox image build pelago.local/nginx:demo --from-packages nginx --entrypoint nginx,-g,"daemon off;"
  pelago-sandbox image load pelago.local/nginx:demo rome milan`,
	}
	group.AddCommand(newImageBuild(e), newImageLoad(e), newImagePack(e))
	return group
}

// archive is where a built image is kept: images belong to the cache, not to a
// sandbox.
func archive(cache build.Cache, ref string) string {
	name := strings.NewReplacer("/", "_", ":", "_", "@", "_").Replace(ref)
	return filepath.Join(cache.Dir, "own-images", name+".tar")
}

func newImageBuild(e *env) *cobra.Command {
	var spec image.Spec
	command := &cobra.Command{
		Use:   "build REF",
		Short: "Build an image from a folder, a Go package or Debian packages",
		Long: `Build makes an image and keeps it in the cache, from where load takes it. Nothing
of the image is run while it is built; maintainer scripts of packages are not run.
See docs/sandbox-images.md.`,
		Example: `  pelago-sandbox image build pelago.local/site:1 --dir ./public
  pelago-sandbox image build pelago.local/hello:1 --go ./cmd/hello
  pelago-sandbox image build pelago.local/nginx:demo --from-packages nginx --entrypoint nginx,-g,"daemon off;"`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cache, err := e.cache()
			if err != nil {
				return err
			}
			spec.Ref, spec.Cache = args[0], filepath.Join(cache.Dir, "debian")
			out := archive(cache, spec.Ref)
			if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
				return fmt.Errorf("making the cache: %w", err)
			}
			if err := image.Build(cmd.Context(), spec, out, cache.Progress); err != nil {
				return err
			}
			info, err := image.Describe(out)
			if err != nil {
				return err
			}
			fmt.Fprintf(e.out, "%s  %s  %d MiB\n", info.Ref, info.Digest, info.Size>>20)
			return nil
		},
	}
	flags := command.Flags()
	flags.StringVar(&spec.Dir, "dir", "", "folder that becomes the root of the image")
	flags.StringVar(&spec.GoPackage, "go", "", "Go main package, compiled without cgo")
	flags.StringSliceVar(&spec.Packages, "from-packages", nil, "Debian packages, with all they depend on")
	flags.StringSliceVar(&spec.Entrypoint, "entrypoint", nil, "program and arguments, separated by commas")
	return command
}

func newImageLoad(e *env) *cobra.Command {
	return &cobra.Command{
		Use:     "load REF CLUSTER...",
		Short:   "Give an image to every node of clusters",
		Example: "  pelago-sandbox image load pelago.local/nginx:demo rome milan",
		Args:    cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := e.openMachines("nodes to load images on")
			if err != nil {
				return err
			}
			file := archive(s.Cache, args[0])
			if _, err := os.Stat(file); err != nil {
				return fmt.Errorf("image %s has not been built; run: pelago-sandbox image build %s …", args[0], args[0])
			}
			for _, name := range args[1:] {
				c, err := s.Cluster(name)
				if err != nil {
					return err
				}
				if err := c.LoadImage(cmd.Context(), file); err != nil {
					return err
				}
				fmt.Fprintf(e.out, "%s is on %s.\n", args[0], strings.Join(c.NodeNames(), ", "))
			}
			return nil
		},
	}
}

func newImagePack(e *env) *cobra.Command {
	var spec image.PackSpec
	var out string
	command := &cobra.Command{
		Use:   "pack REF --out FILE --root ARCH=DIR...",
		Short: "Pack folders into an image for several architectures",
		Long: `Pack writes an OCI archive: one image, for each architecture what one folder holds
and nothing else. Unlike build it does not keep the image in the cache.`,
		Example: "  pelago-sandbox image pack pelago.local/site:1 --out site.tar --root amd64=out/amd64 --root arm64=out/arm64",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				return errors.New("--out is missing: name the file to write")
			}
			spec.Ref = args[0]
			if err := image.Pack(cmd.Context(), spec, out, func(step string) { fmt.Fprintln(e.err, step) }); err != nil {
				return err
			}
			ref, digest, err := image.DescribePack(out)
			if err != nil {
				return err
			}
			fmt.Fprintf(e.out, "%s  %s  %s\n", ref, digest, out)
			return nil
		},
	}
	flags := command.Flags()
	flags.StringToStringVar(&spec.Roots, "root", nil, "folder that becomes the root, by architecture as Go names it; may be given several times")
	flags.StringSliceVar(&spec.Entrypoint, "entrypoint", nil, "program and arguments, separated by commas")
	flags.StringVar(&spec.User, "user", "", "user and group as numbers")
	flags.StringVar(&out, "out", "", "file to write")
	return command
}
