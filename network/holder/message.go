package holder

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// What one side says to the other, a datagram each, as words with a space between them:
//
//	hold KIND NAME    and one file
//	drop KIND NAME
//	last NAME ADDRESS:PORT, or "last NAME -" to forget it
//	ready             from the Holder: that was all
const (
	verbHold  = "hold"
	verbDrop  = "drop"
	verbLast  = "last"
	verbReady = "ready"

	maxName    = 253
	maxMessage = 512
	// maxFiles is how many files of one datagram are looked at, to be closed.
	maxFiles = 8
)

var errMalformed = errors.New("malformed")

type message struct {
	verb string
	subject
	last netip.AddrPort
}

func (m message) encode() []byte {
	switch m.verb {
	case verbReady:
		return []byte(verbReady)
	case verbLast:
		at := "-"
		if m.last.IsValid() {
			at = m.last.String()
		}
		return []byte(strings.Join([]string{m.verb, m.name, at}, " "))
	}
	return []byte(strings.Join([]string{m.verb, string(m.kind), m.name}, " "))
}

func decode(b []byte) (m message, err error) {
	words := strings.Split(string(b), " ")
	bad := func(why string) (message, error) { return message{}, fmt.Errorf("%w: %s", errMalformed, why) }
	m.verb = words[0]
	switch {
	case m.verb == verbReady && len(words) == 1:
		return m, nil
	case len(words) != 3:
		return bad("not three words")
	case m.verb == verbHold || m.verb == verbDrop:
		if m.kind = Kind(words[1]); m.kind != Namespace && m.kind != TUN && m.kind != Note {
			return bad("no kind of file")
		}
		m.name = words[2]
	case m.verb == verbLast:
		m.name = words[1]
		if words[2] == "-" {
			break
		}
		if m.last, err = netip.ParseAddrPort(words[2]); err != nil || m.last.String() != words[2] {
			return bad("no address and port")
		}
	default:
		return bad("no word of ours")
	}
	if !good(m.name) {
		return bad("no name")
	}
	return m, nil
}

// good says whether a name is one: printable, and neither empty nor long.
func good(name string) bool {
	return name != "" && len(name) <= maxName && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' })
}

// connect makes a connection of a file, which it takes over.
func connect(file *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(file)
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return nil, fmt.Errorf("taking over a socket: %w", err)
	}
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, errors.New("taking over a socket: it is none of Unix")
	}
	return socket, nil
}

// send sends a message, with a file if fd is none below 0.
func send(conn *net.UnixConn, m message, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	_, _, err := conn.WriteMsgUnix(m.encode(), rights, nil)
	return err
}

// receive waits for a message. It returns the one file that came with it, or -1, and
// closes all others.
func receive(conn *net.UnixConn) (message, int, error) {
	var text [maxMessage]byte
	rights := make([]byte, unix.CmsgSpace(4*maxFiles))
	n, extra, flags, _, err := conn.ReadMsgUnix(text[:], rights)
	if err != nil {
		return message{}, -1, err
	}
	if n == 0 && extra == 0 {
		return message{}, -1, io.EOF
	}
	fds := files(rights[:extra])
	m, err := decode(text[:n])
	switch {
	case err != nil:
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || len(fds) > 1:
		err = fmt.Errorf("%w: too long, or with too many files", errMalformed)
	case len(fds) == 1:
		return m, fds[0], nil
	}
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
	return m, -1, err
}

// files are the descriptors that came with a message.
func files(rights []byte) (fds []int) {
	parts, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	for _, part := range parts {
		if got, err := unix.ParseUnixRights(&part); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}
