package image

import (
	"archive/tar"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestRefuse checks that mistakes are told by field, with a remedy, and leave
// nothing behind.
func TestRefuse(t *testing.T) {
	dir := site(t)
	good := Spec{Ref: "pelago.local/site:1", Dir: dir}
	for _, c := range []struct {
		reason string
		change func(*Spec)
		want   string
	}{
		{"no name", func(s *Spec) { s.Ref = "" }, "ref: it is empty; write"},
		{"no registry", func(s *Spec) { s.Ref = "nginx:demo" }, "pelago.local/nginx:demo"},
		{"a namespace is no registry", func(s *Spec) { s.Ref = "me/nginx:demo" }, "registry to be explicitly"},
		{"no tag", func(s *Spec) { s.Ref = "pelago.local/nginx" }, "ref: "},
		{"capitals", func(s *Spec) { s.Ref = "pelago.local/Nginx:1" }, "ref: "},
		{"a digest cannot be chosen", func(s *Spec) { s.Ref = "pelago.local/n@sha256:" + strings.Repeat("a", 64) }, "ref: "},
		{"two bases", func(s *Spec) { s.Packages = []string{"nginx"} }, "an image has one of them"},
		{"no base", func(s *Spec) { s.Dir = "" }, "give one of them"},
		{"no such folder", func(s *Spec) { s.Dir = filepath.Join(dir, "gone") }, "dir: "},
		{"a file as folder", func(s *Spec) { s.Dir = filepath.Join(dir, "etc/secret") }, "dir: "},
		{"a package that is an option", func(s *Spec) { s.Dir, s.Packages = "", []string{"-o=x"} }, "packages: "},
		{"a package that apt would remove", func(s *Spec) { s.Dir, s.Packages = "", []string{"nginx-"} }, "packages: "},
		{"packages for another machine", func(s *Spec) { s.Dir, s.Packages, s.Architecture = "", []string{"nginx"}, "s390x" }, "architecture: "},
		{"a Go package that is a flag", func(s *Spec) { s.Dir, s.GoPackage = "", "-toolexec=x" }, "go package: "},
		{"a Go package that is not there", func(s *Spec) { s.Dir, s.GoPackage = "", "./testdata/gone" }, "go package: "},
		{"flags for no Go package", func(s *Spec) { s.GoFlags = []string{"-v"} }, "go flags: "},
		{"a relative file", func(s *Spec) { s.Files = map[string]string{"etc/motd": "x"} }, "files: "},
		{"a file that climbs", func(s *Spec) { s.Files = map[string]string{"/../x": "x"} }, "files: "},
		{"a file that is not there", func(s *Spec) { s.Files = map[string]string{"/x": filepath.Join(dir, "gone")} }, "files: /x"},
		{"a folder as file", func(s *Spec) { s.Files = map[string]string{"/x": dir} }, "files: /x"},
		{"a file over a folder", func(s *Spec) { s.Files = map[string]string{"/etc": filepath.Join(dir, "etc/secret")} }, "files: placing /etc"},
		{"an environment without value", func(s *Spec) { s.Env = []string{"A"} }, "env: "},
		{"a relative working folder", func(s *Spec) { s.WorkingDir = "a" }, "working dir: "},
		{"a user with a space", func(s *Spec) { s.User = "a b" }, "user: "},
		{"an empty program", func(s *Spec) { s.Entrypoint = []string{""} }, "entrypoint: "},
		{"a program that is not there", func(s *Spec) { s.Entrypoint = []string{"/bin/rum"} }, "entrypoint: "},
		{"a command line as program", func(s *Spec) { s.Entrypoint = []string{"/bin/run -v"} }, "each argument separately"},
	} {
		s, out := good, t.TempDir()
		c.change(&s)
		err := Build(deadline(t), s, filepath.Join(out, "image.tar"), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.reason, err, c.want)
		}
		if left, _ := os.ReadDir(out); len(left) != 0 {
			t.Errorf("%s: %s is left", c.reason, left[0].Name())
		}
	}
}

func TestRefuseInFolder(t *testing.T) {
	for _, c := range []struct {
		reason, want string
		make         func(dir string) error
	}{
		{"a link out of the folder", "leads out", func(dir string) error { return os.Symlink("../../etc/passwd", filepath.Join(dir, "var/l")) }},
		{"a link to the folder's place on this machine", "make it relative", func(dir string) error { return os.Symlink(filepath.Join(dir, "bin/run"), filepath.Join(dir, "l")) }},
		{"a pipe", "neither file", func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600) }},
	} {
		dir := site(t)
		if resolved, err := filepath.EvalSymlinks(dir); err != nil {
			t.Fatal(err)
		} else if err := c.make(resolved); err != nil {
			t.Fatal(err)
		}
		err := Build(deadline(t), Spec{Ref: "pelago.local/site:1", Dir: dir}, filepath.Join(t.TempDir(), "image.tar"), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.reason, err, c.want)
		}
	}
	dir := site(t)
	if err := Build(deadline(t), Spec{Ref: "pelago.local/site:1", Dir: dir}, filepath.Join(dir, "var/image.tar"), nil); err == nil || !strings.Contains(err.Error(), "write it elsewhere") {
		t.Errorf("an image inside its own folder: %v", err)
	}
}

// TestOldImageStays checks that a build that fails leaves the image of the last
// one that did not.
func TestOldImageStays(t *testing.T) {
	dir, out := site(t), filepath.Join(t.TempDir(), "image.tar")
	s := Spec{Ref: "pelago.local/site:1", Dir: dir}
	if err := Build(deadline(t), s, out, nil); err != nil {
		t.Fatal(err)
	}
	before, err := Describe(out)
	if err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Build(ended, s, out, nil); err == nil {
		t.Error("a build that was told to stop did not")
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Build(deadline(t), s, out, nil); err == nil {
		t.Error("a pipe went into the image")
	}
	tag, err := s.check()
	if err != nil {
		t.Fatal(err)
	}
	hash := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}
	if err := writeArchive(tag, s, fileLayer{path: filepath.Join(dir, "gone"), hash: hash}, t.TempDir(), out); err == nil {
		t.Error("a layer that cannot be read went into the image")
	}
	after, err := Describe(out)
	if err != nil || after.Digest != before.Digest {
		t.Errorf("%+v, %v; before %+v", after, err, before)
	}
	if left, _ := os.ReadDir(filepath.Dir(out)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestDescribeRefuses(t *testing.T) {
	archive := func(parts map[string]string) string {
		file := filepath.Join(t.TempDir(), "x.tar")
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = f.Close() }()
		w := tar.NewWriter(f)
		for name, content := range parts {
			if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: regular, Size: int64(len(content))}); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write([]byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return file
	}
	notTar := filepath.Join(t.TempDir(), "text")
	write(t, notTar, strings.Repeat("no tar ", 1000), 0o600)
	for _, c := range []struct{ reason, file, want string }{
		{"no file", filepath.Join(t.TempDir(), "gone"), "no such file"},
		{"no tar", notTar, "not a tar"},
		{"a folder", t.TempDir(), "directory"},
		{"another tar", archive(map[string]string{"a": "b"}), "no part"},
		{"two images", archive(map[string]string{"manifest.json": `[{},{}]`}), "2 images"},
		{"no configuration", archive(map[string]string{"manifest.json": `[{"Config":"c"}]`}), "no part"},
		{"no JSON", archive(map[string]string{"manifest.json": `x`}), "manifest.json"},
		{"too much", archive(map[string]string{"manifest.json": strings.Repeat(" ", maxText+1)}), "at most"},
	} {
		if _, err := Describe(c.file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.reason, err, c.want)
		}
	}
}
