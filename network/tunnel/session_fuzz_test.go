package tunnel

import (
	"encoding/binary"
	"testing"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
)

// FuzzSession lets strangers send whatever they like to a device that has asked one question and
// given one answer. What is passed on is short, of a kind that the library drops by itself, or of
// one of the two; without our key no question and no answer is; and nothing is remembered of it.
func FuzzSession(f *testing.F) {
	const asked, answered = 7, 9
	for kind := range uint32(6) {
		for _, number := range []uint32{0, asked, answered} {
			for _, size := range []int{0, 8, device.MessageKeepaliveSize, device.MessageCookieReplySize, device.MessageResponseSize, device.MessageInitiationSize, 1452} {
				packet := message(kind, number, max(size, 8))[:size]
				f.Add(packet, packet)
			}
		}
	}
	response := message(device.MessageResponseType, 1, device.MessageResponseSize)
	binary.LittleEndian.PutUint32(response[8:], asked)
	f.Add(response, []byte{4, 0, 0, 0, asked, 0, 0, 0})
	f.Fuzz(func(t *testing.T, one, two []byte) {
		s := &sessions{}
		s.is(PublicKey{1})
		s.note(message(device.MessageInitiationType, asked, device.MessageInitiationSize))
		s.note(message(device.MessageResponseType, answered, device.MessageResponseSize))
		packets := [][]byte{append([]byte(nil), one...), append([]byte(nil), two...)}
		sizes := []int{len(one), len(two)}
		of := s.sift(packets, sizes, make([]conn.Endpoint, 2))
		data := 0
		for i, sent := range [][]byte{one, two} {
			if sizes[i] != 0 && sizes[i] != len(sent) {
				t.Errorf("%d of %d bytes are left", sizes[i], len(sent))
			}
			if string(packets[i]) != string(sent) {
				t.Error("a packet was changed")
			}
			if len(sent) < device.MessageKeepaliveSize {
				continue
			}
			kind, number := binary.LittleEndian.Uint32(sent), binary.LittleEndian.Uint32(sent[4:])
			known, passes := number == asked || number == answered, sizes[i] != 0
			switch kind {
			case device.MessageTransportType, device.MessageCookieReplyType:
				if passes != known {
					t.Errorf("of number %d, kind %d: passes %v", number, kind, passes)
				}
				if passes && kind == device.MessageTransportType {
					data++
				}
			case device.MessageInitiationType, device.MessageResponseType:
				if passes && !s.own[0].CheckMAC1(sent) {
					t.Errorf("a stranger's handshake of kind %d passes", kind)
				}
			}
		}
		if of != data {
			t.Errorf("%d are said to be of a session, and %d are", of, data)
		}
		if len(s.known.of) != 2 || len(s.limits.taken.of) > 0 || len(s.limits.sources.of) > 0 || s.heard.Load() != nil {
			t.Errorf("strangers are remembered: %d numbers, %d questions, %d addresses", len(s.known.of), len(s.limits.taken.of), len(s.limits.sources.of))
		}
	})
}
