package kubetest

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guard is a process in a session of its own that takes a sandbox down when this
// process ends without having released it. It learns of the end through a pipe, so
// kill -9 counts.
type guard struct {
	pipe io.WriteCloser
	wait func() error
}

const guardScript = `read -r answer; [ "$answer" = released ] || exec "$0" --name "$1" down`

// downAfterDeath starts the guard of a sandbox.
func downAfterDeath(program, name string) (guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, program, name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return guard{}, fmt.Errorf("guarding sandbox %s: %w", name, err)
	}
	if err := cmd.Start(); err != nil {
		return guard{}, fmt.Errorf("guarding sandbox %s: %w", name, err)
	}
	return guard{pipe: pipe, wait: cmd.Wait}, nil
}

// release ends the guard: the sandbox is down, or no longer this process's care.
func (g guard) release() {
	fmt.Fprintln(g.pipe, "released")
	g.wait()
}
