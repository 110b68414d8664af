package internet

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// testSocket says things to the socket that Client never says.
func testSocket(t *testing.T, w *world) {
	info, err := os.Stat(w.client.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode != 0o600 {
		t.Errorf("the mode of the socket is %o", mode)
	}
	http := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", w.client.Socket)
	}}}
	for _, c := range []struct {
		reason, method, path, body string
		want                       int
	}{
		{"no JSON", "PUT", "/config", "links", 400},
		{"a field that does not exist", "PUT", "/config", `{"link":[]}`, 400},
		{"an address that is none", "PUT", "/config", `{"ports":[{"cluster":"a","interface":"b","prefixes":["c"]}]}`, 400},
		{"too much", "PUT", "/config", `{"host":{"interface":"` + strings.Repeat("x", maxConfig) + `"}}`, 400},
		{"another method", "DELETE", "/config", "", 405},
		{"another path", "GET", "/", "", 404},
	} {
		request, err := newRequest(t, c.method, c.path, c.body)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.Do(request)
		if err != nil {
			t.Errorf("%s: %v", c.reason, err)
			continue
		}
		_ = answer.Body.Close()
		if answer.StatusCode != c.want {
			t.Errorf("%s: status %d, want %d", c.reason, answer.StatusCode, c.want)
		}
	}
}

func newRequest(t *testing.T, method, path, body string) (*http.Request, error) {
	return http.NewRequestWithContext(t.Context(), method, "http://internet"+path, strings.NewReader(body))
}

func TestListen(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(t.Context(), socket); err == nil || !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("a socket in use: %v", err)
	}
	left.SetUnlinkOnClose(false)
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	l, err := listen(t.Context(), socket)
	if err != nil {
		t.Fatalf("a socket left over: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}
