package build

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pelago-dev/pelago/sandbox/config"
)

func TestIsPackage(t *testing.T) {
	for _, c := range []struct {
		reason, line string
		want         bool
	}{
		{"a package of a module", "k8s.io/kubernetes/pkg/kubelet", true},
		{"a package of the standard library", "net", true},
		{"a vendored one", "vendor/golang.org/x/net/idna", true},
		{"a version in the path", "gopkg.in/yaml.v3", true},
		{"the heading of problems", "# k8s.io/kubernetes/pkg/kubelet", false},
		{"a problem", "pkg/kubelet/kubelet.go:12:3: undefined: x", false},
		{"a note of the go command", "go: downloading k8s.io/api v0.36.3", false},
		{"a continued problem", "\thave (string)", false},
		{"nothing", "", false},
	} {
		if got := isPackage(c.line); got != c.want {
			t.Errorf("%s: %q: %t, want %t", c.reason, c.line, got, c.want)
		}
	}
}

// unpacked writes files below a new folder.
func unpacked(t *testing.T, texts ...string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unpack(dir, texts); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCompileARealProgram(t *testing.T) {
	dir := unpacked(t,
		"go.mod", "module example.org/tiny\n\ngo 1.26\n",
		"main.go", "package main\n\nimport \"example.org/tiny/word\"\n\nfunc main() { println(word.Word) }\n",
		"word/word.go", "package word\n\nvar Word = \"built\"\n")
	var said []string
	cache := Cache{Dir: t.TempDir(), Progress: func(line string) { said = append(said, line) }}
	program := filepath.Join(dir, "tiny")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := cache.compile(ctx, "tiny v1", dir, "build", "-v", "-o", program, "."); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(program).CombinedOutput(); err != nil || string(out) != "built\n" {
		t.Errorf("the program says %q, %v", out, err)
	}
	if len(said) == 0 || !strings.HasPrefix(said[len(said)-1], "tiny v1: built in ") {
		t.Errorf("progress ends with %q", said)
	}
	if text, err := os.ReadFile(program); err == nil && strings.Contains(string(text), "libc.so") {
		t.Error("the program needs a C library")
	}
}

func TestCompileSaysWhatIsWrong(t *testing.T) {
	dir := unpacked(t, "go.mod", "module example.org/tiny\n\ngo 1.26\n", "main.go", "package main\n\nfunc main() { missing() }\n")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	err := Cache{}.compile(ctx, "tiny v1", dir, "build", "-v", "-o", os.DevNull, ".")
	for _, want := range []string{"building tiny v1", "main.go:3", "undefined: missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}

// fakeGo puts a script named go first on the PATH.
func fakeGo(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "go"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

func TestCompileCountsWhatItSees(t *testing.T) {
	fakeGo(t, `for i in 1 2 3; do echo "go: downloading m$i v1" >&2; done; echo a/b >&2; echo a/c >&2; for i in 1 2; do sleep 1.1; echo "# note" >&2; done`)
	var said []string
	cache := Cache{Progress: func(line string) { said = append(said, line) }}
	if err := cache.compile(context.Background(), "it", t.TempDir()); err != nil {
		t.Fatal(err)
	}
	// A busy machine has it say more before, and takes longer.
	said = said[max(0, len(said)-2):]
	for i := range said {
		said[i] = regexp.MustCompile(`\d+s$`).ReplaceAllString(said[i], "Ns")
	}
	want := []string{"it: 3 modules fetched, 2 packages compiled, Ns", "it: built in Ns"}
	if d := cmp.Diff(want, said); d != "" {
		t.Errorf("progress (-want +got):\n%s", d)
	}
}

// TestCompileReadsLongLines has the go command print more than a pipe holds.
func TestCompileReadsLongLines(t *testing.T) {
	fakeGo(t, `head -c 300000 /dev/zero | tr '\0' ' ' >&2; echo >&2; echo "the reason: none" >&2; exit 1`)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := Cache{}.compile(ctx, "it", t.TempDir())
	if err == nil || !strings.HasSuffix(err.Error(), "the reason: none") || ctx.Err() != nil {
		t.Errorf("after a long line: %.100v", err)
	}
}

func TestReleaseThatIsNotThere(t *testing.T) {
	for _, c := range []struct{ reason, script, want string }{
		{"the module proxy has none", `echo '{"Error": "no such version"}'; exit 1`, "v1.99.0 to be had; choose another version: no such version"},
		{"the go command says nothing", "exit 1", "v1.99.0 to be had; choose another version: exit status 1"},
	} {
		fakeGo(t, c.script)
		_, err := Cache{Dir: t.TempDir()}.Kube(context.Background(), "v1.99.0")
		if err == nil || !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.reason, err, c.want)
		}
	}
}

func TestCompileEnvironment(t *testing.T) {
	fakeGo(t, `echo "cgo=$CGO_ENABLED work=$GOWORK args=$* in $PWD" >&2; exit 1`)
	t.Setenv("GOWORK", "/some/go.work")
	dir := t.TempDir()
	err := Cache{}.compile(context.Background(), "it", dir, "build", "./kube")
	if want := "cgo=0 work=off args=build ./kube in " + dir; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("the go command saw %v, want %q", err, want)
	}
}

// TestCompileIsCancelled asks the go command to end while it runs.
func TestCompileIsCancelled(t *testing.T) {
	fakeGo(t, ": > runs; exec sleep 1000")
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for _, err := os.Stat(filepath.Join(dir, "runs")); err != nil && ctx.Err() == nil; _, err = os.Stat(filepath.Join(dir, "runs")) {
			<-tick.C
		}
		cancel()
	}()
	if err := (Cache{}).compile(ctx, "it", dir); err == nil || !strings.Contains(err.Error(), syscall.SIGTERM.String()) {
		t.Errorf("it ended with %v", err)
	}
}

func TestCompileWithoutGo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := Cache{}.compile(context.Background(), "it", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "building it needs Go 1.26 or later on the PATH") {
		t.Errorf("without Go: %v", err)
	}
}

func TestEmbeddedSources(t *testing.T) {
	texts, err := sources("go.mod", "kube", "addons")
	if err != nil {
		t.Fatal(err)
	}
	dir := unpacked(t, texts...)
	for _, name := range []string{"go.mod", "kube/main.go", "addons/pause/main.go"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("embedded file %s: %v", name, err)
		}
	}
	again, err := sources("go.mod", "kube", "addons")
	if d := cmp.Diff(texts, again); err != nil || d != "" {
		t.Errorf("sources are not always in the same order: %v\n%s", err, d)
	}
	if _, err := sources("no-such-folder"); err == nil {
		t.Error("a folder that is not embedded was found")
	}
}

// release is the module file of a Kubernetes release, made small.
const release = `module k8s.io/kubernetes

go 1.26.0

godebug default=go1.26

require (
	github.com/spf13/cobra v1.10.2
	go.etcd.io/etcd/client/pkg/v3 v3.6.8
	k8s.io/api v0.0.0
	k8s.io/klog/v2 v2.140.0
	k8s.io/kubectl v0.0.0
	k8s.io/sample-apiserver v0.0.0
)

require github.com/beorn7/perks v1.0.1 // indirect

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubectl => ./staging/src/k8s.io/kubectl
	k8s.io/sample-apiserver => ./staging/src/k8s.io/sample-apiserver
)
`

func TestKubeRequirements(t *testing.T) {
	got, err := kubeRequirements([]byte(release), "v1.34.4")
	if err != nil {
		t.Fatal(err)
	}
	want := `module github.com/pelago-dev/pelago/sandbox

go 1.26.0

require (
	k8s.io/kubernetes v1.34.4
	github.com/spf13/cobra v1.10.2
	go.etcd.io/etcd/client/pkg/v3 v3.6.8
	k8s.io/api v0.34.4
	k8s.io/klog/v2 v2.140.0
	k8s.io/kubectl v0.34.4
	github.com/beorn7/perks v1.0.1 // indirect
)
`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Errorf("what the release replaces by its folders is required as published (-want +got):\n%s", d)
	}
	if _, err := kubeRequirements([]byte("module\nrequire ("), "v1.34.4"); err == nil {
		t.Error("nonsense was taken for a module file")
	}
}

func TestKubeFlags(t *testing.T) {
	want := "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
	if d := cmp.Diff(want, kubeFlags(config.DefaultVersion)); d != "" {
		t.Errorf("linker flags (-want +got):\n%s", d)
	}
}

// TestReadyProgramsNeedNoGo takes an entry as built, as a warm start does.
func TestReadyProgramsNeedNoGo(t *testing.T) {
	cache := Cache{Dir: t.TempDir()}
	fakeGo(t, `while [ $# -gt 1 ]; do if [ "$1" = -o ]; then echo program > "$2"; fi; shift; done; test -f kube/main.go || test -f addons/pause/main.go`)
	ctx := context.Background()
	kube, err := cache.Kube(ctx, config.DefaultVersion)
	if err != nil {
		t.Fatal(err)
	}
	pause, err := cache.Program(ctx, "pause", "addons/pause/main.go", "addons.mod")
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(kube) != "kube" || filepath.Base(pause) != "pause" {
		t.Errorf("programs are %s and %s", kube, pause)
	}
	t.Setenv("PATH", t.TempDir())
	for want, again := range map[string]func() (string, error){
		kube:  func() (string, error) { return cache.Kube(ctx, config.DefaultVersion) },
		pause: func() (string, error) { return cache.Program(ctx, "pause", "addons/pause/main.go", "addons.mod") },
	} {
		if got, err := again(); err != nil || got != want {
			t.Errorf("the second time: %s, %v, want %s", got, err, want)
		}
		if entries, err := os.ReadDir(filepath.Dir(want)); err != nil || len(entries) != 1 {
			t.Errorf("beside %s lie %v, %v: sources should be gone", filepath.Base(want), entries, err)
		}
	}
	if got, err := cache.Kube(ctx, "v1.34.4"); err == nil {
		t.Errorf("a version that was not built is %s", got)
	}
}
