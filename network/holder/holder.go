// Package holder keeps open files over the end of the process that uses them: network
// namespaces, TUN devices and notes live as long as somebody has them open. A small process, that
// does nothing else and so does not die, is the Holder; the one that does the work is its
// Client, and finds on its start what the one before it left. Between the two lies a pair of
// sockets that nobody else can reach. It knows nothing of what the files are for.
package holder

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Kind is what a file is of.
type Kind string

// The kinds of files.
const (
	Namespace Kind = "namespace"
	TUN       Kind = "tun"
	// Note is a file of memory, with what the next client is to know.
	Note Kind = "note"
)

// maxHeld is the most that is held, of files and of addresses.
const maxHeld = 4096

// Holder holds files for whoever is its client. The zero value holds none.
type Holder struct {
	mu    sync.Mutex
	files map[subject]int
	last  map[string]netip.AddrPort
}

// subject is what something is held for.
type subject struct {
	kind Kind
	name string
}

// Pair makes the two ends of a connection, each for a process of its own.
func Pair() (own, other *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "holder"), os.NewFile(uintptr(fds[1]), "client"), nil
}

// Serve gives a client all that is held and does what it then says, until the client is
// gone. It takes the file over. What makes no sense is left out, and told to complain.
func (h *Holder) Serve(file *os.File, complain func(error)) error {
	conn, err := connect(file)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := h.tell(conn); err != nil {
		return fmt.Errorf("telling a client what is held: %w", err)
	}
	for {
		m, fd, err := receive(conn)
		switch {
		case errors.Is(err, errMalformed):
			complain(err)
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("listening to a client: %w", err)
		}
		if err := h.do(m, fd); err != nil {
			complain(err)
		}
	}
}

// tell says all that is held, and that this is all.
func (h *Holder) tell(conn *net.UnixConn) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s, fd := range h.files {
		if err := send(conn, message{verb: verbHold, subject: s}, fd); err != nil {
			return err
		}
	}
	for name, at := range h.last {
		if err := send(conn, message{verb: verbLast, subject: subject{name: name}, last: at}, -1); err != nil {
			return err
		}
	}
	return send(conn, message{verb: verbReady}, -1)
}

// do takes what a client has said. The descriptor is its own from now on, or -1.
func (h *Holder) do(m message, fd int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, has := h.files[m.subject]
	_, known := h.last[m.name]
	switch {
	case m.verb == verbHold && fd >= 0 && (has || len(h.files) < maxHeld):
		h.let(m.subject)
		if h.files == nil {
			h.files = map[subject]int{}
		}
		h.files[m.subject] = fd
		return nil
	case m.verb == verbDrop && fd < 0:
		h.let(m.subject)
		return nil
	case m.verb == verbLast && fd < 0 && !m.last.IsValid():
		delete(h.last, m.name)
		return nil
	case m.verb == verbLast && fd < 0 && (known || len(h.last) < maxHeld):
		if h.last == nil {
			h.last = map[string]netip.AddrPort{}
		}
		h.last[m.name] = m.last
		return nil
	}
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	return fmt.Errorf("%w: %s of %s %q, with %d things held", errMalformed, m.verb, m.kind, m.name, len(h.files)+len(h.last))
}

func (h *Holder) let(s subject) {
	if fd, ok := h.files[s]; ok {
		_ = unix.Close(fd)
		delete(h.files, s)
	}
}

// Held says what is held, as KIND NAME, in order.
func (h *Holder) Held() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := make([]string, 0, len(h.files))
	for s := range h.files {
		held = append(held, string(s.kind)+" "+s.name)
	}
	slices.Sort(held)
	return held
}

// Close lets go of everything.
func (h *Holder) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.files {
		h.let(s)
	}
	h.last = nil
}
