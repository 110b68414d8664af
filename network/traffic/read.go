package traffic

import (
	"bytes"
	"container/heap"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pelago-dev/pelago/network/netns"
)

const (
	// answerBuffer holds the answers to askTogether questions many times.
	answerBuffer = 1 << 20
	askTogether  = 32
	// answerWait bounds the wait for what the kernel says at once.
	answerWait = time.Second
)

// errEnd ends a list.
var errEnd = errors.New("that is all")

// open opens a socket to ask.
func (m *Meter) open() (s *socket, err error) {
	err = netns.In(m.space, func() (err error) {
		s, err = listen(answerBuffer)
		return err
	})
	return s, err
}

// list are the open connections that have carried most since they were told of. Their counters
// stay: a list that sets them to 0 loses those of entries that the kernel finds no room for in a
// message, and begins the next one with.
func (m *Meter) list(ctx context.Context) (*largest, error) {
	s, err := m.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.close() }() // before its end, if there are too many
	if err := s.send(question(messageGet, unix.NLM_F_DUMP, unix.AF_UNSPEC, nil)); err != nil {
		return nil, err
	}
	found := &largest{most: m.options.Most}
	for looked := 0; looked < m.options.Look && ctx.Err() == nil; {
		err := answers(s, func(message uint16, b []byte) error {
			if message == unix.NLMSG_DONE {
				return errEnd
			}
			looked++
			found.add(read(b))
			return nil
		})
		if errors.Is(err, errEnd) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// take tells of connections, and has the kernel forget what it has told.
func (m *Meter) take(ctx context.Context, found *largest) error {
	s, err := m.open()
	if err != nil {
		return err
	}
	defer func() { _ = s.close() }()
	for all := found.all; len(all) > 0 && ctx.Err() == nil; {
		some := all[:min(askTogether, len(all))]
		all = all[len(some):]
		var asked []byte
		for _, c := range some {
			asked = append(asked, question(messageTake, 0, c.family, c.tuple)...)
		}
		if err := s.send(asked); err != nil {
			return err
		}
		for left := len(some); left > 0; {
			err := answers(s, func(message uint16, b []byte) error {
				left--
				if message == unix.NFNL_SUBSYS_CTNETLINK<<8 {
					m.tell(b)
				}
				return nil // it has ended, and is told of as such
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// answers receives answers. That there is no such connection is one.
func answers(s *socket, f func(message uint16, b []byte) error) error {
	if err := s.until(time.Now().Add(answerWait)); err != nil {
		return err
	}
	return s.receive(func(message uint16, b []byte) error {
		if message == unix.NLMSG_ERROR && len(b) >= 4 {
			if no := unix.Errno(-int32(binary.NativeEndian.Uint32(b))); no != unix.ENOENT {
				return fmt.Errorf("the kernel refuses: %w", no)
			}
		}
		return f(message, b)
	})
}

// question asks for one connection, or for all.
func question(message, flags int, family byte, tuple []byte) []byte {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|message, flags)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: family})
	if tuple != nil {
		req.AddData(nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, tuple))
	}
	return req.Serialize()
}

// candidate is a connection to be told of.
type candidate struct {
	family byte
	tuple  []byte // as the kernel has said it
	bytes  uint64
}

// largest keeps those connections that have carried most, so many at most. It is a heap of
// which the least is first.
type largest struct {
	most int
	all  []candidate
}

func (l *largest) Len() int           { return len(l.all) }
func (l *largest) Less(i, j int) bool { return l.all[i].bytes < l.all[j].bytes }
func (l *largest) Swap(i, j int)      { l.all[i], l.all[j] = l.all[j], l.all[i] }
func (l *largest) Push(x any)         { l.all = append(l.all, x.(candidate)) }
func (l *largest) Pop() any {
	last := l.all[len(l.all)-1]
	l.all = l.all[:len(l.all)-1]
	return last
}

// add keeps a connection, if it has carried anything and is one of the largest.
func (l *largest) add(e entry) {
	if e.tuples[0] == nil || e.packets() == 0 {
		return
	}
	n := e.bytes()
	if len(l.all) >= l.most {
		if n <= l.all[0].bytes {
			return
		}
		heap.Pop(l)
	}
	heap.Push(l, candidate{e.family, bytes.Clone(e.tuples[0]), n})
}
