package fleet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Bounds of streams.
const (
	// streamIdle is how long a stream may be silent in both directions, as at a kubelet.
	streamIdle = 4 * time.Hour
	// streamHeader is how long a provider may take to begin its answer: it asks its own
	// kubelet meanwhile.
	streamHeader = 30 * time.Second
)

// ErrUnreachable says that a peer does not answer now.
var ErrUnreachable = errors.New("the peer does not answer")

// ErrRemoved says that a connection has been removed.
var ErrRemoved = errors.New("the connection to the peer has been removed")

// Stream returns the address of the provider's API server and what carries long
// answers and upgraded connections there: with the credential of this moment, over a
// connection of its own per request and HTTP/1.1, without a deadline for the whole. An
// answer has to begin in time, unless the request asks with follow=true for what is yet
// to come, and ends when nothing passes for hours. Answers have no bound on their
// length, and are as the peer sent them. It fails if the peer is known not to answer.
func (p *Peer) Stream() (base *url.URL, rt http.RoundTripper, err error) {
	p.mu.Lock()
	stopped := p.stopped
	p.mu.Unlock()
	if stopped {
		return nil, nil, ErrRemoved
	}
	if p.State().Reason == v1alpha1.ReasonPeerUnreachable {
		return nil, nil, ErrUnreachable
	}
	s := p.session()
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		return nil, nil, ErrRemoved
	}
	t, err := newTransport(s.conn, s.options.Dial)
	if err != nil {
		return nil, nil, fmt.Errorf("preparing a stream: %w", err)
	}
	address := *s.base
	return &address, newStreamer(t), nil
}

// streamer sends requests whose answers may be long.
type streamer struct {
	prompt, patient *http.Transport
	token           string
}

func newStreamer(t *transport) *streamer {
	patient := t.base
	patient.ForceAttemptHTTP2, patient.HTTP2 = false, nil
	patient.Protocols = new(http.Protocols)
	patient.Protocols.SetHTTP1(true)
	patient.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	patient.TLSClientConfig.NextProtos = []string{"http/1.1"}
	// A connection serves one request: there is nothing to close with the credential.
	patient.DisableKeepAlives = true
	patient.DisableCompression = true
	dial := patient.DialContext
	patient.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return idling{c}, nil
	}
	prompt := patient.Clone()
	prompt.ResponseHeaderTimeout = streamHeader
	return &streamer{prompt: prompt, patient: patient, token: t.token}
}

// RoundTrip sends one request.
func (s *streamer) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.token != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+s.token)
	}
	if r.URL.Query().Get("follow") == "true" {
		return s.patient.RoundTrip(r)
	}
	return s.prompt.RoundTrip(r)
}

// idling is a connection that ends when nothing passes for a long time.
type idling struct{ net.Conn }

// Read gives both directions time again.
func (c idling) Read(p []byte) (int, error) {
	if err := c.Conn.SetDeadline(time.Now().Add(streamIdle)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Write gives both directions time again.
func (c idling) Write(p []byte) (int, error) {
	if err := c.Conn.SetDeadline(time.Now().Add(streamIdle)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}
