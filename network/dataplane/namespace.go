package dataplane

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Namespaces holds the network namespaces of gateways, by their peerings. A namespace
// lives as long as something holds it, so whoever shall outlive this process implements
// it: a parent process, or mounts.
type Namespaces interface {
	// Open returns the namespace of that name, made if there is none. The caller closes
	// the file.
	Open(name string) (*os.File, error)
	// List returns the names of all.
	List() ([]string, error)
	// Remove lets go of a namespace, which ends when nobody else holds it. One that is
	// not there is no error.
	Remove(name string) error
}

// Held are namespaces held by open files of this process. The zero value holds none and is
// ready to use.
type Held struct {
	mu    sync.Mutex
	files map[string]*os.File
}

var _ Namespaces = (*Held)(nil)

// Adopt holds a namespace that somebody else has made, instead of one of that name from
// before. The file is Held's from now on.
func (h *Held) Adopt(name string, file *os.File) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := h.files[name]; before != nil {
		_ = before.Close()
	}
	if h.files == nil {
		h.files = map[string]*os.File{}
	}
	h.files[name] = file
}

// Open returns a namespace, made if need be.
func (h *Held) Open(name string) (*os.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.files[name] == nil {
		file, err := newNamespace()
		if err != nil {
			return nil, err
		}
		if h.files == nil {
			h.files = map[string]*os.File{}
		}
		h.files[name] = file
	}
	return duplicate(h.files[name])
}

// List returns the names of the namespaces held.
func (h *Held) List() ([]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make([]string, 0, len(h.files))
	for name := range h.files {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Remove lets go of a namespace.
func (h *Held) Remove(name string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	file := h.files[name]
	if file == nil {
		return nil
	}
	delete(h.files, name)
	return file.Close()
}

func duplicate(file *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicating %s: %w", file.Name(), err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}

const ownNamespace = "/proc/thread-self/ns/net"

// errUnfinished is the error of a function that ended its goroutine.
var errUnfinished = errors.New("the function ended its goroutine")

// newNamespace makes a namespace without a name.
func newNamespace() (*os.File, error) {
	var made *os.File
	err := apart(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			made, err = os.Open(ownNamespace)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	return made, nil
}

// within runs f on a thread in a namespace.
func within(ns *os.File, f func() error) error {
	return apart(func() error {
		if err := netns.Set(netns.NsHandle(ns.Fd())); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		return f()
	})
}

// apart runs f on a thread of its own, which ends with it.
func apart(f func() error) error {
	err := errUnfinished
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		err = f()
	}()
	<-done
	return err
}
