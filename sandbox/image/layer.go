package image

import (
	"archive/tar"
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// epoch is the time of everything in an image, so that equal content is equal.
var epoch = time.Unix(0, 0).UTC()

// fileLayer is a layer in a tar file. It is a v1.Layer.
//
// It is not compressed, because the archive never leaves the machine. Measured
// with containerd 1.6 (CPU time of an import, plain and gzip -1): nginx, 32 MB,
// 0.8 s and 0.9 s; mariadb, 289 MB, 5.8 s and 5.4 s. So a node gains nothing
// from gzip, and compressing would cost each build 0.7 s and 4.7 s. The price is
// disk: each node keeps the layer in full size beside its unpacked files.
type fileLayer struct {
	path string
	hash v1.Hash
	size int64
}

func (l fileLayer) Digest() (v1.Hash, error)             { return l.hash, nil }
func (l fileLayer) DiffID() (v1.Hash, error)             { return l.hash, nil }
func (l fileLayer) Size() (int64, error)                 { return l.size, nil }
func (l fileLayer) MediaType() (types.MediaType, error)  { return types.DockerUncompressedLayer, nil }
func (l fileLayer) Compressed() (io.ReadCloser, error)   { return os.Open(l.path) }
func (l fileLayer) Uncompressed() (io.ReadCloser, error) { return os.Open(l.path) }

// writeLayer writes the tree as one layer to a new file.
func writeLayer(ctx context.Context, t *tree, file string) (fileLayer, error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fileLayer{}, fmt.Errorf("writing the layer: %w", err)
	}
	defer func() { _ = f.Close() }()
	sum, count := sha256.New(), &counter{}
	buffer := bufio.NewWriterSize(io.MultiWriter(f, sum, count), 1<<20)
	if err := writeTree(ctx, t, buffer); err != nil {
		return fileLayer{}, err
	}
	if err := buffer.Flush(); err != nil {
		return fileLayer{}, fmt.Errorf("writing the layer: %w", err)
	}
	if err := f.Close(); err != nil {
		return fileLayer{}, fmt.Errorf("writing the layer: %w", err)
	}
	hash := v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}
	return fileLayer{path: file, hash: hash, size: count.n}, nil
}

// writeTree writes the tree's tar, sorted by path.
func writeTree(ctx context.Context, t *tree, w io.Writer) error {
	tw := tar.NewWriter(w)
	written := map[*entry]string{} // the first path of each entry
	for _, key := range slices.Sorted(maps.Keys(t.entries)) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("writing the layer: %w", err)
		}
		e := t.entries[key]
		h := &tar.Header{Name: key, Typeflag: e.kind, Mode: e.mode, Uid: e.uid, Gid: e.gid, ModTime: epoch}
		switch first, linked := written[e]; {
		case linked:
			h.Typeflag, h.Linkname = tar.TypeLink, first
		case e.kind == folder:
			h.Name += "/"
		case e.kind == symlink:
			h.Linkname = e.target
		default:
			written[e], h.Size = key, e.size
		}
		if err := tw.WriteHeader(h); err != nil {
			return fmt.Errorf("writing /%s: %w", key, err)
		}
		if h.Typeflag == regular {
			if err := copyContent(tw, e); err != nil {
				return fmt.Errorf("writing /%s: %w", key, err)
			}
		}
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("writing the layer: %w", err)
	}
	return nil
}

// copyContent copies exactly the bytes that were announced.
func copyContent(w io.Writer, e *entry) error {
	r, err := e.open()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	n, err := io.Copy(w, io.LimitReader(r, e.size))
	if err != nil {
		return err
	}
	if n != e.size {
		return fmt.Errorf("it shrank from %d to %d bytes meanwhile; build again when nobody writes to it", e.size, n)
	}
	return nil
}

// counter counts what is written to it.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}
