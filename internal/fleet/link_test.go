package fleet

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// link is a TCP path to a server that can be cut, as by a firewall that drops
// everything in silence, and healed.
type link struct {
	target   string
	listener net.Listener

	mu    sync.Mutex
	open  chan struct{} // closed while the link works
	conns map[net.Conn]bool
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{target: target, listener: listener, open: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(l.open)
	var running sync.WaitGroup
	running.Go(func() { l.serve(&running) })
	t.Cleanup(func() {
		listener.Close()
		l.heal()
		l.reset()
		running.Wait()
	})
	return l
}

// dial goes through the link whatever the address; over a cut link it waits.
func (l *link) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	select {
	case <-l.gate():
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", l.listener.Addr().String())
}

func (l *link) gate() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = make(chan struct{})
}

func (l *link) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.open:
	default:
		close(l.open)
	}
}

// reset closes all connections.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
}

// connections counts those that are open.
func (l *link) connections() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns) / 2
}

func (l *link) serve(running *sync.WaitGroup) {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.DialTimeout("tcp", l.target, time.Second)
		if err != nil {
			in.Close()
			continue
		}
		l.mu.Lock()
		l.conns[in], l.conns[out] = true, true
		l.mu.Unlock()
		running.Go(func() { l.pump(in, out) })
		running.Go(func() { l.pump(out, in) })
	}
}

func (l *link) pump(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		<-l.gate()
		if n > 0 {
			if _, werr := to.Write(buffer[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			break
		}
	}
	from.Close()
	to.Close()
	l.mu.Lock()
	delete(l.conns, from)
	delete(l.conns, to)
	l.mu.Unlock()
}
