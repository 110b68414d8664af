package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Unit is a program that a machine keeps running.
type Unit struct {
	Name string   `json:"name"`
	Args []string `json:"args"`
	// Env is added to the machine's own environment, as KEY=VALUE.
	Env []string `json:"env,omitempty"`
	// Once: do not start it again when it ends.
	Once bool `json:"once,omitempty"`
}

// UnitStatus is what became of a unit.
type UnitStatus struct {
	Unit
	// PID inside the machine, 0 when it does not run.
	PID int `json:"pid"`
	// Starts counts how often it was started.
	Starts int `json:"starts"`
	// Exit is the wait status of its last end.
	Exit int `json:"exit,omitempty"`
}

var errNoUnit = errors.New("no such unit")

// Bounds of the pause before a unit that ended is started again.
const (
	restartSoonest = 500 * time.Millisecond
	restartLatest  = 10 * time.Second
	stopGrace      = 5 * time.Second
)

// logLimit is the size from which a log is put aside when its program starts.
const logLimit = 8 << 20

// units is the supervisor's state.
type units struct {
	mu     sync.Mutex
	logs   string
	byName map[string]*running
	byPID  map[int]*running
}

type running struct {
	UnitStatus
	stopped bool
	pause   time.Duration
	ended   chan struct{} // closed when the present process has ended
}

func newUnits(logs string) *units {
	return &units{logs: logs, byName: map[string]*running{}, byPID: map[int]*running{}}
}

// put starts a unit, replacing one of the same name.
func (u *units) put(unit Unit) error {
	if unit.Name == "" || filepath.Base(unit.Name) != unit.Name || len(unit.Args) == 0 {
		return errors.New("a unit needs a plain name and a program")
	}
	for there := true; there; { // somebody else may put the same name meanwhile
		if err := u.remove(unit.Name); err != nil && !errors.Is(err, errNoUnit) {
			return err
		}
		u.mu.Lock()
		if _, there = u.byName[unit.Name]; there {
			u.mu.Unlock()
		}
	}
	defer u.mu.Unlock()
	r := &running{UnitStatus: UnitStatus{Unit: unit}, pause: restartSoonest}
	if err := u.start(r); err != nil {
		return err
	}
	u.byName[unit.Name] = r
	return nil
}

// start runs the program; the caller holds the lock.
func (u *units) start(r *running) error {
	log, err := openLog(filepath.Join(u.logs, r.Name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return fmt.Errorf("opening %s: %w", os.DevNull, err)
	}
	defer null.Close()
	pid, err := syscall.ForkExec(r.Args[0], r.Args, &syscall.ProcAttr{
		Env:   append(os.Environ(), r.Env...),
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("starting %s: %w", r.Args[0], err)
	}
	r.PID = pid
	r.Starts++
	r.ended = make(chan struct{})
	u.byPID[pid] = r
	return nil
}

// openLog opens a log to write at its end. One that is too long becomes the older one.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > logLimit {
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("putting a long log aside: %w", err)
		}
	}
	log, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening log: %w", err)
	}
	return log, nil
}

// reap collects every child that ends, orphans of units included.
func (u *units) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil: // no children at the moment
			time.Sleep(50 * time.Millisecond)
		default:
			u.ended(pid, status)
		}
	}
}

func (u *units) ended(pid int, status syscall.WaitStatus) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r, ok := u.byPID[pid]
	if !ok {
		return
	}
	delete(u.byPID, pid)
	r.PID, r.Exit = 0, int(status)
	close(r.ended)
	if r.stopped || r.Once {
		return
	}
	time.AfterFunc(r.pause, func() { u.again(r) })
	r.pause = min(2*r.pause, restartLatest)
}

func (u *units) again(r *running) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r.stopped {
		return
	}
	if err := u.start(r); err != nil {
		fmt.Fprintf(os.Stderr, "unit %s: %v\n", r.Name, err)
		time.AfterFunc(r.pause, func() { u.again(r) })
	}
}

// remove stops a unit and forgets it.
func (u *units) remove(name string) error {
	u.mu.Lock()
	r, ok := u.byName[name]
	if !ok {
		u.mu.Unlock()
		return errNoUnit
	}
	r.stopped = true
	delete(u.byName, name)
	pid, ended := r.PID, r.ended
	u.mu.Unlock()
	if pid == 0 {
		return nil
	}
	_ = syscall.Kill(pid, syscall.SIGTERM)
	_ = syscall.Kill(pid, syscall.SIGCONT)
	select {
	case <-ended:
	case <-time.After(stopGrace):
		_ = syscall.Kill(pid, syscall.SIGKILL)
		<-ended
	}
	return nil
}

func (u *units) signal(name string, signal syscall.Signal) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	r, ok := u.byName[name]
	if !ok {
		return errNoUnit
	}
	if r.PID == 0 {
		return fmt.Errorf("unit %s does not run", name)
	}
	return syscall.Kill(r.PID, signal)
}

func (u *units) list() []UnitStatus {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]UnitStatus, 0, len(u.byName))
	for _, r := range u.byName {
		all = append(all, r.UnitStatus)
	}
	return all
}
