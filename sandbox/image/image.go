// Package image builds container images without Docker and without a registry:
// from a folder, from a Go package, or from Debian packages with what they
// depend on. An image becomes one docker-archive tar, which containerd imports
// as it is (`ctr -n k8s.io images import`) and docker and podman load.
//
// The same input gives the same image: owners are fixed, times are zero, files
// are sorted. Nothing of an image is ever run while it is built, except
// `busybox --list-full`, which says which commands busybox has. Packages'
// maintainer scripts are not run; finish.go does by hand what they would do for
// the packages it knows. The package never contacts a registry, never changes
// what is installed on this machine and needs root only where it has to call
// `apt-get update`.
//
// A web server from Debian packages (nginx must not go to the background,
// because a container ends with its first process):
//
//	image.Build(ctx, image.Spec{
//		Ref:        "pelago.local/nginx:demo",
//		Packages:   []string{"nginx"},
//		Entrypoint: []string{"nginx", "-g", "daemon off;"},
//	}, "nginx.tar", nil)
//
// A Go program, alone in its image:
//
//	image.Build(ctx, image.Spec{Ref: "pelago.local/hello:1", GoPackage: "./cmd/hello"}, "hello.tar", nil)
package image

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Spec says what an image holds and how it starts. At most one of Dir,
// GoPackage and Packages is the base; Files go on top, or stand alone.
type Spec struct {
	// Ref is the image's name with registry and tag, for example
	// pelago.local/nginx:demo. No registry need exist.
	Ref string
	// Dir is a folder whose content becomes the image's root, owned by root.
	Dir string
	// GoPackage is a main package (import path, or ./path from the current
	// folder), compiled without cgo to /NAME, which is the default Entrypoint.
	GoPackage string
	// GoFlags are further arguments of `go build`.
	GoFlags []string
	// Packages are Debian packages, as NAME or NAME=VERSION. What they depend
	// on comes too, and busybox stands for the essential commands.
	Packages []string
	// Files are single files: absolute path in the image to file on disk, whose
	// mode is kept.
	Files map[string]string

	// Entrypoint, Cmd, Env (NAME=VALUE), User and WorkingDir are the image's
	// defaults, as in a Dockerfile.
	Entrypoint, Cmd, Env []string
	User, WorkingDir     string

	// Architecture is a GOARCH value; empty means this machine's.
	Architecture string
	// Cache is a folder that keeps downloaded packages; empty means
	// pelago-sandbox/debian in the user's cache folder.
	Cache string
}

// Progress is told, in a few words, each step that may take a while.
type Progress func(step string)

// Build writes the image to the tar file out, which appears whole or not at
// all. A mistake in the Spec is told by field before anything is done.
func Build(ctx context.Context, spec Spec, out string, progress Progress) error {
	if progress == nil {
		progress = func(string) {}
	}
	tag, err := spec.check()
	if err != nil {
		return err
	}
	if out, err = filepath.Abs(out); err != nil {
		return fmt.Errorf("finding %s: %w", out, err)
	}
	if err := spec.checkOut(out); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(out), ".image-*")
	if err != nil {
		return fmt.Errorf("making a folder for the image: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()

	b := builder{spec: spec, work: work, progress: progress, tree: newTree()}
	if err := b.fill(ctx); err != nil {
		return err
	}
	if err := b.checkEntrypoint(); err != nil {
		return err
	}
	progress("writing " + spec.Ref)
	layer, err := writeLayer(ctx, b.tree, filepath.Join(work, "layer.tar"))
	if err != nil {
		return err
	}
	return writeArchive(tag, b.spec, layer, work, out)
}

// builder is one call of Build.
type builder struct {
	spec     Spec
	work     string // folder for what is thrown away at the end
	progress Progress
	tree     *tree
}

// fill puts everything the Spec asks for into the tree.
func (b *builder) fill(ctx context.Context) error {
	var err error
	switch {
	case b.spec.Dir != "":
		err = addFolder(ctx, b.tree, b.spec.Dir)
	case b.spec.GoPackage != "":
		err = b.addProgram(ctx)
	case len(b.spec.Packages) > 0:
		err = b.addPackages(ctx)
	default:
		err = addSkeleton(b.tree)
	}
	if err != nil {
		return err
	}
	return addFiles(b.tree, b.spec.Files)
}

// checkEntrypoint refuses an image that could not start: a typing mistake is
// cheaper to find here than in a cluster.
func (b *builder) checkEntrypoint() error {
	if len(b.spec.Entrypoint) == 0 || !filepath.IsAbs(b.spec.Entrypoint[0]) {
		return nil
	}
	e := b.tree.follow(b.spec.Entrypoint[0])
	if e == nil || e.kind != regular {
		return fmt.Errorf("entrypoint: %q is not a file of the image; correct the path, or give the program and each argument separately", b.spec.Entrypoint[0])
	}
	return nil
}
