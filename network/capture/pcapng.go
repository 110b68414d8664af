package capture

import (
	"bufio"
	"encoding/binary"
	"io"
	"time"
)

// What pcapng calls its blocks and their options, of draft-ietf-opsawg-pcapng.
const (
	blockSection    = 0x0a0d0d0a
	blockInterface  = 1
	blockStatistics = 5
	blockPacket     = 6

	optionEnd                = 0
	optionApplication        = 4 // of a section
	optionName               = 2 // of an interface
	optionResolution         = 9
	optionStarted            = 2 // of statistics
	optionEnded              = 3
	optionReceived           = 4
	optionDropped            = 5
	byteOrder                = 0x1a2b3c4d
	unknownLength            = ^uint64(0)
	linkEthernet             = 1
	nanoseconds              = 9 // what is counted are seconds of ten to the minus so many
	blockFrame               = 12
	versionMajor      uint16 = 1
	versionMinor      uint16 = 0
)

// pcapng writes a file of that format, in the byte order of this machine's kin.
type pcapng struct {
	out  *bufio.Writer
	body []byte // of the block that is being made
}

var little = binary.LittleEndian

// newPcapng begins a file whose interfaces have names.
func newPcapng(out io.Writer, names []string) (*pcapng, error) {
	w := &pcapng{out: bufio.NewWriter(out)}
	w.body = little.AppendUint32(w.body, byteOrder)
	w.body = little.AppendUint16(w.body, versionMajor)
	w.body = little.AppendUint16(w.body, versionMinor)
	w.body = little.AppendUint64(w.body, unknownLength)
	w.option(optionApplication, []byte("pelago capture"))
	w.option(optionEnd, nil)
	if err := w.block(blockSection); err != nil {
		return nil, err
	}
	for _, name := range names {
		w.body = little.AppendUint32(w.body, linkEthernet) // the half above is reserved
		w.body = little.AppendUint32(w.body, maxPacket)
		w.option(optionName, []byte(name))
		w.option(optionResolution, []byte{nanoseconds})
		w.option(optionEnd, nil)
		if err := w.block(blockInterface); err != nil {
			return nil, err
		}
	}
	return w, w.flush()
}

// packet writes one.
func (w *pcapng) packet(p packet) error {
	w.body = little.AppendUint32(w.body, uint32(p.at))
	w.body = appendTime(w.body, p.time)
	w.body = little.AppendUint32(w.body, uint32(len(p.data)))
	w.body = little.AppendUint32(w.body, uint32(p.length))
	w.body = append(w.body, p.data...)
	return w.block(blockPacket)
}

// statistics writes how many packets of an interface were received, and how many dropped.
func (w *pcapng) statistics(at int, began, ended time.Time, received, dropped uint64) error {
	w.body = little.AppendUint32(w.body, uint32(at))
	w.body = appendTime(w.body, ended)
	w.option(optionStarted, appendTime(nil, began))
	w.option(optionEnded, appendTime(nil, ended))
	w.option(optionReceived, little.AppendUint64(nil, received))
	w.option(optionDropped, little.AppendUint64(nil, dropped))
	w.option(optionEnd, nil)
	return w.block(blockStatistics)
}

// appendTime writes the upper half first.
func appendTime(b []byte, t time.Time) []byte {
	n := uint64(t.UnixNano())
	return little.AppendUint32(little.AppendUint32(b, uint32(n>>32)), uint32(n))
}

// option adds one to the block that is being made.
func (w *pcapng) option(code uint16, value []byte) {
	w.body = little.AppendUint16(w.body, code)
	w.body = little.AppendUint16(w.body, uint16(len(value)))
	w.body = append(w.body, value...)
	w.pad()
}

// pad fills up the last word.
func (w *pcapng) pad() {
	for len(w.body)%lengthOfWord != 0 {
		w.body = append(w.body, 0)
	}
}

// block writes the one that was made, with its length at both ends.
func (w *pcapng) block(kind uint32) error {
	w.pad()
	length := uint32(len(w.body) + blockFrame)
	head := little.AppendUint32(little.AppendUint32(nil, kind), length)
	body := little.AppendUint32(w.body, length)
	w.body = w.body[:0]
	if _, err := w.out.Write(head); err != nil {
		return err
	}
	_, err := w.out.Write(body)
	return err
}

// flush has all be written that was.
func (w *pcapng) flush() error { return w.out.Flush() }
