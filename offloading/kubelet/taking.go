package kubelet

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"sync"
	"time"
)

// How long an upgraded connection may be silent, and how long after its caller has
// said all he will.
const (
	idleTime   = 4 * time.Hour
	lingerTime = time.Minute
)

// taking lets a proxy take over the connection of a request, which then ends with the
// request's context or when nothing passes.
type taking struct {
	http.ResponseWriter
	ctx    context.Context
	end    context.CancelFunc // of ctx
	linger time.Duration
}

// Unwrap lets flushing through.
func (t *taking) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Hijack takes the connection over.
func (t *taking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffered, err := http.NewResponseController(t.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	return watch(t.ctx, t.end, c, idleTime, t.linger), buffered, nil
}

// lively is a connection that is closed when nothing has passed for a while, which
// frees whoever waits to read from it or to write to it.
type lively struct {
	net.Conn
	linger time.Duration
	detach func() bool

	mu    sync.Mutex
	idle  time.Duration
	timer *time.Timer
}

// watch closes a connection with ctx, and has that end when nothing has passed for idle: the proxy
// then closes the provider's side too, where it may wait for what never comes.
func watch(ctx context.Context, end context.CancelFunc, c net.Conn, idle, linger time.Duration) *lively {
	l := &lively{Conn: c, idle: idle, linger: linger}
	l.timer = time.AfterFunc(idle, end)
	l.detach = context.AfterFunc(ctx, func() { _ = c.Close() })
	return l
}

// passed notes that something has passed, or that the caller has ended.
func (l *lively) passed(n int, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ended {
		l.idle = min(l.idle, l.linger)
	}
	if n > 0 || ended {
		l.timer.Reset(l.idle)
	}
}

// Read reads what the caller sends.
func (l *lively) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.passed(n, err != nil)
	return n, err
}

// Write writes what the caller gets.
func (l *lively) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	l.passed(n, false)
	return n, err
}

// CloseWrite tells the caller that no more comes; he should then end as well.
func (l *lively) CloseWrite() error {
	l.passed(0, true)
	if half, ok := l.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return l.Conn.Close()
}

// Close ends the connection.
func (l *lively) Close() error {
	l.detach()
	l.mu.Lock()
	l.timer.Stop()
	l.mu.Unlock()
	return l.Conn.Close()
}
