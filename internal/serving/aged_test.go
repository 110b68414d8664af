package serving

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/internal/lobby"
)

// TestAged counts the connections that a client needs for three requests of a server with a lobby, as ours have one.
func TestAged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		age     time.Duration
		ending  bool
		upgrade string
		want    int32
	}{
		{"young ones are kept", time.Hour, false, "", 1},
		{"old ones end with an answer", 0, false, "", 3},
		{"and young ones of a server that ends", time.Hour, true, "", 3},
		{"what asks for another protocol is left alone", 0, true, "websocket", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			connections := func() int32 {
				var begun atomic.Int32
				server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "answer") }))
				aged(server.Config, c.age, func() bool { return c.ending })
				server.Config.ConnState = func(_ net.Conn, s http.ConnState) {
					if s == http.StateNew {
						begun.Add(1)
					}
				}
				server.Listener = lobby.New(maxConnections, maxPerAddress).Receive(server.Config, server.Listener)
				server.StartTLS()
				defer server.Close()
				for range 3 {
					request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, nil)
					if err != nil {
						t.Fatal(err)
					}
					if c.upgrade != "" {
						request.Header.Set("Upgrade", c.upgrade)
					}
					response, err := server.Client().Do(request)
					if err != nil {
						t.Fatal(err)
					}
					text, err := io.ReadAll(response.Body)
					_ = response.Body.Close()
					if err != nil || string(text) != "answer" {
						t.Fatalf("answered %q, %v", text, err)
					}
				}
				return begun.Load()
			}
			got := connections()
			for try := 1; try < 3 && got > c.want; try++ { // a client on a busy machine may not keep one
				got = connections()
			}
			if got != c.want {
				t.Errorf("%d connections, want %d", got, c.want)
			}
		})
	}
}

// TestAgedMeanwhile: whether an answer is the last one is decided when it begins, however that is, and what a
// handler may do with a connection it may do still.
func TestAgedMeanwhile(t *testing.T) {
	t.Parallel()
	var ending atomic.Bool
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := http.NewResponseController(w)
		w.WriteHeader(http.StatusEarlyHints)
		ending.Store(true)
		switch r.URL.Path {
		case "/code":
			w.WriteHeader(http.StatusTeapot)
		case "/text":
			_, _ = io.WriteString(w, "text")
		case "/flushed":
			if err := to.Flush(); err != nil {
				t.Error(err)
			}
			<-r.Context().Done()
		case "/taken":
			c, _, err := to.Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})}
	aged(web, time.Hour, ending.Load)
	server := httptest.NewServer(web.Handler)
	defer server.Close()
	for path, last := range map[string]bool{"/code": true, "/text": true, "/flushed": true, "/nothing": true, "/taken": false} {
		ending.Store(false)
		response, err := server.Client().Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.Close != last {
			t.Errorf("%s: the last one is %t, want %t", path, response.Close, last)
		}
	}
}
