package tunnel

import (
	"encoding/binary"
	"sync"

	"golang.org/x/time/rate"
	"golang.zx2c4.com/wireguard/device"
)

const (
	// handshakesMost is how many questions and answers about handshakes, of who knows our key, are taken a
	// second. A peer has one of either now and then, and at most two a second when it seeks us.
	handshakesMost  = 50
	handshakesBurst = 100
)

// sessionsMost is how many numbers are remembered: a session lasts three minutes, in which a device
// that has lost its peer asks for some hundreds of others.
const sessionsMost = 1024

// sessions are the numbers that a device has given to sessions, in its own questions and answers:
// by these the peer says what a packet is for. What has none of them is a stranger's, who is to
// cost the device nothing: the library would drop it too, but nobody would be told.
type sessions struct {
	mu    sync.RWMutex
	known map[uint32]struct{}
	order [sessionsMost]uint32
	next  int
	// own are the seals of who knows our key, as it is and as it was before.
	own [2]*device.CookieChecker
	key PublicKey
	// handshakes bounds how often the library works for them: it does so for milliseconds, which
	// others' packets would wait for.
	handshakes *rate.Limiter
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
	if s.handshakes == nil {
		s.handshakes = rate.NewLimiter(handshakesMost, handshakesBurst)
	}
}

// note takes the number of a question, or answer, that is about to leave.
func (s *sessions) note(packet []byte) {
	if len(packet) < 8 {
		return
	}
	if kind := binary.LittleEndian.Uint32(packet); kind != device.MessageInitiationType && kind != device.MessageResponseType {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	number := binary.LittleEndian.Uint32(packet[4:])
	if _, again := s.known[number]; again { // one question to several addresses
		return
	}
	if s.known == nil {
		s.known = map[uint32]struct{}{}
	}
	if len(s.known) == sessionsMost {
		delete(s.known, s.order[s.next])
	}
	s.known[number], s.order[s.next] = struct{}{}, number
	s.next = (s.next + 1) % sessionsMost
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
// the others will leave by the device: neither handshakes nor what only keeps a tunnel open.
func (s *sessions) sift(packets [][]byte, sizes []int) (carried int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i, size := range sizes {
		if size < device.MessageKeepaliveSize {
			continue
		}
		packet, passes := packets[i][:size], true
		switch binary.LittleEndian.Uint32(packet) {
		case device.MessageTransportType, device.MessageCookieReplyType:
			_, passes = s.known[binary.LittleEndian.Uint32(packet[4:])]
			if passes && packet[0] == device.MessageTransportType && size > device.MessageKeepaliveSize {
				carried++
			}
		case device.MessageInitiationType:
			passes = size == device.MessageInitiationSize && s.sealed(packet) && s.handshakes.Allow()
		case device.MessageResponseType:
			passes = size == device.MessageResponseSize && s.sealed(packet) && s.handshakes.Allow()
		}
		if !passes {
			sizes[i] = 0
		}
	}
	return carried
}
