package internet

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openTUN makes a TUN device that carries bare IP packets. It exists until the
// file is closed, which also ends a read.
func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("opening /dev/net/tun: %w", err)
	}
	request, err := unix.NewIfreq(name)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("making TUN device %s: %w", name, err)
	}
	// Only now: a file that is not yet a device cannot be polled.
	return os.NewFile(uintptr(fd), name), nil
}
