// Package lobby bounds the connections of servers so that neither silence nor one address
// keeps anybody else out. It knows connections and addresses, never who calls, and needs
// the standard library alone.
package lobby

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
)

// Lobby is where the connections of a server are, or of several together. Who waits without
// delivering a request makes room for others, the address that has most who wait first. It
// is safe for concurrent use.
type Lobby struct {
	most, perAddress int

	mu     sync.Mutex
	guests []*guest // those that have waited longest without a request first
}

// New returns a lobby with room for so many connections, and for fewer from one address.
func New(most, perAddress int) *Lobby {
	return &Lobby{most: most, perAddress: perAddress}
}

// Receive has a server receive its guests in the lobby, and returns the listener to run it
// on. What the server does with connections already it goes on doing.
func (l *Lobby) Receive(web *http.Server, listener net.Listener) net.Listener {
	handler := web.Handler
	web.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g, ok := r.Context().Value(guestKey{}).(*guest); ok && g != nil {
			if r.Body == http.NoBody {
				g.delivers()
			} else {
				r.Body = &delivery{ReadCloser: r.Body, of: g}
			}
		}
		handler.ServeHTTP(w, r)
	})
	inContext, toldState := web.ConnContext, web.ConnState
	web.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if inContext != nil {
			ctx = inContext(ctx, c)
		}
		return context.WithValue(ctx, guestKey{}, guestOf(c))
	}
	web.ConnState = func(c net.Conn, state http.ConnState) {
		if g := guestOf(c); g != nil && state == http.StateIdle {
			g.rests()
		} else if g != nil && state == http.StateHijacked {
			g.delivers() // whatever it has announced: it was good enough to become another protocol
		}
		if toldState != nil {
			toldState(c, state)
		}
	}
	return &door{Listener: listener, lobby: l}
}

// door is a listener whose connections are in a lobby.
type door struct {
	net.Listener
	lobby *Lobby
}

// Accept returns the next connection there is room for.
func (d *door) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err // as it is: by its type the server knows what passes
		}
		g := &guest{Conn: c, lobby: d.lobby, address: hostOf(c.RemoteAddr())}
		out, in := d.lobby.admit(g)
		if out != nil {
			_ = out.Conn.Close() // whoever reads from it learns of it and closes it too
		}
		if in {
			return g, nil
		}
		_ = c.Close()
	}
}

// guest is a connection in the lobby.
type guest struct {
	net.Conn
	lobby     *Lobby
	address   string
	delivered bool // its request, which is being answered; guarded by lobby.mu
}

// admit takes a guest in if there is room or somebody can be sent out for it.
func (l *Lobby) admit(g *guest) (out *guest, in bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, waiting := 0, map[string]int{}
	for _, o := range l.guests {
		if o.address == g.address {
			of++
		}
		if !o.delivered {
			waiting[o.address]++
		}
	}
	if crowded := of >= l.perAddress; crowded || len(l.guests) >= l.most {
		leaves := -1
		for i, o := range l.guests {
			may := !o.delivered && (o.address == g.address || !crowded && waiting[o.address] > waiting[g.address])
			if may && (leaves < 0 || waiting[o.address] > waiting[l.guests[leaves].address]) {
				leaves = i
			}
		}
		if leaves < 0 {
			return nil, false
		}
		out = l.guests[leaves]
		l.guests = slices.Delete(l.guests, leaves, leaves+1)
	}
	l.guests = append(l.guests, g)
	return out, true
}

// delivers notes that the whole request of a guest is here.
func (g *guest) delivers() {
	g.lobby.mu.Lock()
	defer g.lobby.mu.Unlock()
	g.delivered = true
}

// rests notes that a guest has its answer and waits again, from now on.
func (g *guest) rests() {
	g.lobby.mu.Lock()
	defer g.lobby.mu.Unlock()
	g.delivered = false
	if i := slices.Index(g.lobby.guests, g); i >= 0 { // not if it was sent out
		g.lobby.guests = append(slices.Delete(g.lobby.guests, i, i+1), g)
	}
}

// Close closes the connection and makes room.
func (g *guest) Close() error {
	g.lobby.mu.Lock()
	g.lobby.guests = slices.DeleteFunc(g.lobby.guests, func(o *guest) bool { return o == g })
	g.lobby.mu.Unlock()
	return g.Conn.Close()
}

// delivery is the body of a guest's request.
type delivery struct {
	io.ReadCloser
	of *guest
}

// Read notes the end of the body.
func (d *delivery) Read(into []byte) (int, error) {
	n, err := d.ReadCloser.Read(into)
	if err == io.EOF {
		d.of.delivers()
	}
	return n, err
}

// guestKey is the key of a request's guest in its context.
type guestKey struct{}

// guestOf is the guest behind a connection, nil if there is none.
func guestOf(c net.Conn) *guest {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	g, _ := c.(*guest)
	return g
}

// hostOf is an address without its port.
func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
