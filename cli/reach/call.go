package reach

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
	"strings"
	"sync"
	"time"
)

// size of what is sent and comes back: many packets of any size.
const size = 128 << 10

// Limits of one call and of what is read of a request.
const (
	callLimit = 8 * time.Second
	readLimit = 5 * time.Second
	idleLimit = 5 * time.Minute
)

// Serve answers calls at an address until the context ends.
func Serve(ctx context.Context, address string) error {
	name, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("finding the pod's name: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	datagrams, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", listener.Addr().String())
	if err != nil {
		_ = listener.Close()
		return fmt.Errorf("listening: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = datagrams.Close() })()
	go echo(datagrams, name)
	server := &http.Server{Handler: handler(name), ReadHeaderTimeout: readLimit, ReadTimeout: 2 * readLimit, WriteTimeout: 2 * readLimit, IdleTimeout: idleLimit}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("answering: %w", err)
	}
	return nil
}

func handler(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		client, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil {
			client = r.RemoteAddr
		}
		n, err := io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, size))
		if err != nil || r.Method == http.MethodPost && n != size {
			http.Error(w, "not all has come", http.StatusBadRequest)
			return
		}
		w.Header().Set("X-Pelago-Server", name)
		w.Header().Set("X-Pelago-Client", client)
		if r.Method == http.MethodPost {
			_, _ = w.Write(make([]byte, size))
		}
	})
}

// Call calls each of several targets, all at the same time: HOST:PORT, or with what is to carry it
// before, tcp4/HOST:PORT, tcp6/, udp4/ or udp6/, which also has names mean addresses of that family
// alone; or api/HOST:PORT, which is home's API server and has to prove it.
func Call(ctx context.Context, targets []string) []Answer {
	answers := make([]Answer, len(targets))
	var all sync.WaitGroup
	for i, target := range targets {
		all.Go(func() { answers[i] = call(ctx, target) })
	}
	all.Wait()
	return answers
}

func call(ctx context.Context, target string) Answer {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	network, plainly := "tcp", target
	if before, after, has := strings.Cut(target, "/"); has {
		network, plainly = before, after
	}
	at, err := lookup(ctx, network, plainly)
	if err != nil {
		return Answer{Err: err.Error(), At: AtName}
	}
	switch network {
	case "api":
		return api(ctx, plainly, at, rootFile)
	case "udp4", "udp6":
		return datagram(ctx, at)
	}
	target = plainly
	begin := time.Now()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
	if err != nil {
		return Answer{Err: plain(err), At: AtConnect}
	}
	took := time.Since(begin)
	defer conn.Close()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+target, bytes.NewReader(make([]byte, size)))
	if err != nil {
		return Answer{Err: err.Error(), At: AtName}
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return Answer{Err: plain(err), At: AtTransfer}
	}
	defer response.Body.Close()
	n, err := io.Copy(io.Discard, response.Body)
	switch {
	case err != nil:
		return Answer{Err: plain(err), At: AtTransfer}
	case response.StatusCode != http.StatusOK || n != size:
		return Answer{Err: fmt.Sprintf("%d of %d bytes came back, %s", n, size, response.Status), At: AtTransfer}
	}
	return Answer{Server: response.Header.Get("X-Pelago-Server"), Client: response.Header.Get("X-Pelago-Client"), Micros: took.Microseconds()}
}

// lookup is HOST:PORT with an address of the host, of the family that a network has.
func lookup(ctx context.Context, network, target string) (string, error) {
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		return "", err
	}
	families := map[string]string{"tcp": "ip", "api": "ip", "tcp4": "ip4", "udp4": "ip4", "tcp6": "ip6", "udp6": "ip6"}
	if families[network] == "" {
		return "", fmt.Errorf("nothing is called over %q", network)
	}
	found, err := net.DefaultResolver.LookupNetIP(ctx, families[network], host)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(found[0].Unmap().String(), port), nil
}

// plain is an error without the addresses that the table has already.
func plain(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || os.IsTimeout(err) {
		return fmt.Sprintf("no answer in %s", callLimit)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err.Error()
	}
	return err.Error()
}

// Write writes answers as Read reads them.
func Write(w io.Writer, answers []Answer) error { return json.NewEncoder(w).Encode(answers) }

// Read reads what Write has written, of so many calls.
func Read(text string, calls int) ([]Answer, error) {
	var answers []Answer
	if err := json.Unmarshal([]byte(text), &answers); err != nil {
		return nil, fmt.Errorf("reading what came of the calls: %w", err)
	}
	if len(answers) != calls {
		return nil, fmt.Errorf("%d calls have %d answers", calls, len(answers))
	}
	return answers, nil
}
