package health

import (
	"encoding/binary"
	"errors"
)

// A datagram of version 1 has this size, question or answer: an answer is never larger
// than its question.
const size = 32

// The first bytes of every datagram.
const (
	magic   = "pelg"
	version = 1
)

// kind tells questions from answers. Nobody answers an answer, so nothing goes round.
type kind byte

// What is told goes the way of answers, and builds that do not know it drop it.
const (
	question kind = 1
	answer   kind = 2
	told     kind = 3
)

// session is a random number of one Prober's life, that only those know whom it asked.
type session [16]byte

// message is a datagram. On the wire: magic, version, kind, two bytes of zero, session,
// sequence number with its highest byte first. Of what is told, session is of who asked last,
// and in place of the sequence number is what is told.
type message struct {
	kind    kind
	session session
	seq     uint64
}

var (
	errSize    = errors.New("not the size of a probe")
	errMagic   = errors.New("not a probe")
	errVersion = errors.New("a probe of another version")
	errKind    = errors.New("neither question nor answer, and nothing that is told")
)

// encode fills a datagram.
func (m message) encode() (b [size]byte) {
	copy(b[:], magic)
	b[4], b[5] = version, byte(m.kind)
	copy(b[8:24], m.session[:])
	binary.BigEndian.PutUint64(b[24:], m.seq)
	return b
}

// decode reads a datagram. Each message has exactly one encoding.
func decode(b []byte) (message, error) {
	switch {
	case len(b) != size:
		return message{}, errSize
	case string(b[:4]) != magic || b[6] != 0 || b[7] != 0:
		return message{}, errMagic
	case b[4] != version:
		return message{}, errVersion
	}
	m := message{kind: kind(b[5]), session: session(b[8:24]), seq: binary.BigEndian.Uint64(b[24:])}
	if m.kind < question || m.kind > told {
		return message{}, errKind
	}
	return m, nil
}
