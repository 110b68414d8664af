package health

import (
	"encoding/binary"
	"errors"
	"net/netip"
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
	heralded kind = 4
)

// maxHeralded is how many addresses one datagram tells of, and largest its size then: what every
// tunnel carries in one piece.
const (
	headSize    = size + 8
	entrySize   = 32
	maxHeralded = 24
	largest     = headSize + maxHeralded*entrySize
)

// Pod is an address of a pod of whoever asks, at whose provider it runs.
type Pod struct {
	// Version is a resourceVersion at the provider in which the pod has the address. It does not travel.
	Version uint64
	// UID is that of the pod at home.
	UID [16]byte
	// Address is the pod's, as its provider tells it.
	Address netip.Addr
}

// Recent are the pods that changed last: all that have an address, of those whose version is greater
// than After and at most UpTo. One of which nothing was told before, as it was left out or what told of
// it was lost, may be missing though its version has come to be one of these since: it is not told
// where nothing but that is new.
type Recent struct {
	After, UpTo uint64
	// Pods are in the order of their versions.
	Pods []Pod
}

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

// herald fills a datagram with pods. On the wire: the head of all datagrams, with UpTo in place of the
// sequence number, then After, and for each address the UID and 16 bytes, of which those of IPv4 are
// mapped into IPv6.
func herald(to session, r Recent) []byte {
	head := message{heralded, to, r.UpTo}.encode()
	b := binary.BigEndian.AppendUint64(head[:], r.After)
	for _, p := range r.Pods {
		a := p.Address.As16()
		b = append(append(b, p.UID[:]...), a[:]...)
	}
	return b
}

// heed reads what herald has written, and which session it is for. Each has exactly one encoding.
func heed(b []byte) (to session, r Recent, err error) {
	if len(b) < headSize || len(b) > largest || (len(b)-headSize)%entrySize != 0 {
		return to, r, errSize
	}
	m, err := head(b)
	switch {
	case err != nil:
		return to, r, err
	case m.kind != heralded:
		return to, r, errKind
	}
	r.UpTo, r.After = m.seq, binary.BigEndian.Uint64(b[size:])
	if r.After > r.UpTo {
		return to, Recent{}, errOrder
	}
	for b = b[headSize:]; len(b) > 0; b = b[entrySize:] {
		r.Pods = append(r.Pods, Pod{UID: [16]byte(b), Address: netip.AddrFrom16([16]byte(b[16:])).Unmap()})
	}
	return m.session, r, nil
}

// parts are what is recent since a version, in as many datagrams as it takes: none if that is where it
// ends. Where it only goes on, the last one is about no pod.
func (r Recent) parts(since uint64) (all []Recent) {
	if r.UpTo <= since {
		return nil
	}
	last := min(max(r.After, since), r.UpTo)
	pods := r.Pods
	for len(pods) > 0 && pods[0].Version <= last {
		pods = pods[1:]
	}
	for len(pods) > 0 {
		n := min(len(pods), maxHeralded)
		for n < len(pods) && n > 0 && pods[n].Version == pods[n-1].Version {
			n-- // both addresses of a pod are in one
		}
		if n == 0 { // nobody has so many
			return all
		}
		all = append(all, Recent{After: last, UpTo: pods[n-1].Version, Pods: pods[:n]})
		last, pods = pods[n-1].Version, pods[n:]
	}
	if len(all) == 0 {
		return []Recent{{After: last, UpTo: r.UpTo}}
	}
	all[len(all)-1].UpTo = max(last, r.UpTo)
	return all
}

var (
	errOrder   = errors.New("pods that are newer than those up to which they are told")
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

// decode reads a datagram of that size. Each message has exactly one encoding.
func decode(b []byte) (message, error) {
	if len(b) != size {
		return message{}, errSize
	}
	m, err := head(b)
	if err == nil && m.kind > told {
		err = errKind
	}
	if err != nil {
		return message{}, err
	}
	return m, nil
}

// head reads what all datagrams begin with.
func head(b []byte) (message, error) {
	switch {
	case string(b[:4]) != magic || b[6] != 0 || b[7] != 0:
		return message{}, errMagic
	case b[4] != version:
		return message{}, errVersion
	}
	m := message{kind: kind(b[5]), session: session(b[8:24]), seq: binary.BigEndian.Uint64(b[24:])}
	if m.kind < question || m.kind > heralded {
		return message{}, errKind
	}
	return m, nil
}
