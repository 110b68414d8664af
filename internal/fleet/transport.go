package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// closeAgain is how soon connections that had just been used are closed.
const closeAgain = time.Second

// userAgent is what this program calls itself at peers.
const userAgent = "pelago"

// Bounds on what a peer may send.
const (
	maxAnswer = 4 << 20 // of one call
	maxEvent  = 2 << 20 // of one event of a watch
	maxHeader = 64 << 10
	// maxUnread is how much of an answer may come before it is read, which is read no faster than
	// its turn comes.
	maxUnread = 512 << 10
)

// ErrTooLarge says that a peer sent more than it may.
var ErrTooLarge = errors.New("the peer's answer is too large")

// transport carries the requests of one credential. It counts those in flight, so
// that its connections can be closed when it has been replaced and the last ended.
type transport struct {
	base  *http.Transport
	token string

	mu       sync.Mutex
	inFlight int
	retired  bool
}

// newTransport makes a transport that pings a silent peer, so that a dead one does
// not keep watches open.
func newTransport(c Connection, dial func(context.Context, string, string) (net.Conn, error)) (*transport, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(c.CA) {
			return nil, errors.New("reading the certificate authority: no certificate in PEM")
		}
	}
	if len(c.Certificate) > 0 {
		pair, err := tls.X509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return nil, fmt.Errorf("reading the certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	base := &http.Transport{
		TLSClientConfig:        config,
		ForceAttemptHTTP2:      true,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout, MaxReceiveBufferPerStream: maxUnread},
		TLSHandshakeTimeout:    2 * dialTimeout,
		IdleConnTimeout:        drainTimeout,
		MaxResponseHeaderBytes: maxHeader,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			if len(c.At) > 0 {
				return DialAny(ctx, dial, network, c.At)
			}
			return dial(ctx, network, address)
		},
	}
	if c.ProxyURL != "" {
		proxy, err := url.Parse(c.ProxyURL)
		if err != nil || proxy.Host == "" {
			return nil, errors.New("reading the proxy's address: not http://HOST:PORT")
		}
		base.Proxy = http.ProxyURL(proxy)
	}
	return &transport{base: base, token: c.Token}, nil
}

// client returns an HTTP client over the transport; a timeout of 0 is none. It
// follows no redirect: a peer does not choose whom this cluster talks to.
func (t *transport) client(timeout time.Duration) *http.Client {
	return &http.Client{
		Transport:     t,
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// RoundTrip sends one request.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", userAgent) // it becomes a name in managedFields
	if t.token != "" {
		r.Header.Set("Authorization", "Bearer "+t.token)
	}
	t.begin()
	answer, err := t.base.RoundTrip(r)
	if err != nil {
		t.end()
		return nil, err
	}
	// Clients would wait as long as the peer says; our own back-offs have bounds.
	answer.Header.Del("Retry-After")
	b := &body{ReadCloser: answer.Body, ended: sync.OnceFunc(t.end), left: maxAnswer, bounded: r.URL.Query().Get("watch") != "true"}
	if r.Context().Value(counted{}) == nil {
		b.most = maxCallCost
	}
	answer.Body = b
	return answer, nil
}

func (t *transport) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inFlight++
}

func (t *transport) end() {
	t.mu.Lock()
	t.inFlight--
	last := t.retired && t.inFlight == 0
	t.mu.Unlock()
	if last {
		t.close()
	}
}

// retire closes the connections once nothing is in flight on them.
func (t *transport) retire() {
	t.mu.Lock()
	t.retired = true
	idle := t.inFlight == 0
	t.mu.Unlock()
	if idle {
		t.close()
	}
}

// close closes the connections, and does so again: HTTP/2 lets go of a stream a moment
// after its answer was closed, and until then the connection does not count as idle.
func (t *transport) close() {
	t.base.CloseIdleConnections()
	time.AfterFunc(closeAgain, t.base.CloseIdleConnections)
}

// counted is in the context of requests whose sender looks by itself what the answer costs.
type counted struct{}

// body is an answer that tells when it was closed, and ends where it is too long or would
// cost too much to decode.
type body struct {
	io.ReadCloser
	ended   func()
	left    int64
	most    int // what it may cost, 0 if that is not looked at
	seen    scan
	bounded bool
}

// Read reads what is within the bound.
func (b *body) Read(p []byte) (int, error) {
	if !b.bounded {
		return b.ReadCloser.Read(p)
	}
	if b.left <= 0 {
		return 0, ErrTooLarge
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	if b.most > 0 {
		if b.seen.add(p[:n]); b.seen.sum > b.most {
			return 0, ErrTooLarge
		}
	}
	return n, err
}

// Close ends the request.
func (b *body) Close() error {
	defer b.ended()
	return b.ReadCloser.Close()
}
