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

// guardScript tries for a while: a command that changes the sandbox may have to end first.
const guardScript = `read -r answer
[ "$answer" = released ] && exit
for try in 1 2 3 4 5 6 7 8 9 10; do
  "$0" --name "$1" down && exit
  sleep 3
done`

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

// release ends the guard. If the sandbox is not down it has another go first.
func (g guard) release(down bool) {
	if down {
		fmt.Fprintln(g.pipe, "released")
	}
	_ = g.pipe.Close()
	_ = g.wait()
}
