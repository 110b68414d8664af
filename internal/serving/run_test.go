package serving

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// TestRun holds that what is being answered when the context ends is answered, that
// nothing is after that, and that a listener that fails is told of.
func TestRun(t *testing.T) {
	t.Parallel()
	answering, goOn := make(chan struct{}), make(chan struct{})
	like := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(answering)
		<-goOn
		_, _ = io.WriteString(w, "late")
	}))
	defer like.Close()
	web := &http.Server{Handler: like.Config.Handler, TLSConfig: &tls.Config{Certificates: like.TLS.Certificates}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var up atomic.Bool
	closing := make(chan struct{})
	web.RegisterOnShutdown(func() { close(closing) })
	ctx, stop := context.WithCancel(t.Context())
	ended, got := make(chan error, 1), make(chan string, 1)
	go func() { ended <- Run(ctx, web, listener, &up) }()
	go func() { got <- body(like.Client(), "https://"+listener.Addr().String()) }()
	select {
	case <-answering:
	case text := <-got:
		t.Fatal(text)
	}
	if !up.Load() {
		t.Error("not up while it answers")
	}
	stop()
	<-closing
	close(goOn)
	if text := <-got; text != "late" {
		t.Errorf("the last answer is %q", text)
	}
	if err := <-ended; err != nil || up.Load() {
		t.Errorf("ended with %v, up %v", err, up.Load())
	}
	if err := Run(t.Context(), &http.Server{TLSConfig: web.TLSConfig}, listener, &up); err == nil || up.Load() {
		t.Errorf("a closed listener: %v, up %v", err, up.Load())
	}
}

// body is what a server answers, or why it does not.
func body(c *http.Client, url string) string {
	response, err := c.Get(url)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
