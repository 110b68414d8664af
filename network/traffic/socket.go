package traffic

import (
	"errors"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// socket is one for netfilter's messages. It reads into a buffer of its own: connections may end by
// thousands a second.
type socket struct {
	file   *os.File
	raw    syscall.RawConn
	buffer []byte
}

// receiveSize is what the kernel says at once at most.
const receiveSize = 64 << 10

// listen opens a socket, for the notices of groups, in the namespace of this thread.
func listen(buffer int, groups ...uint) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	s := &socket{file: os.NewFile(uintptr(fd), "netfilter"), buffer: make([]byte, receiveSize)}
	at := &unix.SockaddrNetlink{Family: unix.AF_NETLINK}
	for _, g := range groups {
		at.Groups |= 1 << (g - 1)
	}
	if s.raw, err = s.file.SyscallConn(); err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, buffer)
	}
	if err == nil {
		err = unix.Bind(fd, at)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *socket) close() error { return s.file.Close() }

// send sends messages to the kernel, which has answered when this returns.
func (s *socket) send(b []byte) error {
	var inner error
	err := s.raw.Control(func(fd uintptr) {
		inner = unix.Sendto(int(fd), b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	})
	return errors.Join(err, inner)
}

// receive waits for messages and calls f with each, which may not keep what it is given.
func (s *socket) receive(f func(message uint16, b []byte) error) error {
	var n int
	var inner error
	if err := s.raw.Read(func(fd uintptr) bool {
		n, _, inner = unix.Recvfrom(int(fd), s.buffer, 0)
		return !errors.Is(inner, unix.EAGAIN)
	}); err != nil {
		return err
	}
	if inner != nil {
		return inner
	}
	messages, err := syscall.ParseNetlinkMessage(s.buffer[:n])
	if err != nil {
		return err
	}
	for _, m := range messages {
		if err := f(m.Header.Type, m.Data); err != nil {
			return err
		}
	}
	return nil
}

// until has receive give up at a time.
func (s *socket) until(t time.Time) error { return s.file.SetReadDeadline(t) }

// drops is how many messages had no room in the socket since it was opened.
func (s *socket) drops() (uint64, error) {
	var info [unix.SK_MEMINFO_VARS]uint32
	var errno unix.Errno
	err := s.raw.Control(func(fd uintptr) {
		size := uint32(unsafe.Sizeof(info))
		_, _, errno = unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return uint64(info[unix.SK_MEMINFO_DROPS]), err
}
