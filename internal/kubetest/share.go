package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is what is known of a running API server; it is stored in its directory for
// the other test binaries of the run.
type server struct {
	Kubeconfig string  `json:"kubeconfig"`
	Process    process `json:"process"`
	startup    time.Duration
}

const (
	runPrefix  = "pelago-apiserver-"
	serverFile = "server.json"
	pollEvery  = 20 * time.Millisecond
)

// share returns the server of the run that owner stands for. The directory of the run
// below root is both the lock and the place: whoever holds the lock and finds no
// living server there starts one, and the server removes the directory at its end.
func share(ctx context.Context, root, program string, owner process) (server, error) {
	sweep(root)
	dir := filepath.Join(root, fmt.Sprintf("%s%d-%d-%s", runPrefix, os.Geteuid(), owner.PID, owner.Start))
	unlock, err := lockDir(ctx, dir)
	if err != nil {
		return server{}, err
	}
	defer unlock()
	if s, err := readServer(dir); err == nil && s.Process.alive() {
		return s, nil
	}
	if err := empty(dir); err != nil {
		return server{}, fmt.Errorf("clearing what an ended API server left: %w", err)
	}
	s, err := start(ctx, dir, program, owner)
	if err != nil {
		return server{}, fmt.Errorf("starting an API server with %s: %w", program, err)
	}
	return s, nil
}

// lockDir makes dir if need be and locks it. It starts over when the directory was
// removed while it waited for the lock.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	for {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("making the directory of the run: %w", err)
		}
		f, err := os.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("locking the directory of the run: %w", err)
		}
		if err := lockFile(ctx, f); err != nil {
			f.Close()
			return nil, fmt.Errorf("locking %s: %w", dir, err)
		}
		locked, err1 := f.Stat()
		named, err2 := os.Lstat(dir)
		if err1 == nil && err2 == nil && os.SameFile(locked, named) {
			if owner := named.Sys().(*syscall.Stat_t).Uid; int(owner) != os.Geteuid() {
				f.Close()
				return nil, fmt.Errorf("locking %s: it belongs to user %d; remove it", dir, owner)
			}
			return func() { f.Close() }, nil
		}
		f.Close()
	}
}

// lockFile waits for the lock. Another test binary holds it while it starts a server.
func lockFile(ctx context.Context, f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return err
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("another test binary holds it: %w", err)
		}
	}
}

// start runs the program and waits for its one line of output. The program gets files
// instead of pipes: go test waits for every holder of its pipes, and a later line must
// not kill the server.
func start(ctx context.Context, dir, program string, owner process) (server, error) {
	begin := time.Now()
	stdout, err := nameless(dir)
	if err != nil {
		return server{}, err
	}
	defer stdout.Close()
	stderr, err := nameless(dir)
	if err != nil {
		return server{}, err
	}
	defer stderr.Close()
	cmd := exec.Command(program, "apiserver", "--dir", dir, "--watch-pid", strconv.Itoa(owner.PID))
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt is for the tests; the server watches its owner
	if err := cmd.Start(); err != nil {
		return server{}, err
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		close(ended)
	}()
	kubeconfig, err := awaitReady(ctx, stdout, ended)
	if err != nil {
		stop(cmd.Process.Pid, ended)
		said, _ := whole(stderr)
		return server{}, fmt.Errorf("%w\n%s", err, last(said, 40))
	}
	s := server{Kubeconfig: kubeconfig, startup: time.Since(begin)}
	if s.Process, err = lookup(cmd.Process.Pid); err == nil {
		err = writeServer(dir, s)
	}
	if err != nil {
		stop(cmd.Process.Pid, ended)
		return server{}, err
	}
	return s, nil
}

// nameless makes a file in dir and leaves dir empty: the program takes no other, as it
// removes it.
func nameless(dir string) (*os.File, error) {
	file, err := os.CreateTemp(dir, "output-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// stop asks a server to end, and kills all of its session five seconds later. When it
// returns the server is gone: it removes nothing of what the next one makes there.
func stop(pid int, ended <-chan error) {
	syscall.Kill(pid, syscall.SIGTERM)
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
	}
	syscall.Kill(-pid, syscall.SIGKILL)
	<-ended // is closed by then, or soon
}

// awaitReady waits for the line that says the server is ready, and returns the path of
// its kubeconfig.
func awaitReady(ctx context.Context, output *os.File, ended <-chan error) (string, error) {
	for {
		text, err := whole(output)
		if err != nil {
			return "", err
		}
		if line, _, complete := strings.Cut(string(text), "\n"); complete {
			var ready struct{ Kubeconfig string }
			if err := json.Unmarshal([]byte(line), &ready); err != nil || ready.Kubeconfig == "" {
				return "", fmt.Errorf("its first line %q is not JSON with a kubeconfig", line)
			}
			return ready.Kubeconfig, nil
		}
		select {
		case err := <-ended:
			return "", fmt.Errorf("it ended before it was ready: %v", err)
		default:
		}
		if err := pause(ctx); err != nil {
			return "", fmt.Errorf("it is not ready: %w; if Kubernetes is not built yet, run `bin/pelago-sandbox build` once", err)
		}
	}
}

func pause(ctx context.Context) error {
	timer := time.NewTimer(pollEvery)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func readServer(dir string) (server, error) {
	var s server
	text, err := os.ReadFile(filepath.Join(dir, serverFile))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(text, &s)
}

func writeServer(dir string, s server) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, serverFile), text, 0o600)
}

// empty removes what is in dir and keeps dir, which is locked.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes directories of runs that ended together with their server, as after
// kill -9 of everything. It is best effort: leftovers do not stop a test.
func sweep(root string) {
	dirs, _ := filepath.Glob(filepath.Join(root, runPrefix+strconv.Itoa(os.Geteuid())+"-*"))
	for _, dir := range dirs {
		parts := strings.Split(filepath.Base(dir), "-")
		pid, err := strconv.Atoi(parts[len(parts)-2])
		if err != nil {
			continue
		}
		owner := process{PID: pid, Start: parts[len(parts)-1]}
		if s, err := readServer(dir); owner.alive() || (err == nil && s.Process.alive()) {
			continue
		}
		os.RemoveAll(dir)
	}
}

// whole reads a file from its beginning, though its name is gone.
func whole(file *os.File) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(file, 0, 1<<30))
}

// tail returns the last lines of a file, for errors.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return last(text, lines)
}

// last returns the last lines of a text.
func last(text []byte, lines int) string {
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
