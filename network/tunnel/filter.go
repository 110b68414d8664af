package tunnel

import (
	"fmt"
	"math/bits"
	"net"
	"reflect"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/device"
)

// What looks like data of a session is told from data by the number of the session: who is to speak
// of one has been told it in a handshake. So the kernel drops, at the sockets, what speaks of another one:
// that costs no system call, and nobody waits for it. Numbers are there before the peer is told them.

const (
	// numberFor is how long the peer may speak of a number: a session lasts three minutes, and begins
	// when its question is answered.
	numberFor = 4 * time.Minute
	// kindAt and numberAt are where a socket sees what a packet of WireGuard is and which session it is
	// of: after the header of UDP.
	kindAt, numberAt = 8, 12
	// joined is from where on, in bytes, a socket may see several packets that the kernel has joined to one: what
	// the first of these is says nothing of the others, which sift looks at one by one.
	joined = 2048
	// admitted is of how many numbers a filter knows, the latest: the kernel keeps two filters of a socket, the old
	// one and the new, within 20 KiB.
	admitted = 256
	// jumpMost is how far a test of a filter can lead.
	jumpMost = 250
	// whole is of each packet as much as there is.
	whole = 1<<32 - 1
)

// filter lets packets pass that are no data, and data of the sessions with these numbers.
func filter(numbers []uint32) ([]bpf.RawInstruction, error) {
	is := func(wire uint32, skip, otherwise int) bpf.Instruction { // words are read as the network has them
		return bpf.JumpIf{Cond: bpf.JumpEqual, Val: bits.ReverseBytes32(wire), SkipTrue: uint8(skip), SkipFalse: uint8(otherwise)}
	}
	program := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtLen}, bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: joined, SkipFalse: 1}, bpf.RetConstant{Val: whole},
		bpf.LoadAbsolute{Off: kindAt, Size: 4}, is(device.MessageTransportType, 1, 0), bpf.RetConstant{Val: whole},
		bpf.LoadAbsolute{Off: numberAt, Size: 4},
	}
	for some := range slices.Chunk(numbers, jumpMost) {
		for i, n := range some {
			program = append(program, is(n, len(some)-i, 0))
		}
		program = append(program, bpf.Jump{Skip: 1}, bpf.RetConstant{Val: whole})
	}
	return bpf.Assemble(append(program, bpf.RetConstant{}))
}

// sockets are those that the library's Bind has opened, which it shows nobody. Of another build of it there
// may be none.
func sockets(bind any) (all []syscall.RawConn) {
	v := reflect.Indirect(reflect.ValueOf(bind))
	for _, name := range []string{"ipv4", "ipv6"} {
		if v.Kind() != reflect.Struct {
			break
		}
		if f := v.FieldByName(name); f.IsValid() && f.Type() == reflect.TypeFor[*net.UDPConn]() && !f.IsNil() {
			if raw, err := (*net.UDPConn)(f.UnsafePointer()).SyscallConn(); err == nil {
				all = append(all, raw)
			}
		}
	}
	return all
}

// screen has a socket drop what a filter does not let pass. Where that cannot be, or there is none, it has no
// filter: sift drops the same.
func screen(at syscall.RawConn, program []bpf.RawInstruction) (err error) {
	if len(program) == 0 {
		return at.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) // or there was none
		})
	}
	code := make([]unix.SockFilter, len(program))
	for i, r := range program {
		code[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	failed := at.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]})
		if err != nil {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) // or there was none
		}
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("attaching a filter to a socket: %w", err)
	}
	return nil
}

// meminfo is what the kernel says of a socket's memory, the last of which is how many packets it has dropped.
type meminfo [9]uint32

// droppedAt is how many packets a socket has dropped: those that its filter did not let pass, and those
// for which it had no room.
func droppedAt(at syscall.RawConn) (n uint64) {
	_ = at.Control(func(fd uintptr) {
		var info meminfo
		size := uint32(unsafe.Sizeof(info))
		if _, _, failed := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0); failed == 0 {
			n = uint64(info[len(info)-1])
		}
	})
	return n
}
