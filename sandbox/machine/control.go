package machine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// supervise is the second pass of Init: it answers on the machine's socket and
// never returns but on failure.
func supervise(spec Spec) error {
	u := newUnits(spec.logs())
	go u.reap()
	var listener net.Listener
	err := shortly(spec.socket(), func(path string) (err error) {
		listener, err = net.Listen("unix", path)
		return err
	})
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	if err := os.Chmod(spec.socket(), 0o600); err != nil {
		return fmt.Errorf("closing the socket to others: %w", err)
	}
	server := &http.Server{Handler: handler(u), ReadHeaderTimeout: 5 * time.Second}
	return server.Serve(listener)
}

// shortly calls use with another path to a file, which is short however deep the file's folder
// lies: the address of a Unix socket has 107 bytes at most.
func shortly(path string, use func(short string) error) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close()
	return use(fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), filepath.Base(path)))
}

func handler(u *units) http.Handler {
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, err error) {
		switch {
		case errors.Is(err, errNoUnit):
			http.Error(w, err.Error(), http.StatusNotFound)
		case err != nil:
			http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		}
	}
	mux.HandleFunc("GET /units", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(u.list())
	})
	mux.HandleFunc("PUT /units", func(w http.ResponseWriter, r *http.Request) {
		var unit Unit
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&unit)
		if err == nil {
			err = u.put(unit)
		}
		answer(w, err)
	})
	mux.HandleFunc("DELETE /units/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, u.remove(r.PathValue("name")))
	})
	mux.HandleFunc("POST /units/{name}/signal/{number}", func(w http.ResponseWriter, r *http.Request) {
		number, err := strconv.Atoi(r.PathValue("number"))
		if err == nil {
			err = u.signal(r.PathValue("name"), syscall.Signal(number))
		}
		answer(w, err)
	})
	return mux
}

// Units lists the machine's units.
func (m *Machine) Units(ctx context.Context) ([]UnitStatus, error) {
	var all []UnitStatus
	return all, m.call(ctx, http.MethodGet, "/units", nil, &all)
}

// Put starts a unit in the machine, replacing one of the same name.
func (m *Machine) Put(ctx context.Context, unit Unit) error {
	return m.call(ctx, http.MethodPut, "/units", unit, nil)
}

// Ensure starts a unit unless one of that name is there already.
func (m *Machine) Ensure(ctx context.Context, unit Unit) error {
	all, err := m.Units(ctx)
	if err != nil {
		return err
	}
	for _, u := range all {
		if u.Name == unit.Name {
			return nil
		}
	}
	return m.Put(ctx, unit)
}

// Run starts a unit that is to end by itself and returns when it has, with the
// end of its log if it failed. One that has succeeded before is not run again.
func (m *Machine) Run(ctx context.Context, unit Unit) error {
	unit.Once = true
	if err := m.Ensure(ctx, unit); err != nil {
		return err
	}
	for {
		all, err := m.Units(ctx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(all, func(u UnitStatus) bool { return u.Name == unit.Name })
		switch {
		case at < 0:
			return fmt.Errorf("machine %s: unit %s: %w", m.Name, unit.Name, errNoUnit)
		case all[at].PID == 0 && all[at].Exit == 0:
			return nil
		case all[at].PID == 0:
			_ = m.Remove(ctx, unit.Name) // so that the next attempt runs it again
			return fmt.Errorf("machine %s: unit %s failed: %s", m.Name, unit.Name, tail(filepath.Join(m.logs(), unit.Name+".log"), 5))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for unit %s of machine %s: %w", unit.Name, m.Name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Remove stops a unit: SIGTERM, and SIGKILL after 5 s.
func (m *Machine) Remove(ctx context.Context, name string) error {
	return m.call(ctx, http.MethodDelete, "/units/"+name, nil, nil)
}

// Signal sends a signal to a unit.
func (m *Machine) Signal(ctx context.Context, name string, signal syscall.Signal) error {
	return m.call(ctx, http.MethodPost, fmt.Sprintf("/units/%s/signal/%d", name, signal), nil, nil)
}

// call makes one request to the machine's init; it takes at most 15 s.
func (m *Machine) call(ctx context.Context, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://machine"+path, body)
	if err != nil {
		return err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
			err = shortly(m.socket(), func(path string) (err error) {
				conn, err = (&net.Dialer{}).DialContext(ctx, "unix", path)
				return err
			})
			return conn, err
		},
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return fmt.Errorf("asking machine %s: %w", m.Name, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
		return fmt.Errorf("machine %s: %s", m.Name, strings.TrimSpace(string(text)))
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(out)
}
