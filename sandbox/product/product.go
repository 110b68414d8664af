// Package product puts Pelago into clusters of a sandbox: the image on every node, and
// the rest by Pelago's own installer, run as a user would run it. It uses the programs
// and the image that were built beside this one; it knows nothing of what is in them,
// and imports none of it.
package product

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pelago-dev/pelago/sandbox/cluster"
	"github.com/pelago-dev/pelago/sandbox/image"
)

// Files that lie beside pelago-sandbox.
const (
	programName = "pelago"
	archiveName = "pelago-image.tar"
)

const (
	// installLimit is how long Pelago may take to run in a cluster: several clusters are
	// busy at once on a small machine.
	installLimit = 5 * time.Minute
	// endLimit is the time an interrupted installer has to say how things stand.
	endLimit = 10 * time.Second
	// complaint is the most that is kept of what an installer says.
	complaint = 4096
)

// Product is what is installed.
type Product struct {
	// Program is the file of the command pelago, Archive that of the image.
	Program, Archive string
	// Ref is the image's name in Archive. Image is the name it gets on nodes: with a part
	// of its digest, so that another build is another image.
	Ref, Image string
}

// Target is a cluster to install into.
type Target struct {
	Name, Kubeconfig, URL string
	Labels                map[string]string
	// Load gives the image ref of an archive to every node under the name as.
	Load func(ctx context.Context, archive, ref, as string) error
}

// TargetOf describes a cluster of a sandbox.
func TargetOf(c *cluster.Cluster) Target {
	return Target{
		Name: c.Name, Kubeconfig: c.Kubeconfig(), URL: "https://" + c.API(), Labels: c.Labels, Load: c.LoadImageAs,
	}
}

// Beside finds the product in the folder of the running program.
func Beside() (Product, error) {
	self, err := os.Executable()
	if err != nil {
		return Product{}, fmt.Errorf("finding this program: %w", err)
	}
	return In(filepath.Dir(self))
}

// In finds the product in a folder.
func In(dir string) (Product, error) {
	p := Product{Program: filepath.Join(dir, programName), Archive: filepath.Join(dir, archiveName)}
	for _, file := range []string{p.Program, p.Archive} {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			return p, fmt.Errorf("%s is missing; run: make build image", file)
		} else if err != nil {
			return p, fmt.Errorf("looking for %s: %w", file, err)
		}
	}
	ref, digest, err := image.DescribePack(p.Archive)
	if err != nil {
		return p, fmt.Errorf("%w; run: make image", err)
	}
	_, hex, _ := strings.Cut(digest, ":")
	if len(hex) < 12 {
		return p, fmt.Errorf("reading image %s: its digest %q is none; run: make image", p.Archive, digest)
	}
	p.Ref, p.Image = ref, ref+"-"+hex[:12]
	return p, nil
}

// Install installs Pelago into clusters, all at once, and returns when it runs in every
// one of them. It may be called again at any time. Report, told the cluster and what is
// going on, must be safe for concurrent use.
func (p Product) Install(ctx context.Context, targets []Target, report func(cluster, doing string)) error {
	var group errgroup.Group // one that fails does not stop the others
	failed := make([]error, len(targets))
	for i, t := range targets {
		group.Go(func() error {
			if err := p.install(ctx, t, report); err != nil {
				failed[i] = fmt.Errorf("cluster %s: %w", t.Name, err)
			}
			return nil
		})
	}
	_ = group.Wait()
	return errors.Join(failed...)
}

func (p Product) install(ctx context.Context, t Target, report func(cluster, doing string)) error {
	start := time.Now()
	report(t.Name, "loading the image of Pelago")
	if err := t.Load(ctx, p.Archive, p.Ref, p.Image); err != nil {
		return err
	}
	report(t.Name, "installing Pelago")
	limit, cancel := context.WithTimeout(ctx, installLimit+endLimit)
	defer cancel()
	cmd := exec.CommandContext(limit, p.Program, p.arguments(t)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endLimit
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("installing Pelago: %w\n%s", err, tail(said.String()))
	}
	report(t.Name, fmt.Sprintf("Pelago runs after %s", time.Since(start).Round(100*time.Millisecond)))
	return nil
}

// arguments are those of the installer for a cluster.
func (p Product) arguments(t Target) []string {
	args := []string{
		"install", "--kubeconfig", t.Kubeconfig, "--cluster-name", t.Name, "--api-server-url", t.URL,
		"--image", p.Image, "--set", "image.pullPolicy=Never", "--timeout", installLimit.String(),
	}
	for _, key := range slices.Sorted(maps.Keys(t.Labels)) {
		args = append(args, "--labels", key+"="+t.Labels[key])
	}
	return args
}

// tail is the end of what a program said.
func tail(text string) string {
	text = strings.TrimSpace(text)
	if len(text) > complaint {
		text = "… " + text[len(text)-complaint:]
	}
	return text
}
