package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// released is what a guard hears when its sandbox is gone without it.
const released = "released"

// guard starts a process in a session of its own that ends a sandbox, and removes its folder, when
// this process ends without having released it: kill -9 counts.
func guard(sandbox, dir string) (release func(), err error) {
	command := exec.Command("/proc/self/exe", "test-guard", sandbox, dir)
	command.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0")
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := command.StdinPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("guarding sandbox %s: %w", sandbox, err)
	}
	return func() {
		_, _ = io.WriteString(pipe, released)
		_ = pipe.Close()
		_ = command.Wait()
	}, nil
}

// guarded has a sandbox ended with the test, however that ends.
func guarded(t *testing.T, sandbox, dir string) {
	t.Helper()
	release, err := guard(sandbox, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
}

// standGuard is the guard: SANDBOX DIR.
func standGuard(args []string) error {
	if said, err := io.ReadAll(os.Stdin); err == nil && string(said) == released {
		return nil
	}
	return errors.Join(KillSandbox(args[0]), RemoveGroups(args[0]), os.RemoveAll(args[1]))
}

// startGuarded starts a machine and says so: SANDBOX DIR. It ends when it is killed.
func startGuarded(args []string) error {
	release, err := guard(args[0], args[1])
	if err != nil {
		return err
	}
	defer release() // which is held so: the pipe's other end would be closed with what is not
	spec := Spec{Sandbox: args[0], Name: "one", Dir: filepath.Join(args[1], "one"), Program: "/proc/self/exe", Bare: true}
	if _, err := Start(context.Background(), spec); err != nil {
		return err
	}
	fmt.Println("started")
	select {}
}

// TestMachinesEndWithTheirTest holds that tests which are killed leave nothing.
func TestMachinesEndWithTheirTest(t *testing.T) {
	sandbox, dir := "test-"+random(), shortDir(t)
	t.Cleanup(func() {
		if err := KillSandbox(sandbox); err != nil {
			t.Error(err)
		}
	})
	command := exec.Command("/proc/self/exe", "test-guarded", sandbox, dir)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "started\n" {
		t.Errorf("it says %q, %v", line, err)
	}
	if len(Remaining(sandbox)) == 0 {
		t.Error("there is no machine")
	}
	if err := command.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	eventually(t, "the end of its machine", func() error {
		if left := Remaining(sandbox); len(left) > 0 {
			return fmt.Errorf("%v remain", left)
		}
		_, err := os.Stat(dir)
		if err == nil {
			err = errors.New("its folder remains")
		} else if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return err
	})
}
