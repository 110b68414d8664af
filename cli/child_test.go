package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// childVariable names what a process of this test plays that is not the test itself, one of children.
const childVariable = "PELAGO_TEST_PLAYS"

var children = map[string]func(args []string) int{"deaf": deaf}

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
