package verify

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
)

// copyBothWays does what kubectl cp does: it sends files as an archive to tar in
// a pod, compares checksums there, gets them back and compares again.
func copyBothWays(ctx context.Context, e *env) error {
	const size = 3 << 20
	files := map[string][]byte{"sent/large": noise(size), "sent/inner/small": []byte("small\n"), "sent/empty": {}}
	archive, err := packed(files)
	if err != nil {
		return err
	}
	if _, err := e.exec(ctx, web(0), bytes.NewReader(archive), "tar", "-x", "-f", "-", "-C", workDir); err != nil {
		return fmt.Errorf("copying to the pod: %w", err)
	}
	for name, data := range files {
		out, err := e.exec(ctx, web(0), nil, "sha256sum", workDir+"/"+name)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		if got, _, _ := strings.Cut(out, " "); got != hex.EncodeToString(sum[:]) {
			return fmt.Errorf("%s arrived in the pod with checksum %s instead of %x", name, got, sum)
		}
	}
	var back bytes.Buffer
	if err := e.execTo(ctx, web(0), nil, &back, "tar", "-c", "-f", "-", "-C", workDir, "sent"); err != nil {
		return fmt.Errorf("copying from the pod: %w", err)
	}
	got, err := unpacked(&back)
	if err != nil {
		return fmt.Errorf("copying from the pod: %w", err)
	}
	for name, data := range files {
		if returned, there := got[name]; !there || !bytes.Equal(returned, data) {
			return fmt.Errorf("%s came back with %d bytes of %d, or others", name, len(returned), len(data))
		}
	}
	return nil
}

// noise returns bytes that no compression or loss can hide in, the same each time.
func noise(size int) []byte {
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b) // it never fails
	return b
}

// packed makes a tar archive of files.
func packed(files map[string][]byte) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(data)), Mode: 0o644}); err != nil {
			return nil, fmt.Errorf("packing %s: %w", name, err)
		}
		if _, err := w.Write(data); err != nil {
			return nil, fmt.Errorf("packing %s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("packing: %w", err)
	}
	return b.Bytes(), nil
}

// unpacked returns the regular files of a tar archive.
func unpacked(archive io.Reader) (map[string][]byte, error) {
	const most = 64 << 20
	files := map[string][]byte{}
	for r := tar.NewReader(io.LimitReader(archive, most)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		} else if err != nil {
			return nil, fmt.Errorf("unpacking: %w", err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			return nil, fmt.Errorf("unpacking %s: %w", h.Name, err)
		}
	}
}
