package image

import (
	"archive/tar"
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// deadline is a context for one test.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// site makes a folder with every kind of thing an image may hold.
func site(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "bin/run"), "#!/bin/sh\n", 0o755)
	write(t, filepath.Join(dir, "etc/secret"), "s", 0o600)
	for _, err := range []error{
		os.Symlink("bin/run", filepath.Join(dir, "start")),
		os.Symlink("/proc/self/fd/1", filepath.Join(dir, "out")),
		os.MkdirAll(filepath.Join(dir, "var/tmp"), 0o755),
		os.Chmod(filepath.Join(dir, "var/tmp"), os.ModeSticky|0o777),
		os.Chmod(filepath.Join(dir, "bin/run"), os.ModeSetuid|0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func write(t *testing.T, file, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, mode); err != nil {
		t.Fatal(err)
	}
}

func build(t *testing.T, s Spec) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "image.tar")
	if err := Build(deadline(t), s, out, func(step string) { t.Log(step) }); err != nil {
		t.Fatal(err)
	}
	return out
}

// headers lists the layer of an image, read by the library, not by our code.
func headers(t *testing.T, archive string) []tar.Header {
	t.Helper()
	var all []tar.Header
	eachHeader(t, archive, func(h *tar.Header, _ io.Reader) {
		all = append(all, tar.Header{Name: h.Name, Typeflag: h.Typeflag, Mode: h.Mode, Uid: h.Uid, Gid: h.Gid, Linkname: h.Linkname, Size: h.Size})
		if !h.ModTime.Equal(epoch) {
			t.Errorf("%s has a time: %v", h.Name, h.ModTime)
		}
	})
	return all
}

func eachHeader(t *testing.T, archive string, do func(*tar.Header, io.Reader)) {
	t.Helper()
	img, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = content.Close() }()
	for r := tar.NewReader(content); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		do(h, r)
	}
}

func TestFolder(t *testing.T) {
	extra := filepath.Join(t.TempDir(), "motd")
	write(t, extra, "hello", 0o640)
	archive := build(t, Spec{Ref: "pelago.local/site:1", Dir: site(t), Files: map[string]string{"/etc/deep/motd": extra}})
	want := []tar.Header{
		{Name: "bin/", Typeflag: folder, Mode: 0o755},
		{Name: "bin/run", Typeflag: regular, Mode: 0o4755, Size: 10},
		{Name: "etc/", Typeflag: folder, Mode: 0o755},
		{Name: "etc/deep/", Typeflag: folder, Mode: 0o755},
		{Name: "etc/deep/motd", Typeflag: regular, Mode: 0o640, Size: 5},
		{Name: "etc/secret", Typeflag: regular, Mode: 0o600, Size: 1},
		{Name: "out", Typeflag: symlink, Mode: 0o777, Linkname: "/proc/self/fd/1"},
		{Name: "start", Typeflag: symlink, Mode: 0o777, Linkname: "bin/run"},
		{Name: "var/", Typeflag: folder, Mode: 0o755},
		{Name: "var/tmp/", Typeflag: folder, Mode: 0o1777},
	}
	if diff := cmp.Diff(want, headers(t, archive)); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
}

func TestReproducible(t *testing.T) {
	digest := func(s Spec) string {
		info, err := Describe(build(t, s))
		if err != nil {
			t.Fatal(err)
		}
		return info.Digest
	}
	one, two, other := site(t), site(t), site(t)
	past := time.Unix(1e9, 0)
	if err := os.Chtimes(filepath.Join(two, "etc/secret"), past, past); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(other, "etc/secret"), "t", 0o600)
	spec := Spec{Ref: "pelago.local/site:1", Dir: one, Env: []string{"A=b"}, Entrypoint: []string{"/start"}}
	first := digest(spec)
	for _, c := range []struct {
		reason string
		change func(*Spec)
		same   bool
	}{
		{"the same once more", func(*Spec) {}, true},
		{"the same content elsewhere, with other times", func(s *Spec) { s.Dir = two }, true},
		{"another name for the same image", func(s *Spec) { s.Ref = "pelago.local/site:2" }, true},
		{"other content", func(s *Spec) { s.Dir = other }, false},
		{"another environment", func(s *Spec) { s.Env = []string{"A=c"} }, false},
	} {
		s := spec
		c.change(&s)
		if got := digest(s); (got == first) != c.same {
			t.Errorf("%s: digest %s, before %s", c.reason, got, first)
		}
	}
	program := Spec{Ref: "pelago.local/hello:1", GoPackage: "./testdata/hello"}
	if a, b := digest(program), digest(program); a != b {
		t.Errorf("a Go package gives %s and then %s", a, b)
	}
}

func TestProgram(t *testing.T) {
	archive := build(t, Spec{Ref: "pelago.local/hello:1", GoPackage: "./testdata/hello"})
	info, err := Describe(archive)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.Stat(archive)
	if err != nil {
		t.Fatal(err)
	}
	want := Info{Ref: "pelago.local/hello:1", Digest: info.Digest, Size: stat.Size(), Architecture: runtime.GOARCH, Entrypoint: []string{"/hello"}}
	if diff := cmp.Diff(want, info); diff != "" {
		t.Errorf("Describe (-want +got):\n%s", diff)
	}
	img, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := img.ConfigName(); err != nil || id.String() != info.Digest {
		t.Errorf("the library says %v, %v; Describe says %s", id, err, info.Digest)
	}
	var names []string
	for _, h := range headers(t, archive) {
		names = append(names, h.Name)
	}
	if diff := cmp.Diff([]string{"etc/", "etc/group", "etc/passwd", "hello", "tmp/"}, names); diff != "" {
		t.Errorf("layer (-want +got):\n%s", diff)
	}
	requireRoot(t)
	if got := run(t, extract(t, archive), "/hello"); got != "hello\n" {
		t.Errorf("it says %q", got)
	}
}

func TestOtherArchitecture(t *testing.T) {
	archive := build(t, Spec{Ref: "pelago.local/hello:1", GoPackage: "./testdata/hello", Architecture: "arm64", Entrypoint: []string{"/hello", "-v"}})
	info, err := Describe(archive)
	if err != nil {
		t.Fatal(err)
	}
	if info.Architecture != "arm64" || len(info.Entrypoint) != 2 {
		t.Errorf("%+v", info)
	}
	eachHeader(t, archive, func(h *tar.Header, r io.Reader) {
		if h.Name != "hello" {
			return
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if program, err := elf.NewFile(bytes.NewReader(content)); err != nil || program.Machine != elf.EM_AARCH64 {
			t.Errorf("the program is for %v, %v", program, err)
		}
	})
}

func TestDefaults(t *testing.T) {
	archive := build(t, Spec{Ref: "pelago.local/site:1", Dir: site(t), Env: []string{"A=b"}, User: "1:2", WorkingDir: "/bin", Cmd: []string{"x"}})
	img, err := tarball.ImageFromPath(archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	got := []string{config.OS, config.Config.User, config.Config.WorkingDir, strings.Join(config.Config.Cmd, " "), strings.Join(config.Config.Env, " ")}
	if diff := cmp.Diff([]string{"linux", "1:2", "/bin", "x", searchPath + " A=b"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// extract unpacks the layer as a container runtime does.
func extract(t *testing.T, archive string) string {
	t.Helper()
	// Unix sockets below it must have short paths, which t.TempDir has not.
	root, err := os.MkdirTemp("", "img")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	eachHeader(t, archive, func(h *tar.Header, r io.Reader) {
		file := filepath.Join(root, h.Name)
		var err error
		switch h.Typeflag {
		case folder:
			err = os.MkdirAll(file, 0o700)
		case symlink:
			err = os.Symlink(h.Linkname, file)
		case tar.TypeLink:
			err = os.Link(filepath.Join(root, h.Linkname), file)
		default:
			err = writeContent(file, r)
		}
		if err == nil {
			err = os.Lchown(file, h.Uid, h.Gid)
		}
		if err == nil && h.Typeflag != symlink {
			err = syscall.Chmod(file, uint32(h.Mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
	return root
}

func writeContent(file string, r io.Reader) error {
	syscall.ForkLock.RLock() // it may be run next: see writeProgram
	defer syscall.ForkLock.RUnlock()
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}

// inside is a program run in an unpacked image, without network and with its
// own process numbers, so that nothing of it can outlive it.
func inside(t *testing.T, root string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(deadline(t), args[0], args[1:]...)
	cmd.Path = args[0]
	cmd.Dir = "/"
	cmd.Env = []string{searchPath}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func run(t *testing.T, root string, args ...string) string {
	t.Helper()
	out, err := inside(t, root, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

func requireRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		skip(t, "needs root to change the root folder")
	}
}

// skip skips, except in CI, which has all it takes.
func skip(t *testing.T, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(reason)
	}
	t.Skip(reason)
}
