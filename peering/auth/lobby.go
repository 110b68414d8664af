package auth

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"sync"
)

// lobby is a listener with room for so many connections, and for fewer from one
// address. When there is no room, the one that has waited longest without delivering
// its request makes some: silence keeps nobody out.
type lobby struct {
	net.Listener
	most, perAddress int

	mu     sync.Mutex
	guests []*guest // in the order in which they came
}

// guest is a connection in the lobby.
type guest struct {
	net.Conn
	lobby     *lobby
	address   string
	delivered bool // its request; guarded by lobby.mu
}

func newLobby(l net.Listener, most, perAddress int) *lobby {
	return &lobby{Listener: l, most: most, perAddress: perAddress}
}

// Accept returns the next connection there is room for.
func (l *lobby) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, fmt.Errorf("accepting a connection: %w", err)
		}
		g := &guest{Conn: c, lobby: l, address: hostOf(c.RemoteAddr())}
		out, in := l.admit(g)
		if out != nil {
			_ = out.Conn.Close() // whoever reads from it learns of it and closes it too
		}
		if in {
			return g, nil
		}
		_ = c.Close()
	}
}

// admit takes a guest in if there is room or somebody can be sent out for it.
func (l *lobby) admit(g *guest) (out *guest, in bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	same := 0
	for _, other := range l.guests {
		if other.address == g.address {
			same++
		}
	}
	if crowded := same >= l.perAddress; crowded || len(l.guests) >= l.most {
		i := slices.IndexFunc(l.guests, func(o *guest) bool { return !o.delivered && (!crowded || o.address == g.address) })
		if i < 0 {
			return nil, false
		}
		out = l.guests[i]
		l.guests = slices.Delete(l.guests, i, i+1)
	}
	l.guests = append(l.guests, g)
	return out, true
}

// Close closes the connection and makes room.
func (g *guest) Close() error {
	g.lobby.mu.Lock()
	g.lobby.guests = slices.DeleteFunc(g.lobby.guests, func(o *guest) bool { return o == g })
	g.lobby.mu.Unlock()
	return g.Conn.Close()
}

// guestKey is the key of a request's guest in its context.
type guestKey struct{}

// withGuest puts the guest behind a connection into its context.
func withGuest(ctx context.Context, c net.Conn) context.Context {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	return context.WithValue(ctx, guestKey{}, c)
}

// delivered notes that the whole request of a context's guest is here.
func delivered(ctx context.Context) {
	if g, ok := ctx.Value(guestKey{}).(*guest); ok {
		g.lobby.mu.Lock()
		g.delivered = true
		g.lobby.mu.Unlock()
	}
}

// hostOf is an address without its port.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
