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

// TestServerEnds holds that an old connection ends with its next answer, and that a server that was told to end
// answers what it is being asked and what it is asked in that moment, each time as the last answer of the
// connection, and that its socket waits for it.
func TestServerEnds(t *testing.T) {
	t.Parallel()
	server := kubetest.Server(t)
	c := server.Client(t)
	a := NewAuthority(AuthorityOptions{Client: c, Secret: emptySecret(t, c, server.Namespace(t)), Subject: "test", Names: []string{"test.svc"}})
	asked, goOn := make(chan struct{}), make(chan struct{})
	s := &Server{Address: "127.0.0.1:0", Socket: &Socket{}, Authority: a, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(asked)
			<-goOn
		}
		if err := r.Context().Err(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, r.URL.Path)
	})}
	if err := a.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	listener, err := s.Socket.Listen(t.Context(), s.Address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Bundle())
	transport := &http.Transport{TLSClientConfig: &tls.Config{ServerName: "test.svc", RootCAs: roots}}
	defer transport.CloseIdleConnections()
	ask := func(path string) (text string, last bool) {
		response, err := (&http.Client{Transport: transport}).Get("https://" + listener.Addr().String() + path)
		if err != nil {
			return err.Error(), false
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err.Error(), false
		}
		return string(body), response.Close
	}
	if got, last := ask("/before"); got != "/before" || last {
		t.Errorf("before it ends: %q, the last one: %t", got, last)
	}
	tick := time.NewTicker(connectionAge / 10)
	defer tick.Stop()
	for begun, last := time.Now(), false; !last; <-tick.C {
		var got string
		if got, last = ask("/aged"); got != "/aged" || time.Since(begun) > 10*connectionAge {
			t.Fatalf("on a connection of %s: %q, the last one: %t", time.Since(begun), got, last)
		}
	}
	type answer struct {
		text string
		last bool
	}
	slow := make(chan answer, 1)
	go func() {
		text, last := ask("/slow")
		slow <- answer{text, last}
	}()
	<-asked
	stop()
	if got, last := ask("/meanwhile"); got != "/meanwhile" || !last {
		t.Errorf("while it ends: %q, the last one: %t", got, last)
	}
	select {
	case err := <-ended:
		t.Fatalf("it has ended while it is being asked: %v", err)
	default:
	}
	close(goOn)
	if got := <-slow; got.text != "/slow" || !got.last {
		t.Errorf("what was being asked: %+v", got)
	}
	s.Socket.Await()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.Socket.Close()
	if got, _ := ask("/after"); got == "/after" {
		t.Error("it answers after its end")
	}
}
