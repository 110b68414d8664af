package kubetest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// fakeServer keeps the contract of `pelago-sandbox apiserver` without an API server:
// one line on standard output, gone with the watched process, its directory too, which
// was empty at first.
const fakeServer = `#!/bin/sh
[ "$1" = apiserver ] && [ "$2" = --dir ] && [ "$4" = --watch-pid ] || exit 64
[ -z "$(ls -A "$3")" ] || exit 65
echo started >> "$COUNT"
echo '{"kubeconfig": "'"$3"'/kubeconfig", "pid": 1, "ready_ms": 1}'
while kill -0 "$5" 2>/dev/null; do sleep 0.05; done
rm -rf "$3"
`

func TestShare(t *testing.T) {
	root := t.TempDir()
	program := script(t, fakeServer)
	count := filepath.Join(root, "count")
	t.Setenv("COUNT", count)
	owner, end := sleeper(t)

	first := mustShare(t, root, program, owner)
	if t.Failed() {
		return // who signals process 0 signals himself
	}
	if first.startup == 0 {
		t.Error("the first caller starts the server, yet it reports no startup time")
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			if again := mustShare(t, root, program, owner); again.Process != first.Process || again.startup != 0 {
				t.Errorf("sharing again gave process %v, want the running %v", again.Process, first.Process)
			}
		})
	}
	group.Wait()

	if err := syscall.Kill(first.Process.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the killed server is gone", func() bool { return !first.Process.alive() })
	second := mustShare(t, root, program, owner)
	if second.Process == first.Process {
		t.Error("a server that was killed is still handed out")
	}
	if text, err := os.ReadFile(count); err != nil || strings.Count(string(text), "started") != 2 {
		t.Errorf("the program was started %q, %v; want twice", text, err)
	}

	end()
	eventually(t, "the server ends with the run", func() bool { return !second.Process.alive() })
	eventually(t, "the server removes the directory of the run", func() bool {
		dirs, _ := filepath.Glob(filepath.Join(root, runPrefix+"*"))
		return len(dirs) == 0
	})
}

// TestShareAtOnce holds that callers who come together get one server, not one each.
func TestShareAtOnce(t *testing.T) {
	root := t.TempDir()
	count := filepath.Join(root, "count")
	t.Setenv("COUNT", count)
	program := script(t, fakeServer)
	owner, _ := sleeper(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { mustShare(t, root, program, owner) })
	}
	group.Wait()
	if text, err := os.ReadFile(count); err != nil || string(text) != "started\n" {
		t.Errorf("the program was started %q, %v; want once", text, err)
	}
}

func TestShareFails(t *testing.T) {
	cases := []struct {
		reason, program, want string
	}{
		{"what it said last is in the error", "#!/bin/sh\necho no memory left >&2; exit 3\n", "no memory left"},
		{"also when it has removed its directory", "#!/bin/sh\necho no port left >&2; rm -r \"$3\"; exit 3\n", "no port left"},
		{"output that is not ours is shown", "#!/bin/sh\necho hello; sleep 60\n", `"hello" is not JSON`},
		{"a line without a kubeconfig is no server", "#!/bin/sh\necho '{}'; sleep 60\n", "with a kubeconfig"},
		{"waiting ends", "#!/bin/sh\nsleep 60\n", "not ready: context deadline exceeded"},
		{"a program that cannot run is named", "not a program", "starting an API server with"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			owner, _ := sleeper(t)
			limit := patience
			if strings.Contains(c.want, "deadline") {
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			_, err := share(ctx, t.TempDir(), script(t, c.program), owner)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want it to contain %q", err, c.want)
			}
		})
	}
}

// TestStop holds that a server that does not end when it is asked is gone when stop returns:
// it cannot remove what the next one has made.
func TestStop(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("/bin/sh", "-c", "trap '' TERM; echo; exec sleep 600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	var gone atomic.Bool
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		gone.Store(true)
		ended <- err
		close(ended)
	}()
	stop(cmd.Process.Pid, ended)
	if !gone.Load() {
		t.Error("it is not gone")
	}
}

func TestSweep(t *testing.T) {
	root := t.TempDir()
	alive, err := lookup(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	name := func(p process) string {
		return filepath.Join(root, fmt.Sprintf("%s%d-%d-%s", runPrefix, os.Geteuid(), p.PID, p.Start))
	}
	ended := process{PID: os.Getpid(), Start: "1"} // the number is in use again
	served := process{PID: os.Getpid(), Start: "2"}
	for _, p := range []process{alive, ended, served} {
		if err := os.Mkdir(name(p), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeServer(name(served), server{Process: alive}); err != nil {
		t.Fatal(err)
	}
	sweep(root)
	for p, want := range map[process]bool{alive: true, ended: false, served: true} {
		if _, err := os.Stat(name(p)); errors.Is(err, fs.ErrNotExist) == want {
			t.Errorf("directory of run %v: there is %v, want %v", p, !want, want)
		}
	}
}

func TestParseStat(t *testing.T) {
	rest := strings.Repeat(" 0", 18) + " 4711 0 0"
	cases := []struct {
		reason, text, want string
	}{
		{"an ordinary process", "12 (go) S" + rest, "4711"},
		{"names may hold anything", "12 (a) Z (b) ) R" + rest, "4711"},
		{"a zombie has ended", "12 (go) Z" + rest, ""},
		{"cut short", "12 (go) S 0 0", ""},
		{"nothing", "", ""},
	}
	for _, c := range cases {
		got, err := parseStat(12, c.text)
		if got.Start != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s: start %q, error %v; want %q", c.reason, got.Start, err, c.want)
		}
	}
}

func mustShare(t *testing.T, root, program string, owner process) server {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s, err := share(ctx, root, program, owner)
	if err != nil {
		t.Error(err)
	}
	return s
}

// sleeper starts a process that stands for a run, and returns how to end it.
func sleeper(t *testing.T) (process, func()) {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(end)
	p, err := lookup(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return p, end
}

// script writes an executable file.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// patience bounds the wait for what comes at once unless the machine is busy.
const patience = time.Minute

// eventually waits until the condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("waiting until %s: not so after %s", what, patience)
		case <-tick.C:
		}
	}
}
