package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// childVariable names what a process of this test plays that is not the test itself, one of children.
const childVariable = "PELAGO_TEST_PLAYS"

var children = map[string]func(args []string) int{"deaf": deaf, "closed": closed}

// child is the program as a process of its own, which plays what the name says.
func child(t *testing.T, plays string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), os.Args[0], args...)
	c.Env = append(os.Environ(), childVariable+"="+plays)
	return c
}

// deaf runs the program on a cluster to which the way is never found, whatever the context says.
func deaf(args []string) int {
	e := environment(&bytes.Buffer{}, &bytes.Buffer{})
	e.Connect = func(Access) (*Cluster, error) {
		fmt.Println("connecting")
		select {}
	}
	return Main(e, args)
}

// closed runs the program where no pod is to be called.
func closed(args []string) int {
	e := environment(nil, nil)
	e.Out, e.Err = os.Stdout, os.Stderr
	e.Connect = func(a Access) (*Cluster, error) {
		c, err := Connect(a)
		if err == nil {
			c.Exec = func(context.Context, string, string, []string) (string, error) {
				return "", errors.New("nothing is to be called")
			}
		}
		return c, err
	}
	return Main(e, args)
}

// TestNobodyReads holds that a test removes what it has made also when what it writes has no reader any more.
func TestNobodyReads(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id1)
	s.withProvider()
	s.pods()
	own := &v1alpha1.NetworkConfig{ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.PeeringNamespace("milan"), Name: v1alpha1.NetworkConsumer}}
	if err := s.merged(s.c, own, `{"spec":{"reachability":"none"}}`, ""); err != nil {
		t.Fatal(err)
	}
	for _, of := range []string{"results", "results and all else"} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Close()
		var said bytes.Buffer
		c := child(t, "closed", "test", "network", "--kubeconfig", s.access.Kubeconfig)
		if c.Stdout, c.Stderr = w, &said; of != "results" {
			c.Stderr = w
		}
		err = c.Run()
		_ = w.Close()
		if c.ProcessState.ExitCode() != 1 || strings.Contains(said.String(), "Error") {
			t.Errorf("while nobody reads %s it ends with %v: %s", of, err, said.String())
		}
		var spaces corev1.NamespaceList
		if err := s.c.List(t.Context(), &spaces); err != nil {
			t.Fatal(err)
		}
		for _, n := range spaces.Items {
			if strings.HasPrefix(n.Name, testPrefix) && n.DeletionTimestamp.IsZero() {
				t.Errorf("while nobody reads %s namespace %s stays", of, n.Name)
				s.drop(&n)
			}
		}
		eventually(t, "the namespaces of tests are gone", func() bool {
			err := s.c.List(t.Context(), &spaces)
			return err == nil && !slices.ContainsFunc(spaces.Items, func(n corev1.Namespace) bool { return strings.HasPrefix(n.Name, testPrefix) })
		})
	}
}

// TestInterruptedAgain holds that the second signal ends what the first one does not, though not at once, as one wish
// to end a program may be two signals.
func TestInterruptedAgain(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		c := child(t, "deaf", "status")
		out, err := c.StdoutPipe()
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		if said, err := out.Read(make([]byte, len("connecting\n"))); said == 0 || err != nil {
			t.Fatalf("the program says nothing: %v", err)
		}
		began, ended := time.Now(), make(chan error, 1)
		go func() { ended <- c.Wait() }()
		tick, deadline := time.NewTicker(50*time.Millisecond), time.After(limit)
		defer tick.Stop()
		for over := false; !over; {
			select {
			case err := <-ended:
				over = true
				if !strings.Contains(fmt.Sprint(err), "signal: "+signal.String()) {
					t.Errorf("%v again and again: %v", signal, err)
				}
				if lasted := time.Since(began); lasted < againAllowed {
					t.Errorf("two signals of %v at once are taken for two: it ended after %s", signal, lasted)
				}
			case <-deadline:
				t.Errorf("%v again and again does not end it", signal)
				_ = c.Process.Kill()
			case <-tick.C:
				_ = c.Process.Signal(signal)
			}
		}
	}
}

// asked calls heard when somebody reads.
type asked struct {
	io.Reader
	heard func()
}

func (a asked) Read(into []byte) (int, error) {
	a.heard()
	return a.Reader.Read(into)
}

// TestInputThatWaits holds that who interrupts a command that waits for standard input need not type first, and that a
// token ends with its line.
func TestInputThatWaits(t *testing.T) {
	line := []string{"peer", "milan", "--cluster-id", id1, "--auth-url", "https://milan.example:30443", "--ca-sha256", hash, "--token", "-", "--dry-run"}
	for _, args := range [][]string{line, {"install", "--values", "-", "--dry-run"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		reading := asked{r, cancel}
		ended := make(chan result, 1)
		go func() { ended <- programWith(ctx, func(e *Env) { e.In = reading }, args...) }()
		select {
		case got := <-ended:
			if got.code != 1 || !strings.Contains(got.err, "interrupted") {
				t.Errorf("%s, interrupted: %+v", args[0], got)
			}
		case <-time.After(limit / 6):
			t.Errorf("%s goes on to wait for input", args[0])
		}
		_ = w.Close()
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteString(marked + "\n"); err != nil {
		t.Fatal(err)
	}
	ended := make(chan result, 1)
	go func() { ended <- programWith(t.Context(), func(e *Env) { e.In = r }, line...) }()
	select {
	case got := <-ended:
		if got.code != 0 || !strings.Contains(got.out, marked) {
			t.Errorf("a line with a token: %+v", got)
		}
	case <-time.After(limit / 6):
		t.Error("after the line with the token it goes on to read")
	}
}
