// Package netns runs functions in other network namespaces of Linux, held by open files:
// a socket belongs for good to the namespace of the thread that opened it, so a program
// can have sockets and netlink handles in many. It never names a namespace, and never
// leaves a thread in another one for others to find.
package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// own is the namespace of the thread that asks.
const own = "/proc/thread-self/ns/net"

// errUnfinished is the error of a function that ended its goroutine.
var errUnfinished = errors.New("the function ended its goroutine")

// Current opens the namespace that the program's threads are in.
func Current() (*os.File, error) {
	// Threads are elsewhere only while they are locked to a goroutine of this package.
	ns, err := os.Open(own)
	if err != nil {
		return nil, fmt.Errorf("opening the own network namespace: %w", err)
	}
	return ns, nil
}

// OfProcess opens the namespace of a process.
func OfProcess(pid int) (*os.File, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil, fmt.Errorf("opening the network namespace of process %d: %w", pid, err)
	}
	return ns, nil
}

// New makes a namespace. It has no name and lives as long as something holds it: the
// file, a socket or process in it, or a mount.
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

// In runs f in a namespace and waits for it. Only what f itself calls is there: goroutines
// that it starts are not, nor those that Dial starts for names. What f opens stays there
// after it. The zone of a link-local address must be a number, since package net looks
// names of devices up in whatever namespace it saw first.
func In(ns *os.File, f func() error) error {
	return apart(func() error {
		if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("entering a network namespace: %w", err)
		}
		return f()
	})
}

// ListenUDP opens a UDP socket in a namespace.
func ListenUDP(ns *os.File, at netip.AddrPort) (*net.UDPConn, error) {
	var conn *net.UDPConn
	err := In(ns, func() (err error) {
		conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		return err
	})
	if err != nil {
		return nil, err
	}
	return conn, nil
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
