package serving

import (
	"net"
	"sync"
)

// bounded accepts no more connections at once than it has places. What comes beyond
// that waits in the kernel's queue, which has an end too.
type bounded struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func bound(inner net.Listener, most int) *bounded {
	return &bounded{Listener: inner, places: make(chan struct{}, most), closed: make(chan struct{})}
}

// Accept waits for a place and then for a connection.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.places <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	conn, err := b.Listener.Accept()
	if err != nil {
		<-b.places
		return nil, err
	}
	return &placed{Conn: conn, leave: func() { <-b.places }}, nil
}

// Close wakes who waits for a place.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

// placed gives its place back when it is closed.
type placed struct {
	net.Conn
	once  sync.Once
	leave func()
}

// Close closes the connection.
func (p *placed) Close() error {
	err := p.Conn.Close()
	p.once.Do(p.leave)
	return err
}
