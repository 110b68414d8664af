package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pelago-dev/pelago/internal/lobby"
	"github.com/pelago-dev/pelago/internal/serving"
)

// Bounds of what a connection may take. A slow client is cut off before it can keep
// others out.
const (
	maxConnections = 256
	maxPerAddress  = 32 // clusters behind one address translation share it
	maxHeader      = 8 << 10
	headerTimeout  = 5 * time.Second // of the TLS handshake too
	readTimeout    = 5 * time.Second
	writeTimeout   = handshakeLimit + 10*time.Second
)

// server is the endpoint as a part of a manager that every replica runs.
type server struct {
	address   string
	listener  net.Listener // in place of address, if set
	handler   http.Handler
	authority *serving.Authority
	up        atomic.Bool
}

// NeedLeaderElection reports that every replica listens.
func (s *server) NeedLeaderElection() bool { return false }

// Start listens until ctx ends.
func (s *server) Start(ctx context.Context) error {
	if err := s.authority.Await(ctx); err != nil {
		return nil // ctx has ended: a manager that stops is no failure
	}
	if s.listener != nil {
		return s.serve(ctx, s.listener)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("listening for applications: %w", err)
	}
	return s.serve(ctx, listener)
}

// serve answers on a listener until ctx ends; what is being answered then may end.
func (s *server) serve(ctx context.Context, listener net.Listener) error {
	logger := log.FromContext(ctx).WithName("auth")
	var protocols http.Protocols
	protocols.SetHTTP1(true) // one request at a time per connection: connections bound the work
	web := &http.Server{
		Handler:           s.handler,
		Protocols:         &protocols,
		TLSConfig:         &tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: s.authority.Certificate},
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          serving.ErrorLog(logger),
		BaseContext:       func(net.Listener) context.Context { return log.IntoContext(ctx, logger) },
	}
	web.SetKeepAlivesEnabled(false) // one request per connection: who has its answer leaves
	logger.Info("listening", "address", listener.Addr().String())
	if err := serving.Run(ctx, web, lobby.New(maxConnections, maxPerAddress).Receive(web, listener), &s.up); err != nil {
		return fmt.Errorf("serving applications: %w", err)
	}
	return nil
}

// ready is a check for the manager: nil once the endpoint listens.
func (s *server) ready(*http.Request) error {
	if !s.up.Load() {
		return errors.New("the authentication endpoint does not listen yet")
	}
	return nil
}
