package holder

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
)

// Left is what the client before has left. The files are whoever's got them.
type Left struct {
	Namespaces, TUNs, Notes map[string]*os.File
	Last                    map[string]netip.AddrPort
}

// Client is the side that works. It is safe for concurrent use.
type Client struct{ conn *net.UnixConn }

// Open takes a file that Pair has made over, and reads what was left.
func Open(file *os.File) (*Client, Left, error) {
	conn, err := connect(file)
	if err != nil {
		return nil, Left{}, err
	}
	left := Left{Last: map[string]netip.AddrPort{}}
	of := map[Kind]*map[string]*os.File{Namespace: &left.Namespaces, TUN: &left.TUNs, Note: &left.Notes}
	for _, files := range of {
		*files = map[string]*os.File{}
	}
	for {
		m, fd, err := receive(conn)
		switch {
		case err != nil:
		case m.verb == verbReady:
			return &Client{conn}, left, nil
		case m.verb == verbHold && fd >= 0:
			(*of[m.kind])[m.name] = os.NewFile(uintptr(fd), m.name)
		case m.verb == verbLast:
			left.Last[m.name] = m.last
		default:
			err = fmt.Errorf("%w: %s", errMalformed, m.verb)
		}
		if err != nil {
			left.close()
			_ = conn.Close()
			return nil, Left{}, fmt.Errorf("reading what was left: %w", err)
		}
	}
}

func (l Left) close() {
	for _, files := range []map[string]*os.File{l.Namespaces, l.TUNs, l.Notes} {
		for _, file := range files {
			_ = file.Close()
		}
	}
}

// Hold has a file held until Drop, instead of one of the same kind and name. It stays
// the caller's.
func (c *Client) Hold(kind Kind, name string, file *os.File) error {
	raw, err := file.SyscallConn() // Fd would make it blocking for all who have it
	if err == nil {
		if failed := raw.Control(func(fd uintptr) {
			err = c.send(message{verb: verbHold, subject: subject{kind, name}}, int(fd))
		}); failed != nil {
			err = failed
		}
	}
	if err != nil {
		return fmt.Errorf("having %s %s held: %w", kind, name, err)
	}
	return nil
}

// Drop ends that. What is not held is no error.
func (c *Client) Drop(kind Kind, name string) error {
	if err := c.send(message{verb: verbDrop, subject: subject{kind, name}}, -1); err != nil {
		return fmt.Errorf("letting go of %s %s: %w", kind, name, err)
	}
	return nil
}

// Last has the address remembered at which the other side of a tunnel was; none forgets it.
func (c *Client) Last(name string, at netip.AddrPort) error {
	if err := c.send(message{verb: verbLast, subject: subject{name: name}, last: at}, -1); err != nil {
		return fmt.Errorf("having the other side of %s remembered: %w", name, err)
	}
	return nil
}

func (c *Client) send(m message, fd int) error {
	if !good(m.name) {
		return fmt.Errorf("%q is no name", m.name)
	}
	return send(c.conn, m, fd)
}

// Wait returns when the Holder is gone.
func (c *Client) Wait() error {
	_, _, err := receive(c.conn)
	if err == nil || errors.Is(err, io.EOF) {
		return errors.New("the holder is gone")
	}
	return err
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }
