package tunnel

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/pelago-dev/pelago/network/netns"
)

// openTUN makes a TUN device in a network namespace. It lasts until the last copy of the
// file is closed, in whichever process.
func openTUN(namespace *os.File, name string) (file *os.File, err error) {
	err = netns.In(namespace, func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening /dev/net/tun: %w", err)
		}
		request, err := unix.NewIfreq(name)
		if err == nil {
			// The header carries what the kernel need not cut and sum for us.
			request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_TUN_EXCL)
			err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		}
		if err != nil {
			_ = unix.Close(fd)
			return fmt.Errorf("making TUN device %s: %w", name, err)
		}
		file = os.NewFile(uintptr(fd), name)
		return nil
	})
	return file, err
}

// keepTUN copies the file of a TUN device, in order to hold it and hand it on; reads and
// writes go through another copy.
func keepTUN(file *os.File) (*os.File, error) {
	fd, err := copyOf(file)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}

// copyOf is another descriptor of the same device.
func copyOf(file *os.File) (fd int, err error) {
	raw, err := file.SyscallConn()
	if err == nil {
		if failed := raw.Control(func(at uintptr) {
			fd, err = unix.FcntlInt(at, unix.F_DUPFD_CLOEXEC, 0)
		}); failed != nil {
			err = failed
		}
	}
	if err != nil {
		return -1, fmt.Errorf("copying TUN device %s: %w", file.Name(), err)
	}
	return fd, nil
}

// nameOf is the name of a TUN device. It fails when the device was removed.
func nameOf(file *os.File) (name string, err error) {
	raw, err := file.SyscallConn()
	if err != nil {
		return "", fmt.Errorf("reading the name of a TUN device: %w", err)
	}
	failed := raw.Control(func(fd uintptr) {
		var request *unix.Ifreq
		if request, err = unix.NewIfreq(""); err == nil {
			err = unix.IoctlIfreq(int(fd), unix.TUNGETIFF, request)
			name = request.Name()
		}
	})
	if err = errors.Join(failed, err); err != nil {
		return "", fmt.Errorf("reading the name of a TUN device: %w", err)
	}
	return name, nil
}

// attached is the TUN device as WireGuard sees it. Unlike the library's own it is not
// looked for by its name, which lies in another namespace, and does not stop the tunnel
// when somebody takes the device down.
type attached struct {
	tun.Device
	mtu    atomic.Int32
	events chan tun.Event
	// out and in are the packets under way to the peer and from it.
	out, in *window
	trimmer trimmer
	// member is the tunnel among those that share processors.
	member *member

	mu     sync.Mutex
	closed bool // and events with it
}

// attach reads and writes a TUN device through a copy of its file.
func attach(file *os.File, mtu int) (*attached, error) {
	fd, err := copyOf(file)
	if err != nil {
		return nil, err
	}
	device, _, err := tun.CreateUnmonitoredTUNFromFD(fd) // takes fd, also when it fails, and makes it non-blocking
	if err != nil {
		return nil, fmt.Errorf("taking over TUN device %s: %w", file.Name(), err)
	}
	a := &attached{Device: device, events: make(chan tun.Event, 1), out: newWindow(stallOut), in: newWindow(stallIn)}
	a.mtu.Store(int32(mtu))
	return a, nil
}

// MTU is what it was set to.
func (a *attached) MTU() (int, error) { return int(a.mtu.Load()), nil }

// setMTU has WireGuard pad up to another MTU. It is read anew after each event.
func (a *attached) setMTU(mtu int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mtu.Swap(int32(mtu)) == int32(mtu) || a.closed {
		return
	}
	select {
	case a.events <- tun.EventMTUUpdate:
	default:
	}
}

// Events tells of changes of the MTU alone.
func (a *attached) Events() <-chan tun.Event { return a.events }

// Close ends reads. The device stays while somebody has its file.
func (a *attached) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.closed = true
		close(a.events)
	}
	return a.Device.Close()
}
