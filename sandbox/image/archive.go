package image

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// assemble is the image of one layer that the Spec describes.
func assemble(s Spec, layer v1.Layer) (v1.Image, error) {
	img, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		Architecture: s.Architecture,
		OS:           "linux",
		Created:      v1.Time{Time: epoch},
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint: s.Entrypoint,
			Cmd:        s.Cmd,
			Env:        s.environment(),
			User:       s.User,
			WorkingDir: s.WorkingDir,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("describing the image: %w", err)
	}
	img, err = mutate.Append(img, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: epoch}, CreatedBy: "pelago-sandbox image build"},
	})
	if err != nil {
		return nil, fmt.Errorf("adding the layer: %w", err)
	}
	return img, nil
}

// writeArchive writes the docker-archive beside its place and then moves it in.
func writeArchive(tag name.Tag, s Spec, layer v1.Layer, work, out string) error {
	img, err := assemble(s, layer)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(work, "image.tar"))
	if err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	defer func() { _ = f.Close() }()
	buffer := bufio.NewWriterSize(f, 1<<20)
	if err := tarball.Write(tag, img, buffer); err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	if err := buffer.Flush(); err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	if err := os.Rename(f.Name(), out); err != nil {
		return fmt.Errorf("writing %s: %w", out, err)
	}
	return nil
}
