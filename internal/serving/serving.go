// Package serving is how our programs answer over HTTPS to those who pin an authority
// of ours: Authority is the certificate authority, made once and kept in a Secret, with
// certificates made of it in memory; Server is a bounded HTTPS server as a part of a
// manager. It authenticates nobody: client certificates are asked for and passed on to
// handlers, which judge them. Keys never leave the Secret and the memory of the program.
package serving

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pelago-dev/pelago/internal/lobby"
)

// Bounds of what a connection may take. Handlers that need longer extend them for their
// own response.
const (
	maxConnections = 1024
	// maxPerAddress is more than an API server has changes in flight at once, 200 unless it
	// is told otherwise: it needs a connection for each that it asks us about.
	maxPerAddress = 256
	maxHeader     = 16 << 10
	headerTimeout = 5 * time.Second // of the TLS handshake too
	readTimeout   = 10 * time.Second
	writeTimeout  = 30 * time.Second
	idleTimeout   = 2 * time.Minute // longer than that of API servers, 90 s: who closes first may cut a request off
	shutdownLimit = 5 * time.Second // of other servers' too, see Run
)

// How a Server ends: for drainFor it goes on, and each answer is the last one of its connection; then
// it takes no more, and what is being answered has answerFor.
const (
	drainFor  = 500 * time.Millisecond
	answerFor = time.Second
)

// Server is an HTTPS server as a part of a manager that every replica runs.
type Server struct {
	// Address to listen on, like ":9443".
	Address string
	// Socket to listen with, which outlives the server; one of its own if nil.
	Socket *Socket
	// Authority whose certificates are served.
	Authority *Authority
	// Handler answers.
	Handler http.Handler

	up atomic.Bool
}

// NeedLeaderElection reports that every replica listens.
func (s *Server) NeedLeaderElection() bool { return false }

// Start listens until ctx ends, as soon as there is an authority.
func (s *Server) Start(ctx context.Context) error {
	if err := s.Authority.Await(ctx); err != nil {
		return nil // ctx has ended: a manager that stops is no failure
	}
	listener, err := cmp.Or(s.Socket, &Socket{}).Listen(ctx, s.Address)
	if err != nil {
		return fmt.Errorf("listening for the API server: %w", err)
	}
	return s.Serve(ctx, listener)
}

// Serve answers on a listener until ctx ends and a moment longer, so that nobody who asks is cut off.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	if s.Socket != nil {
		s.Socket.servers.Add(1)
		defer s.Socket.servers.Done()
	}
	logger := log.FromContext(ctx).WithName("serving")
	open, shut := context.WithCancel(context.WithoutCancel(ctx))
	defer shut()
	answering, over := context.WithCancel(context.WithoutCancel(ctx))
	defer over()
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(drainFor, shut)
		time.AfterFunc(drainFor+answerFor, over)
	})()
	var protocols http.Protocols
	protocols.SetHTTP1(true) // one request at a time per connection: connections bound the work
	web := &http.Server{
		Handler:   s.Handler,
		Protocols: &protocols,
		TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12, GetCertificate: s.Authority.Certificate,
			ClientAuth: tls.RequestClientCert, // checked by the handlers that need it
		},
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          ErrorLog(logger),
		BaseContext:       func(net.Listener) context.Context { return log.IntoContext(answering, logger) },
	}
	aged(web, connectionAge, func() bool { return ctx.Err() != nil })
	logger.Info("listening", "address", listener.Addr().String())
	if err := Run(open, web, lobby.New(maxConnections, maxPerAddress).Receive(web, listener), &s.up); err != nil {
		return fmt.Errorf("serving the API server: %w", err)
	}
	return nil
}

// Ready is a check for the manager: nil once the server listens.
func (s *Server) Ready(*http.Request) error {
	if !s.up.Load() {
		return errors.New("the server for the API server's calls does not listen yet")
	}
	return nil
}

// Run answers over TLS on a listener until ctx ends; what is being answered then may end.
// Up is true while it answers.
func Run(ctx context.Context, web *http.Server, listener net.Listener, up *atomic.Bool) error {
	ended := make(chan error, 1)
	go func() { ended <- web.ServeTLS(listener, "", "") }()
	up.Store(true)
	defer up.Store(false)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	// ctx is over, and what is being answered needs a moment more.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
	defer cancel()
	if err := web.Shutdown(last); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("closing the listener: %w", err)
	}
	return web.Close()
}

// ErrorLog is an HTTP server's log that nobody can flood by breaking connections.
func ErrorLog(logger logr.Logger) *stdlog.Logger {
	return stdlog.New(&quiet{logger: logger, limit: rate.NewLimiter(1, 5)}, "", 0)
}

// quiet passes what the HTTP server says of broken connections on to the log of
// details, and no more of it than a person could read: anybody can cause it.
type quiet struct {
	logger logr.Logger
	limit  *rate.Limiter
}

// Write takes one message.
func (q *quiet) Write(text []byte) (int, error) {
	if q.limit.Allow() {
		q.logger.V(1).Info("connection failed", "cause", strings.TrimSpace(string(text)))
	}
	return len(text), nil
}
