// Package netns makes network namespaces of Linux, enters them and holds them by open
// files: a socket belongs for good to the namespace of the thread that opened it, so a
// program can have sockets and netlink in many. A namespace has no name that others could
// find, and no thread is left in another one. Wherever a namespace is asked for, nil is
// that of the program.
package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// own is the namespace of the thread that asks.
const own = "/proc/thread-self/ns/net"

// errUnfinished is the error of a function that ended its goroutine.
var errUnfinished = errors.New("the function ended its goroutine")

// New makes a namespace. It lives as long as something holds it: the file, a socket or
// process in it, or a mount.
func New() (*os.File, error) {
	var made *os.File
	err := apart(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			made, err = os.Open(own)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("making a network namespace: %w", err)
	}
	return made, nil
}

// Copy opens a namespace once more; each of the two files holds it.
func Copy(ns *os.File) (*os.File, error) {
	if ns == nil {
		// Threads are elsewhere only while they are locked to a goroutine of this package.
		file, err := os.Open(own)
		if err != nil {
			return nil, fmt.Errorf("opening the own network namespace: %w", err)
		}
		return file, nil
	}
	fd, err := unix.FcntlInt(ns.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicating %s: %w", ns.Name(), err)
	}
	return os.NewFile(uintptr(fd), ns.Name()), nil
}

// In runs f in a namespace and waits for it. Only what f itself calls is there: goroutines
// that it starts are not, nor those that Dial starts for names. What f opens stays there
// after it. The zone of a link-local address must be a number, since package net looks
// names of devices up in whatever namespace it saw first.
func In(ns *os.File, f func() error) error {
	if ns == nil {
		return f()
	}
	return apart(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering network namespace %s: %w", ns.Name(), err)
		}
		return f()
	})
}

// Netlink opens a namespace's devices, addresses, routes, rules and neighbours.
func Netlink(ns *os.File) (handle *netlink.Handle, err error) {
	err = In(ns, func() (err error) {
		handle, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening netlink: %w", err)
	}
	return handle, nil
}

// apart runs f on a thread of its own and brings that back to the namespace where it was.
// A thread that does not come back ends with its goroutine, which keeps it locked.
func apart(f func() error) error {
	err := errUnfinished
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // before it leaves: threads that are locked start no others
		home, openErr := os.Open(own)
		if openErr != nil {
			err = fmt.Errorf("opening the own network namespace: %w", openErr)
			return
		}
		defer func() {
			if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
				runtime.UnlockOSThread()
			}
			_ = home.Close()
		}()
		err = f()
	}()
	<-done
	return err
}
