// Package machine makes computers out of Linux namespaces. A machine has its
// own network, mounts, processes, host name and control groups; its first
// process is our init, which supervises units (programs kept running) and
// answers on a Unix socket.
//
// Only processes hold a machine's namespaces. Killing its init removes its
// processes, mounts, interfaces, routes and firewall rules at once, so cleaning
// up never depends on what somebody remembered to write down.
//
// The package knows nothing of Kubernetes and never changes the host but for
// control groups and files below Spec.Dir.
package machine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// InitCommand is the hidden command of the program that runs a machine's init:
// its main must call Init with the arguments that follow this word.
const InitCommand = "machine-init"

// Marker is the environment variable that every process of a machine inherits.
// Its value is SANDBOX/MACHINE.
const Marker = "PELAGO_SANDBOX_MACHINE"

// Spec says how a machine is made. It is stored in Dir, so that a machine can
// be started again.
type Spec struct {
	// Sandbox and Name together are unique on the host.
	Sandbox string `json:"sandbox"`
	Name    string `json:"name"`
	// Dir is the machine's folder on the host; its path is the same inside.
	Dir string `json:"dir"`
	// Program is the file that holds InitCommand, visible at the same path inside.
	Program string `json:"program"`
	// Bare: the machine has no namespaces and no control groups, only the init and
	// its units, found by their Marker and working in Dir; it needs no root. The
	// fields below are for the others.
	Bare bool `json:"bare,omitempty"`
	// PrivateRoot gives the machine a root of its own: the host's files below,
	// changes kept in memory. Otherwise it sees the host's files.
	PrivateRoot bool `json:"privateRoot,omitempty"`
	// Visible are host folders that a private root shows as they are, writable.
	Visible []string `json:"visible,omitempty"`
	// Disk are paths of a private root kept on disk below Dir over a restart.
	Disk []string `json:"disk,omitempty"`
	// Links are symbolic links of a private root: every file of the folder that
	// is the key appears in the folder that is the value.
	Links map[string]string `json:"links,omitempty"`
	// Pretend are files of a private root that have another text than on the
	// host, such as settings of the whole host below /proc/sys.
	Pretend map[string]string `json:"pretend,omitempty"`
	// Sysctls are kernel settings of its network namespace, such as
	// net/ipv4/ip_forward.
	Sysctls map[string]string `json:"sysctls,omitempty"`
}

// Machine is a running machine.
type Machine struct {
	Spec
	// PID of its init on the host.
	PID int
}

const (
	startTimeout = 20 * time.Second
	namespaces   = syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC
)

func (s Spec) file() string    { return filepath.Join(s.Dir, "machine.json") }
func (s Spec) socket() string  { return filepath.Join(s.Dir, "init.sock") }
func (s Spec) logs() string    { return filepath.Join(s.Dir, "log") }
func (s Spec) initLog() string { return filepath.Join(s.logs(), "init.log") }

// Start makes the machine and returns once its init answers. A machine that
// runs already is returned as it is.
func Start(ctx context.Context, spec Spec) (*Machine, error) {
	if pid := findInit(spec); pid != 0 {
		m := &Machine{Spec: spec, PID: pid}
		return m, m.awaitInit(ctx, nil)
	}
	for _, dir := range []string{spec.Dir, spec.logs()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("making folder of machine %s: %w", spec.Name, err)
		}
	}
	text, err := json.MarshalIndent(spec, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("writing specification of machine %s: %w", spec.Name, err)
	}
	if err := os.WriteFile(spec.file(), text, 0o600); err != nil {
		return nil, fmt.Errorf("writing specification of machine %s: %w", spec.Name, err)
	}
	if err := os.Remove(spec.socket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing stale socket of machine %s: %w", spec.Name, err)
	}
	// What a crash left: groups in use cannot be joined again in version 2.
	if err := errors.Join((&Machine{Spec: spec}).Kill(), removeGroups(spec.group())); err != nil {
		return nil, fmt.Errorf("clearing away the last life of machine %s: %w", spec.Name, err)
	}
	if !spec.Bare {
		if err := makeGroups(spec.group()); err != nil {
			return nil, fmt.Errorf("making control groups of machine %s: %w", spec.Name, err)
		}
	}
	return launch(ctx, spec)
}

func launch(ctx context.Context, spec Spec) (*Machine, error) {
	log, err := openLog(spec.initLog())
	if err != nil {
		return nil, fmt.Errorf("starting machine %s: %w", spec.Name, err)
	}
	defer log.Close()
	command := exec.Command(spec.Program, InitCommand, spec.file())
	command.Env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LANG=C.UTF-8",
		Marker + "=" + spec.Sandbox + "/" + spec.Name,
	}
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !spec.Bare {
		command.SysProcAttr.Cloneflags = namespaces
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("starting machine %s: %w", spec.Name, err)
	}
	died := make(chan struct{})
	go func() { _ = command.Wait(); close(died) }()
	m := &Machine{Spec: spec, PID: command.Process.Pid}
	if err := m.awaitInit(ctx, died); err != nil {
		_ = command.Process.Kill()
		<-died
		return nil, err
	}
	return m, nil
}

// awaitInit polls the init's socket until it answers.
func (m *Machine) awaitInit(ctx context.Context, died <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := m.Units(ctx); err == nil {
			return nil
		}
		select {
		case <-died:
			return fmt.Errorf("machine %s ended at once: %s", m.Name, tail(m.initLog(), 5))
		case <-ctx.Done():
			return fmt.Errorf("waiting for machine %s: %w: %s", m.Name, ctx.Err(), tail(m.initLog(), 5))
		case <-tick.C:
		}
	}
}

// tail returns the last lines of a file, for an error.
func tail(path string, lines int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "no log"
	}
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], " | ")
}
