package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// roots makes a folder per architecture.
func roots(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, arch := range []string{"arm64", "amd64"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "program"), "for "+arch, 0o755)
		write(t, filepath.Join(dir, "etc/ssl/ca.crt"), "trust", 0o644)
		found[arch] = dir
	}
	return found
}

func TestPack(t *testing.T) {
	spec := PackSpec{Ref: "pelago.local/both:1", Roots: roots(t), Entrypoint: []string{"/program"}, User: "65532:65532"}
	out := filepath.Join(t.TempDir(), "image.tar")
	if err := Pack(deadline(t), spec, out, nil); err != nil {
		t.Fatal(err)
	}
	ref, digest, err := DescribePack(out)
	if err != nil || ref != spec.Ref || !strings.HasPrefix(digest, "sha256:") {
		t.Fatalf("archive says %q, %q, %v", ref, digest, err)
	}
	folder := t.TempDir()
	untar(t, out, folder)
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	top, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	inner, err := index.ImageIndex(top.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	list, err := inner.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range list.Manifests {
		img, err := inner.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := img.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		layers, err := img.Layers()
		if err != nil {
			t.Fatal(err)
		}
		content, err := layers[0].Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		if _, err := text.ReadFrom(content); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(text.String(), "for "+m.Platform.Architecture) {
			t.Errorf("the image for %s holds another one's program", m.Platform.Architecture)
		}
		got = append(got, m.Platform.String()+" "+config.Architecture+" "+config.Config.User+" "+strings.Join(config.Config.Entrypoint, " "))
	}
	want := []string{"linux/amd64 amd64 65532:65532 /program", "linux/arm64 arm64 65532:65532 /program"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	again := filepath.Join(t.TempDir(), "again.tar")
	if err := Pack(deadline(t), spec, again, nil); err != nil {
		t.Fatal(err)
	}
	first, _ := os.ReadFile(out)
	second, _ := os.ReadFile(again)
	if !bytes.Equal(first, second) {
		t.Error("the same folders gave another archive")
	}
}

func TestPackRefuses(t *testing.T) {
	good := roots(t)
	for _, c := range []struct {
		reason string
		spec   PackSpec
		want   string
	}{
		{"an image without a name cannot be found again", PackSpec{Roots: good}, "ref: it is empty"},
		{"an image of nothing", PackSpec{Ref: "pelago.local/site:1"}, "root: there is none"},
		{"a folder that is not there", PackSpec{Ref: "pelago.local/site:1", Roots: map[string]string{"amd64": "/nowhere"}}, "/nowhere is not a folder"},
		{"a program that is missing for one architecture would fail there only", PackSpec{Ref: "pelago.local/site:1", Roots: good, Entrypoint: []string{"/other"}}, "is not a file of the image"},
	} {
		out := filepath.Join(t.TempDir(), "image.tar")
		err := Pack(deadline(t), c.spec, out, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.reason, err, c.want)
		}
		if left, _ := os.ReadDir(filepath.Dir(out)); len(left) > 0 {
			t.Errorf("%s: left %v behind", c.reason, left)
		}
	}
	other := filepath.Join(t.TempDir(), "image.tar")
	if err := os.WriteFile(other, []byte("no tar"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := DescribePack(other); err == nil {
		t.Error("a file that is no archive was read")
	}
}

// untar unpacks the plain files of a tar.
func untar(t *testing.T, file, folder string) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(folder, h.Name), string(content), 0o644)
	}
}
