package internet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxConfig       = 4 << 20 // bytes of JSON
	requestTimeout  = 30 * time.Second
	shutdownTimeout = 5 * time.Second
)

// Serve puts start into force in the network namespace of the process, then
// answers on a Unix socket (mode 0600) that appears when it is in force:
//
//	GET /config  the Config in force
//	PUT /config  another one; answered once it is in force, whole or not at all
//	GET /stats   Stats
//
// It returns when ctx ends, nil then; the socket is removed. Rules and routes
// stay, WAN devices go: until the next Serve, links with delay, loss or rate are
// plain wires, and cut ones stay cut. It needs root, nft, and /dev/net/tun for
// links with delay, loss or rate.
func Serve(ctx context.Context, socket string, start Config, log *slog.Logger) error {
	if err := start.Validate(); err != nil {
		return fmt.Errorf("validating the first config: %w", err)
	}
	r := newRouter(log)
	defer r.close()
	if err := r.set(start); err != nil {
		return fmt.Errorf("applying the first config: %w", err)
	}
	listener, err := listen(ctx, socket)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: r.handler(), ReadTimeout: requestTimeout, WriteTimeout: requestTimeout,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	log.Info("internet is up", "ports", len(start.Ports))
	select {
	case err := <-ended:
		return fmt.Errorf("serving %s: %w", socket, err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := server.Shutdown(stopping); err != nil {
		return fmt.Errorf("ending %s: %w", socket, errors.Join(err, server.Close()))
	}
	return nil
}

// listen makes the socket. One that nobody answers on is left over and replaced.
func listen(ctx context.Context, socket string) (net.Listener, error) {
	var dialer net.Dialer
	if conn, err := dialer.DialContext(ctx, "unix", socket); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("listening on %s: another process does so already; stop it first", socket)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("removing a left-over socket: %w", err)
	}
	old := unix.Umask(0o177)
	defer unix.Umask(old)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", socket, err)
	}
	return listener, nil
}

func (r *router) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /config", func(w http.ResponseWriter, _ *http.Request) { r.answer(w, r.get()) })
	mux.HandleFunc("PUT /config", r.putConfig)
	mux.HandleFunc("GET /stats", func(w http.ResponseWriter, request *http.Request) {
		stats, err := r.stats(request.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		r.answer(w, stats)
	})
	return mux
}

func (r *router) putConfig(w http.ResponseWriter, request *http.Request) {
	decoder := json.NewDecoder(http.MaxBytesReader(w, request.Body, maxConfig))
	decoder.DisallowUnknownFields()
	var c Config
	if err := decoder.Decode(&c); err != nil {
		http.Error(w, "reading the config: "+err.Error(), http.StatusBadRequest)
		return
	}
	if err := c.Validate(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch err := r.set(c); {
	case errors.Is(err, errNoInterface):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

func (r *router) answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(body); err != nil {
		r.log.Error("answer was not sent", "error", err)
	}
}
