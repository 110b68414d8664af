// Package vitals is what a program of Pelago shows of itself over HTTPS: /healthz and
// /readyz to anybody, /metrics to whom the cluster allows it. Its certificate is made
// in memory and proves nothing; it is there so that tokens do not travel in the
// clear. It serves nothing else, and never profiles.
package vitals

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/utils/clock"

	"github.com/pelago-dev/pelago/internal/access"
	"github.com/pelago-dev/pelago/internal/lobby"
)

// Bounds of one request and of all of them.
const (
	readLimit     = 5 * time.Second
	writeLimit    = 30 * time.Second
	idleLimit     = 2 * time.Minute
	headerLimit   = 16 << 10
	scrapeLimit   = 10 * time.Second
	scrapesAtOnce = 4
	endLimit      = 3 * time.Second
	// Connections of all, and of one address: a node's are those of its kubelet's probes and of
	// some who scrape.
	mostOpen   = 128
	perAddress = 32
)

// Options are what a Server is made of.
type Options struct {
	// Address to listen on, such as :8443.
	Address string
	// Ask asks the API server who a token belongs to and what he may do.
	Ask access.Ask
	// Gatherer is where metrics come from.
	Gatherer prometheus.Gatherer
	// Logger is told of what goes wrong while serving.
	Logger logr.Logger
	// Clock ages what is remembered of tokens; the real one if nil.
	Clock clock.PassiveClock
}

// Check reports why a part of the program is not ready, nil if it is.
type Check func(*http.Request) error

// Server shows the program's vitals. It is safe for concurrent use.
type Server struct {
	options  Options
	listener net.Listener

	mu     sync.Mutex
	checks map[string]Check
}

// Listen takes the address, so that a program that cannot have it ends at once.
func Listen(o Options) (*Server, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	listener, err := net.Listen("tcp", o.Address)
	if err != nil {
		return nil, fmt.Errorf("listening for probes and metrics: %w", err)
	}
	return &Server{options: o, listener: listener, checks: map[string]Check{}}, nil
}

// Address is the one that is listened on.
func (s *Server) Address() net.Addr { return s.listener.Addr() }

// AddReadyzCheck makes /readyz depend on a check, or replaces it.
func (s *Server) AddReadyzCheck(name string, check Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks[name] = check
}

// Serve answers until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	config, err := selfSigned(s.options.Clock.Now())
	if err != nil {
		_ = s.listener.Close()
		return fmt.Errorf("making a certificate for probes and metrics: %w", err)
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true) // one request at a time per connection: connections bound the work
	server := &http.Server{
		Handler: s.handler(), Protocols: &protocols, TLSConfig: config, MaxHeaderBytes: headerLimit,
		ReadTimeout: readLimit, WriteTimeout: writeLimit, IdleTimeout: idleLimit,
		// Strangers that break off their handshake are no news.
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(s.options.Logger.V(1)), slog.LevelInfo),
	}
	listener := lobby.New(mostOpen, perAddress).Receive(server, s.listener)
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
		defer cancel()
		if server.Shutdown(patience) != nil {
			_ = server.Close()
		}
		err = <-ended
	}
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving probes and metrics: %w", err)
	}
	return nil
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
	metrics := promhttp.HandlerFor(s.options.Gatherer, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: scrapesAtOnce, Timeout: scrapeLimit,
	})
	asks := access.New(access.Options{Ask: s.options.Ask, Clock: s.options.Clock, Logger: s.options.Logger})
	mux.Handle("GET /metrics", gate{access: asks, behind: metrics})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close") // but for whom the gate lets pass: nobody else gets to keep one
		mux.ServeHTTP(w, r)
	})
}

// ready names the first part that is not ready, and why: no secrets are in there.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	checks := maps.Clone(s.checks)
	s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		if err := checks[name](r); err != nil {
			http.Error(w, name+": "+err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	fmt.Fprintln(w, "ok")
}
