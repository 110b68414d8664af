package cli

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/pelago-dev/pelago/deploy"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

var update = flag.Bool("update", false, "write golden files anew")

// limit bounds every wait of these tests.
const limit = 60 * time.Second

// result is what a run of the program left.
type result struct {
	code     int
	out, err string
}

// world is two real API servers of this package's own: install and uninstall reach for
// everything in a cluster that is Pelago's, so they cannot share one with other tests.
type world struct {
	once [2]sync.Once
	file [2]string
}

var servers world

// server returns the config of server i, starting it if nobody has.
func (w *world) server(t *testing.T, i int) *rest.Config {
	t.Helper()
	w.once[i].Do(func() { w.file[i] = startServer(t) })
	if w.file[i] == "" {
		t.Fatal("the API server did not start")
	}
	config, err := clientcmd.BuildConfigFromFlags("", w.file[i])
	if err != nil {
		t.Fatal(err)
	}
	config.QPS = -1
	return config
}

// startServer starts an API server that ends with this process.
func startServer(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pelago-cli-test-")
	if err != nil {
		t.Fatal(err)
	}
	cleanups = append(cleanups, func() { os.RemoveAll(dir) })
	out, err := os.Create(filepath.Join(dir, "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	command := exec.Command(kubetest.Program(t), "apiserver", "--dir", filepath.Join(dir, "server"), "--watch-pid", strconv.Itoa(os.Getpid()))
	command.Stdout = out
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	cleanups = append(cleanups, func() { command.Process.Signal(syscall.SIGTERM); command.Wait() })
	var ready struct{ Kubeconfig string }
	eventually(t, "the API server is ready", func() bool {
		text, err := os.ReadFile(out.Name())
		return err == nil && bytes.ContainsRune(text, '\n') && json.Unmarshal(text, &ready) == nil
	})
	return ready.Kubeconfig
}

var cleanups []func()

func TestMain(m *testing.M) {
	if play := children[os.Getenv(childVariable)]; play != nil {
		os.Exit(play(os.Args[1:]))
	}
	flag.Parse()
	code := m.Run()
	for i := len(cleanups) - 1; i >= 0; i-- {
		cleanups[i]()
	}
	os.Exit(code)
}

// eventually waits until condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("waiting until %s: not so after %s", what, limit)
		case <-tick.C:
		}
	}
}

// environment is the program's world without any cluster.
func environment(out, err *bytes.Buffer) *Env {
	return &Env{
		In: strings.NewReader(""), Out: out, Err: err,
		Getenv:  func(string) string { return "" },
		Clock:   clock.RealClock{},
		Rand:    rand.Reader,
		Version: "v1.2.3",
		Connect: Connect,
		Render: func(values map[string]any) ([]*unstructured.Unstructured, error) {
			return deploy.Render(values, deploy.Release{})
		},
	}
}

// program runs the command line with no cluster.
func program(args ...string) result { return programWith(context.Background(), nil, args...) }

// programWith runs it in a changed environment.
func programWith(ctx context.Context, change func(*Env), args ...string) result {
	var out, stderr bytes.Buffer
	e := environment(&out, &stderr)
	if change != nil {
		change(e)
	}
	code := Run(ctx, e, args)
	return result{code, out.String(), stderr.String()}
}

// golden compares with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("reading the golden file: %v; write it with -update", err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got):\n%s", file, d)
	}
}
