package tunnel

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// sessionsMost is how many numbers are remembered: a session lasts three minutes, in which a device
// that has lost its peer asks for some hundreds of others.
const sessionsMost = 1024

// sessions are the numbers that a device has given to sessions, in its own questions and answers:
// by these the peer says what a packet is for. What has none of them is a stranger's, who is to
// cost the device nothing: the library would drop it too, but nobody would be told.
type sessions struct {
	mu    sync.RWMutex
	known recent[uint32, number]
	// sockets are where packets come in, which let pass what is of a number that is known.
	sockets []syscall.RawConn
	// own are the seals of who knows our key, as it is and as it was before.
	own [2]*device.CookieChecker
	key PublicKey
	// limits are for questions. Answers to our own have none: there are few of these, and no
	// stranger knows their numbers.
	limits limits
	// asked is how many questions were passed on, and answered how many answers have left; answers is how many have come.
	asked, answered, answers atomic.Uint64
	// waiting says that the next answer is waited for, and came is called with it.
	waiting atomic.Bool
	came    func()
	// heard is where packets of a session went last: the library has them follow the peer.
	heard atomic.Pointer[netip.Addr]
}

// number says of one whether it is that of a question, which waits for an answer, and since when
// it is known.
type number struct {
	asks bool
	at   time.Time
}

// is says by which key the device is known from now on.
func (s *sessions) is(key PublicKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key == s.key {
		return
	}
	s.key, s.own[1], s.own[0] = key, s.own[0], &device.CookieChecker{}
	s.own[0].Init(device.NoisePublicKey(key))
}

// note takes the number of a question, or answer, that is about to leave.
func (s *sessions) note(packet []byte) {
	if len(packet) < 8 {
		return
	}
	kind := binary.LittleEndian.Uint32(packet)
	if kind != device.MessageInitiationType && kind != device.MessageResponseType {
		return
	}
	if kind == device.MessageResponseType {
		s.answered.Add(1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n, now := binary.LittleEndian.Uint32(packet[4:]), time.Now()
	if _, is := s.known.of[n]; !is { // the same question may go to several addresses
		s.known.add(n, number{kind == device.MessageInitiationType, now}, sessionsMost)
		s.admit(now)
	}
}

// opened takes the sockets, all of them.
func (s *sessions) opened(at []syscall.RawConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sockets = at
	s.admit(time.Now())
}

// admit has the sockets let pass what is of a number that the peer may speak of.
func (s *sessions) admit(now time.Time) {
	if len(s.sockets) == 0 {
		return
	}
	program, err := filter(s.numbers(now))
	if err != nil {
		program = nil // rather than one that does not know the latest
	}
	for _, at := range s.sockets {
		_ = screen(at, program) // sift drops the same
	}
}

// numbers are those that the peer may speak of, the latest first.
func (s *sessions) numbers(now time.Time) (all []uint32) {
	for n, known := range s.known.of {
		if now.Sub(known.at) < numberFor {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b uint32) int { return s.known.of[b].at.Compare(s.known.of[a].at) })
	return all[:min(len(all), admitted)]
}

// dropped is how many packets the sockets have not taken, since they were opened.
func (s *sessions) dropped() (n uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, at := range s.sockets {
		n += droppedAt(at)
	}
	return n
}

// follow takes where something of a session is sent to, or an answer: there the peer was heard.
func (s *sessions) follow(packet []byte, to conn.Endpoint) {
	if len(packet) < device.MinMessageSize || packet[0] != device.MessageTransportType && packet[0] != device.MessageResponseType {
		return
	}
	at := to.DstIP()
	if was := s.heard.Load(); was == nil || *was != at {
		s.heard.Store(&at)
		s.limits.spoke(at)
	}
}

// question reports whether a question for a handshake is passed on.
func (s *sessions) question(packet []byte, from conn.Endpoint) bool {
	if len(packet) != device.MessageInitiationSize || s.limits.copied(sealOf(packet)) || !s.sealed(packet) {
		return false
	}
	var at netip.Addr
	if from != nil {
		at = from.DstIP()
	}
	if !s.limits.take(sealOf(packet), at, time.Now()) {
		return false
	}
	s.asked.Add(1)
	return true
}

// sealed says whether something about a handshake is from somebody who knows our key, which is the peer.
func (s *sessions) sealed(packet []byte) bool {
	for _, o := range s.own {
		if o != nil && o.CheckMAC1(packet) {
			return true
		}
	}
	return false
}

// sift makes packets empty that are a stranger's, which the library passes by, and returns how many of
// the others are of a session: they leave by the device, but for what is forged, and a few that are empty.
func (s *sessions) sift(packets [][]byte, sizes []int, from []conn.Endpoint) (of int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i, size := range sizes {
		if size < device.MessageKeepaliveSize {
			continue
		}
		packet, passes := packets[i][:size], true
		switch binary.LittleEndian.Uint32(packet) {
		case device.MessageTransportType, device.MessageCookieReplyType:
			_, passes = s.known.of[binary.LittleEndian.Uint32(packet[4:])]
			if passes && packet[0] == device.MessageTransportType {
				of++
			}
		case device.MessageInitiationType:
			passes = s.question(packet, from[i])
		case device.MessageResponseType:
			passes = size == device.MessageResponseSize && s.known.of[binary.LittleEndian.Uint32(packet[8:])].asks && s.sealed(packet)
			if passes {
				s.answers.Add(1)
				if s.waiting.CompareAndSwap(true, false) {
					s.came()
				}
			}
		}
		if !passes {
			sizes[i] = 0
		}
	}
	return of
}
