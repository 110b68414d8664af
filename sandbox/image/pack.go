package image

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Annotations by which programs find the name of an image in an OCI archive.
const (
	nameAnnotation = "io.containerd.image.name"
	tagAnnotation  = "org.opencontainers.image.ref.name"
)

// PackSpec says what an image for several architectures holds: nothing but the content
// of a folder for each of them.
type PackSpec struct {
	// Ref is the image's name with registry and tag.
	Ref string
	// Roots maps architectures, as GOARCH, to folders that become the root.
	Roots map[string]string
	// Entrypoint and User as in a Dockerfile.
	Entrypoint []string
	User       string
}

// Pack writes an image for several architectures as an OCI archive: a tar that
// containerd, skopeo and crane read. It appears whole or not at all, and the same
// folders give the same archive.
func Pack(ctx context.Context, s PackSpec, out string, progress Progress) error {
	if progress == nil {
		progress = func(string) {}
	}
	tag, err := parseRef(s.Ref)
	if err != nil {
		return err
	}
	if len(s.Roots) == 0 {
		return errors.New("root: there is none; give ARCHITECTURE=FOLDER at least once")
	}
	if out, err = filepath.Abs(out); err != nil {
		return fmt.Errorf("finding %s: %w", out, err)
	}
	work, err := os.MkdirTemp(filepath.Dir(out), ".image-*")
	if err != nil {
		return fmt.Errorf("making a folder for the image: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	index, err := packIndex(ctx, s, work, progress)
	if err != nil {
		return err
	}
	progress("writing " + s.Ref)
	folder, err := writeLayout(index, tag, filepath.Join(work, "layout"))
	if err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	file := filepath.Join(work, "image.tar")
	if err := tarFolder(ctx, folder, file); err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	if err := os.Rename(file, out); err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	return nil
}

// packIndex makes an image of each root, and the index that lists them.
func packIndex(ctx context.Context, s PackSpec, work string, progress Progress) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arch := range slices.Sorted(maps.Keys(s.Roots)) {
		progress("packing linux/" + arch)
		b := builder{spec: Spec{Ref: s.Ref, Dir: s.Roots[arch], Entrypoint: s.Entrypoint, User: s.User, Architecture: arch}, work: work, tree: newTree()}
		if _, err := b.spec.check(); err != nil {
			return nil, err
		}
		if err := b.fill(ctx); err != nil {
			return nil, err
		}
		if err := b.checkEntrypoint(); err != nil {
			return nil, err
		}
		layer, err := writeLayer(ctx, b.tree, filepath.Join(work, arch+".tar"))
		if err != nil {
			return nil, err
		}
		img, err := assemble(b.spec, ociLayer{layer})
		if err != nil {
			return nil, err
		}
		img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
	}
	return index, nil
}

// ociLayer is a layer under the name that OCI has for it.
type ociLayer struct{ fileLayer }

func (ociLayer) MediaType() (types.MediaType, error) { return types.OCIUncompressedLayer, nil }

func writeLayout(index v1.ImageIndex, tag name.Tag, folder string) (string, error) {
	p, err := layout.Write(folder, empty.Index)
	if err != nil {
		return "", err
	}
	return folder, p.AppendIndex(index, layout.WithAnnotations(map[string]string{
		nameAnnotation: tag.Name(), tagAnnotation: tag.TagStr(),
	}))
}

// tarFolder writes the files of a folder to a tar, sorted and without times.
func tarFolder(ctx context.Context, folder, file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	buffer := bufio.NewWriterSize(f, 1<<20)
	tw := tar.NewWriter(buffer)
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err = errors.Join(err, ctx.Err()); err != nil || d.IsDir() {
			return err
		}
		inside, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		return tarFile(tw, path, inside)
	})
	if err := errors.Join(err, tw.Close(), buffer.Flush()); err != nil {
		return err
	}
	return f.Close()
}

func tarFile(tw *tar.Writer, path, name string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	stat, err := f.Stat()
	if err != nil {
		return err
	}
	if err := tw.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, Size: stat.Size(), ModTime: epoch}); err != nil {
		return err
	}
	_, err = io.Copy(tw, f)
	return err
}

// DescribePack reads the name and the digest of an image that Pack has written.
func DescribePack(file string) (ref, digest string, err error) {
	f, err := os.Open(file)
	if err != nil {
		return "", "", fmt.Errorf("reading image %s: %w", file, err)
	}
	defer func() { _ = f.Close() }()
	var index struct {
		Manifests []struct {
			Digest      string            `json:"digest"`
			Annotations map[string]string `json:"annotations"`
		} `json:"manifests"`
	}
	if _, err := part(f, "index.json", &index); err != nil {
		return "", "", fmt.Errorf("reading image %s: %w", file, err)
	}
	if len(index.Manifests) != 1 || index.Manifests[0].Annotations[nameAnnotation] == "" {
		return "", "", fmt.Errorf("reading image %s: it is not one image with a name; give a file written by `image pack`", file)
	}
	return index.Manifests[0].Annotations[nameAnnotation], index.Manifests[0].Digest, nil
}
