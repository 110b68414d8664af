package tunnel

import (
	"errors"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// socket is the library's socket with two things more. It does not insist on the own address
// that the peer was last spoken to from, when that has gone: the library would for 15
// seconds. And it can hold an answer to a handshake back until its caller is ready for
// what comes of it.
type socket struct {
	conn.Bind
	// watch says that responding is to be called, in a goroutine, before answers leave.
	watch      atomic.Bool
	responding func()
	// out and in are the packets under way to the peer and from it.
	out, in *window
	// member is the tunnel among those that share processors.
	member *member
	// sessions are those that the peer may speak of.
	sessions sessions
}

// Send sends packets to one address.
func (s *socket) Send(packets [][]byte, to conn.Endpoint) error {
	if len(packets) == 1 {
		s.sessions.note(packets[0])
	}
	if len(packets) > 0 {
		s.sessions.follow(packets[0], to)
	}
	if s.watch.Load() && isResponse(packets) {
		answer := [][]byte{slices.Clone(packets[0])}
		go func() { // the caller holds locks of the device
			s.responding()
			_ = s.send(answer, to) // the peer asks again
		}()
		return nil
	}
	s.out.leaving.Add(1)
	defer s.out.leaving.Add(-1)
	defer s.out.done(len(packets))
	unrefer(packets)
	// All at a time: what the kernel cuts costs it little.
	_, err := s.member.hand(packets, len(packets), func(all [][]byte) (int, error) { return 0, s.send(all, to) })
	return err
}

// send sends packets, also where the library would not: from an own address that has gone, and joined to more than a path takes.
func (s *socket) send(packets [][]byte, to conn.Endpoint) error {
	err := s.Bind.Send(packets, to)
	if to.SrcIP().IsValid() && isOneOf(err, unix.EINVAL, unix.EADDRNOTAVAIL, unix.ENETUNREACH, unix.ENODEV) {
		// Not by clearing it in place, which others may be reading.
		if anew, bad := s.ParseEndpoint(to.DstToString()); bad == nil {
			to, err = anew, s.Bind.Send(packets, anew)
		}
	}
	if len(packets) == 1 || !isOneOf(err, unix.EINVAL, unix.EMSGSIZE) {
		return err
	}
	// The kernel does not join packets that are larger than it knows the path to take, and it cuts single ones.
	var errs []error
	for i := range packets {
		errs = append(errs, s.Bind.Send(packets[i:i+1], to))
	}
	return errors.Join(errs...)
}

func isOneOf(err error, numbers ...unix.Errno) bool {
	return slices.ContainsFunc(numbers, func(n unix.Errno) bool { return errors.Is(err, n) })
}

func isResponse(packets [][]byte) bool {
	return len(packets) == 1 && len(packets[0]) == device.MessageResponseSize && packets[0][0] == device.MessageResponseType
}
