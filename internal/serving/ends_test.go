package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// served is a server that is asked by one client.
type served struct {
	*Server
	asked, goOn chan struct{} // of /slow
	stop        func()
	ended       chan error
	client      *http.Client
	base        string
}

func serve(t *testing.T, a *Authority) *served {
	t.Helper()
	s := &served{asked: make(chan struct{}), goOn: make(chan struct{}), ended: make(chan error, 1)}
	s.Server = &Server{Address: "127.0.0.1:0", Socket: &Socket{}, Authority: a, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(s.asked)
			<-s.goOn
		}
		if err := r.Context().Err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, r.URL.Path)
	})}
	listener, err := s.Socket.Listen(t.Context(), s.Address)
	if err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(t.Context())
	go func() { s.ended <- s.Serve(ctx, listener) }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Bundle())
	s.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{ServerName: "test.svc", RootCAs: roots}}}
	t.Cleanup(s.client.CloseIdleConnections)
	s.base = "https://" + listener.Addr().String()
	return s
}

// said is an answer, and whether it is the last one of its connection.
type said struct {
	text string
	last bool
}

func (s *served) ask(path string) said {
	response, err := s.client.Get(s.base + path)
	if err != nil {
		return said{err.Error(), false}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return said{err.Error(), false}
	}
	return said{string(body), response.Close}
}

// close waits for the end of a server that was told to end.
func (s *served) close(t *testing.T) {
	t.Helper()
	s.Socket.Await()
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	s.Socket.Close()
	if got := s.ask("/after"); got.text == "/after" {
		t.Error("it answers after its end")
	}
}

// TestServerEnds holds that an old connection ends with its next answer, and that a server that was told to end
// answers what it is being asked and what it is asked in that moment, each time as the last answer of the
// connection, and that its socket waits for it.
func TestServerEnds(t *testing.T) {
	t.Parallel()
	server := kubetest.Server(t)
	c := server.Client(t)
	a := NewAuthority(AuthorityOptions{Client: c, Secret: emptySecret(t, c, server.Namespace(t)), Subject: "test", Names: []string{"test.svc"}})
	if err := a.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, begun := serve(t, a), time.Now()
	if got := s.ask("/before"); got.text != "/before" || got.last && time.Since(begun) < connectionAge {
		t.Errorf("before it ends: %+v", got)
	}
	tick := time.NewTicker(connectionAge / 10)
	defer tick.Stop()
	for last := false; !last; <-tick.C {
		got := s.ask("/aged")
		if last = got.last; got.text != "/aged" || time.Since(begun) > 10*connectionAge {
			t.Fatalf("on a connection of %s: %+v", time.Since(begun), got)
		}
	}
	s.stop()
	s.close(t)
	for range 5 {
		if endsInTime(t, serve(t, a)) {
			return
		}
	}
	t.Error("no server that ended was asked in time, or answered")
}

// endsInTime tells a server to end while it is asked, and reports whether this was in time: of a machine that was
// busy elsewhere for longer than the server goes on, the answers say nothing.
func endsInTime(t *testing.T, s *served) bool {
	t.Helper()
	slow := make(chan said, 1)
	go func() { slow <- s.ask("/slow") }()
	select {
	case <-s.asked:
	case got := <-slow:
		t.Fatalf("before it ends: %+v", got)
	}
	told := time.Now()
	s.stop()
	meanwhile := s.ask("/meanwhile")
	inTime, ended := time.Since(told) < drainFor, len(s.ended) > 0
	close(s.goOn)
	got := <-slow
	inTime = inTime && time.Since(told) < drainFor+answerFor
	s.close(t)
	if !inTime {
		t.Logf("while it ends: %+v; what was being asked: %+v", meanwhile, got)
		return false
	}
	if ended || meanwhile != (said{"/meanwhile", true}) {
		t.Errorf("while it ends: %+v; it has ended while it is being asked: %t", meanwhile, ended)
	}
	if got != (said{"/slow", true}) {
		t.Errorf("what was being asked: %+v", got)
	}
	return true
}
