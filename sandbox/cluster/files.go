package cluster

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/pelago-dev/pelago/sandbox/addon"
	"github.com/pelago-dev/pelago/sandbox/build"
	"github.com/pelago-dev/pelago/sandbox/image"
	"github.com/pelago-dev/pelago/sandbox/machine"
)

// images are the images that nodes of a sandbox need, and the cache that has
// their archives, or gets them when a node lacks one.
type images struct {
	cache build.Cache
	refs  []string
}

func (s *Sandbox) images() images { return images{cache: s.Cache, refs: s.imageRefs()} }

// build makes, unless the cache has them, the Kubernetes of every version and the
// images of every add-on in use.
func (s *Sandbox) build(ctx context.Context) error {
	if err := s.buildKube(ctx); err != nil {
		return err
	}
	for _, ref := range s.imageRefs() {
		if _, err := BuildImage(ctx, s.Cache, ref); err != nil {
			return err
		}
	}
	return nil
}

// buildKube makes, or finds in the cache, the Kubernetes of every version.
func (s *Sandbox) buildKube(ctx context.Context) error {
	for _, c := range s.Clusters {
		kube, err := s.Cache.Kube(ctx, c.Version)
		if err != nil {
			return err
		}
		c.use(kube)
	}
	return nil
}

// use gives the cluster a program that holds Kubernetes, at the place where nodes find it.
func (c *Cluster) use(kube string) {
	kube = resolved(kube)
	c.Kube, c.Visible = kube, []string{filepath.Dir(kube)}
}

// addons are the add-ons a cluster has, its network plugin first if it is one.
func (c *Cluster) addons() ([]addon.Addon, error) {
	names := c.Addons
	if a, err := addon.For(c.CNI); err == nil {
		names = append([]string{a.Name}, names...)
	}
	var all []addon.Addon
	for _, name := range names {
		a, err := addon.For(name)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// imageRefs lists the images of every add-on in use, the pause image and
// busybox, which verify and people need.
func (s *Sandbox) imageRefs() []string {
	refs := []string{PauseImage, BusyboxImage}
	for _, c := range s.Clusters {
		addons, _ := c.addons()
		for _, a := range addons {
			refs = append(refs, a.Images...)
		}
	}
	slices.Sort(refs)
	return slices.Compact(refs)
}

// BusyboxImage is on every node: a shell and small tools.
const BusyboxImage = addon.BusyboxRef

// BuildImage makes one of the add-on images, or finds it in the cache.
func BuildImage(ctx context.Context, cache build.Cache, ref string) (string, error) {
	at := slices.IndexFunc(addon.Images, func(i addon.Image) bool { return i.Ref == ref })
	if at < 0 {
		return "", fmt.Errorf("no add-on has an image %s", ref)
	}
	recipe := addon.Images[at]
	files := map[string]string{}
	for _, name := range recipe.Programs {
		i := slices.IndexFunc(addon.Programs, func(p addon.Program) bool { return p.Name == name })
		program, err := cache.Program(ctx, name, addon.Programs[i].Source, addon.Programs[i].Modules)
		if err != nil {
			return "", err
		}
		files["/"+name] = program
	}
	key := []string{ref, strings.Join(recipe.Packages, " "), strings.Join(recipe.Entrypoint, " ")}
	key = append(key, slices.Sorted(maps.Values(files))...)
	entry := filepath.Join("images", strings.NewReplacer("/", "_", ":", "_").Replace(ref)+"-"+build.Fingerprint(key...))
	dir, err := cache.Entry(ctx, entry, func(ctx context.Context, dir string) error {
		spec := image.Spec{Ref: ref, Packages: recipe.Packages, Files: files, Entrypoint: recipe.Entrypoint, Cache: filepath.Join(cache.Dir, "debian")}
		return image.Build(ctx, spec, filepath.Join(dir, "image.tar"), image.Progress(cache.Progress))
	})
	if err != nil {
		return "", fmt.Errorf("building image %s: %w", ref, err)
	}
	return filepath.Join(dir, "image.tar"), nil
}

// ctr runs containerd's own client against a node.
func ctr(ctx context.Context, node *machine.Machine, args ...string) (string, error) {
	socket := filepath.Join("/proc", strconv.Itoa(node.PID), "root", containerdSocket)
	command := exec.CommandContext(ctx, "ctr", append([]string{"--address", socket, "--namespace", "k8s.io"}, args...)...)
	output, err := command.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("running ctr %s: %w: %s", args[0], err, strings.TrimSpace(string(output)))
	}
	return string(output), nil
}

// loadImages gives a node the images it lacks.
func loadImages(ctx context.Context, node *machine.Machine, images images) error {
	var there string
	err := within(ctx, startLimit, "containerd of "+node.Name, func(ctx context.Context) (err error) {
		there, err = ctr(ctx, node, "images", "list", "--quiet")
		return err
	})
	if err != nil {
		return err
	}
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for _, ref := range images.refs {
		if slices.Contains(strings.Fields(there), ref) {
			continue
		}
		group.Go(func() error {
			archive, err := BuildImage(inner, images.cache, ref)
			if err != nil {
				return err
			}
			return loadImage(inner, node, archive)
		})
	}
	return group.Wait()
}

func loadImage(ctx context.Context, node *machine.Machine, archive string) error {
	if _, err := os.Stat(archive); err != nil {
		return fmt.Errorf("loading image: %w", err)
	}
	if _, err := ctr(ctx, node, "images", "import", archive); err != nil {
		return fmt.Errorf("loading %s on %s: %w", filepath.Base(filepath.Dir(archive)), node.Name, err)
	}
	return nil
}

// LoadImage gives an image to every node of a cluster.
func (c *Cluster) LoadImage(ctx context.Context, archive string) error {
	group, inner := errgroup.WithContext(ctx)
	for _, name := range c.NodeNames() {
		node, err := c.Machine(name)
		if err != nil {
			return err
		}
		group.Go(func() error { return loadImage(inner, node, archive) })
	}
	return group.Wait()
}

// LoadImageAs gives the image ref of an archive to every node of a cluster under
// another name; a node that has an image of that name is left alone.
func (c *Cluster) LoadImageAs(ctx context.Context, archive, ref, as string) error {
	group, inner := errgroup.WithContext(ctx)
	for _, name := range c.NodeNames() {
		node, err := c.Machine(name)
		if err != nil {
			return err
		}
		group.Go(func() error {
			there, err := ctr(inner, node, "images", "list", "--quiet")
			if err != nil || slices.Contains(strings.Fields(there), as) {
				return err
			}
			if err := loadImage(inner, node, archive); err != nil {
				return err
			}
			_, err = ctr(inner, node, "images", "tag", "--force", ref, as)
			return err
		})
	}
	return group.Wait()
}
