package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
)

// Limits of what Describe reads: an image has few parts and short descriptions.
const (
	maxParts = 1000
	maxText  = 1 << 20
)

// Info is what an image archive says of itself.
type Info struct {
	Ref          string   // its name with tag; empty when it has none
	Digest       string   // the image's ID: sha256 of its configuration
	Size         int64    // of the tar file, in bytes
	Architecture string   // as GOARCH
	Entrypoint   []string // the program and its first arguments
}

// Describe reads a docker-archive tar of one image, without its layers. It
// reads a bounded number of small parts, so a wrong file is told soon.
func Describe(file string) (Info, error) {
	f, err := os.Open(file)
	if err != nil {
		return Info{}, fmt.Errorf("reading image %s: %w", file, err)
	}
	defer func() { _ = f.Close() }()
	info, err := describe(f)
	if err != nil {
		return Info{}, fmt.Errorf("reading image %s: %w", file, err)
	}
	return info, nil
}

func describe(f *os.File) (Info, error) {
	stat, err := f.Stat()
	if err != nil {
		return Info{}, err
	}
	var images []struct {
		Config   string
		RepoTags []string
	}
	if _, err := part(f, "manifest.json", &images); err != nil {
		return Info{}, err
	}
	if len(images) != 1 {
		return Info{}, fmt.Errorf("it holds %d images; give a file of one", len(images))
	}
	var config struct {
		Architecture string `json:"architecture"`
		Config       struct{ Entrypoint []string }
	}
	sum, err := part(f, images[0].Config, &config)
	if err != nil {
		return Info{}, err
	}
	info := Info{Digest: "sha256:" + sum, Size: stat.Size(), Architecture: config.Architecture, Entrypoint: config.Config.Entrypoint}
	if len(images[0].RepoTags) > 0 {
		info.Ref = images[0].RepoTags[0]
	}
	return info, nil
}

// part decodes a JSON part of the archive and returns its sha256 in hex.
func part(f *os.File, name string, into any) (string, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	const remedy = "give a tar written by `image build` or `docker save`"
	r := tar.NewReader(f)
	for range maxParts {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", fmt.Errorf("it is not a tar (%w); %s", err, remedy)
		}
		if path.Clean(h.Name) != path.Clean(name) {
			continue
		}
		if h.Size > maxText {
			return "", fmt.Errorf("%s has %d bytes, at most %d are read; %s", name, h.Size, maxText, remedy)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return "", fmt.Errorf("its part %s: %w", name, err)
		}
		if err := json.Unmarshal(content, into); err != nil {
			return "", fmt.Errorf("its part %s (%w); %s", name, err, remedy)
		}
		sum := sha256.Sum256(content)
		return hex.EncodeToString(sum[:]), nil
	}
	return "", fmt.Errorf("it has no part %q; %s", name, remedy)
}
