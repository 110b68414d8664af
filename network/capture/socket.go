package capture

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// socket reads the frames of a device.
type socket struct {
	file *os.File
	raw  syscall.RawConn
	// buffer and control are where the kernel puts a frame and what it says of it.
	buffer, control []byte
}

// open opens a socket for the frames of a device that pass a filter. Until it has both it may get others.
func open(device int, filter []bpf.RawInstruction) (*socket, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, swapped(unix.ETH_P_ALL))
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	s := &socket{
		file: os.NewFile(uintptr(fd), "packets"), buffer: make([]byte, maxPacket),
		control: make([]byte, unix.CmsgSpace(int(unsafe.Sizeof(unix.Timespec{})))),
	}
	if s.raw, err = s.file.SyscallConn(); err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: uint16(swapped(unix.ETH_P_ALL)), Ifindex: device})
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	}
	if err == nil {
		err = attach(fd, filter)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// swapped is a number of 16 bits in the other byte order.
func swapped(n int) int { return n>>8&0xff | n&0xff<<8 }

func attach(fd int, filter []bpf.RawInstruction) error {
	program := make([]unix.SockFilter, len(filter))
	for i, f := range filter {
		program[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}

func (s *socket) close() error { return s.file.Close() }

// receive waits for a frame, and returns the device it came by too.
func (s *socket) receive() (p packet, device int, err error) {
	var n, controls int
	var from unix.Sockaddr
	var inner error
	if err := s.raw.Read(func(fd uintptr) bool {
		// With MSG_TRUNC it says how long the frame is, also when that is more than there is room.
		n, controls, _, from, inner = unix.Recvmsg(int(fd), s.buffer, s.control, unix.MSG_TRUNC)
		return !errors.Is(inner, unix.EAGAIN) && !errors.Is(inner, unix.EINTR)
	}); err != nil {
		return packet{}, 0, err
	}
	if inner != nil {
		return packet{}, 0, inner
	}
	at, ok := from.(*unix.SockaddrLinklayer)
	if !ok {
		return packet{}, 0, fmt.Errorf("the kernel tells of a frame from %T", from)
	}
	return packet{length: n, time: stamp(s.control[:controls]), data: append([]byte(nil), s.buffer[:min(n, len(s.buffer))]...)}, at.Ifindex, nil
}

// stamp is when the kernel has seen a frame, now if it does not say.
func stamp(control []byte) time.Time {
	header, data, _, err := unix.ParseOneSocketControlMessage(control)
	if err != nil || header.Level != unix.SOL_SOCKET || header.Type != unix.SO_TIMESTAMPNS || len(data) < int(unsafe.Sizeof(unix.Timespec{})) {
		return time.Now()
	}
	return time.Unix((*unix.Timespec)(unsafe.Pointer(unsafe.SliceData(data))).Unix())
}

// dropped is how many frames had no room since this was asked last.
func (s *socket) dropped() (uint64, error) {
	var statistics *unix.TpacketStats
	var inner error
	err := s.raw.Control(func(fd uintptr) {
		statistics, inner = unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
	})
	if err = errors.Join(err, inner); err != nil {
		return 0, err
	}
	return uint64(statistics.Drops), nil
}
