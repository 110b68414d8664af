package auth

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/time/rate"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// door is the endpoint of a world on a real socket, and a client that pins its
// authority as an invitation does.
type door struct {
	*world
	address string
	client  *http.Client
	config  *tls.Config
	logs    *bytes.Buffer
	mu      *sync.Mutex
}

func newDoor(t *testing.T) *door {
	w := newWorld(t)
	d := &door{world: w, logs: &bytes.Buffer{}, mu: &sync.Mutex{}}
	logger := funcr.New(func(prefix, args string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		fmt.Fprintln(d.logs, prefix, args)
	}, funcr.Options{Verbosity: 1}) // what the program has; above it client-go writes whole bodies
	a := newAuthority(w.client, emptySecret(t, w.client, w.server.Namespace(t)), clock.RealClock{}, rand.Reader)
	if err := a.Load(w.ctx); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{authority: a, handler: &endpoint{shake: w.shake, clock: clock.RealClock{}, metrics: w.shake.metrics}}
	ctx, stop := context.WithCancel(log.IntoContext(w.ctx, logger))
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Bundle())
	d.address = listener.Addr().String()
	d.config = &tls.Config{RootCAs: roots, ServerName: v1alpha1.AuthService}
	d.client = &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: d.config}}
	return d
}

func (d *door) log() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.logs.String()
}

func (d *door) do(method, path, kind string, body []byte) (int, http.Header, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.ctx, method, "https://"+d.address+path, bytes.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	resp, err := d.client.Do(req)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(text)
}

func (d *door) post(token string, c *consumer) (int, http.Header, string) {
	d.t.Helper()
	body, err := json.Marshal(map[string]any{"token": token, "spec": c.spec, "new": "field"})
	if err != nil {
		d.t.Fatal(err)
	}
	return d.do(http.MethodPost, v1alpha1.AuthPath, "application/json; charset=utf-8", body)
}

func TestEndpoint(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	token, invitation := d.invite()
	rome := newConsumer(t, d.name("rome"))
	status, _, body := d.post(token, rome)
	var got reply
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != 200 || got.Status.Certificate == "" || strings.Contains(body, `"token"`) {
		t.Fatalf("%d %s, %v", status, body, err)
	}
	used, _ := d.invite(func(i *v1alpha1.Invitation) { i.Spec.Expires.Time = time.Now().Add(-time.Hour) })
	answers := map[string]bool{}
	for _, bad := range []string{newToken(), "", used, token} {
		status, header, body := d.post(bad, newConsumer(t, d.name("pisa")))
		answers[fmt.Sprint(status, header.Get("Content-Type"), header.Get("Retry-After"), body)] = true
	}
	if len(answers) != 1 {
		t.Errorf("wrong, expired and used tokens can be told apart: %v", answers)
	}
	for text, secret := range map[string]string{
		"token": token, "hash of the token": invitation.Spec.TokenSHA256, "expired token": used, "request": rome.spec.Request[40:100], "certificate": got.Status.Certificate[40:100],
	} {
		if strings.Contains(d.log(), secret) || strings.Contains(d.log(), strings.ReplaceAll(secret, "\n", `\n`)) {
			t.Errorf("the %s is in the log: %q in %s", text, secret, d.log())
		}
	}
	if !strings.Contains(d.log(), "invitation used") || !strings.Contains(d.log(), "application not granted") {
		t.Errorf("the log does not say what happened: %s", d.log())
	}
	for len(d.events.Events) > 0 {
		if e := <-d.events.Events; strings.Contains(e, token) || strings.Contains(e, "BEGIN") {
			t.Errorf("a secret is in an event: %s", e)
		}
	}
}

func TestEndpointRefusesForm(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	good, err := json.Marshal(application{Token: newToken(), Spec: newConsumer(t, d.name("pisa")).spec})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		method, path, kind string
		body               []byte
		status             int
		says               string
	}{
		"another path":     {http.MethodPost, "/", "application/json", good, 404, ""},
		"path below":       {http.MethodPost, v1alpha1.AuthPath + "/x", "application/json", good, 404, ""},
		"metrics":          {http.MethodGet, "/metrics", "", nil, 404, ""},
		"another method":   {http.MethodGet, v1alpha1.AuthPath, "", nil, 405, ""},
		"a form":           {http.MethodPost, v1alpha1.AuthPath, "application/x-www-form-urlencoded", good, 415, ""},
		"no JSON":          {http.MethodPost, v1alpha1.AuthPath, "application/json", []byte("token=x"), 400, "body"},
		"two bodies":       {http.MethodPost, v1alpha1.AuthPath, "application/json", append(bytes.Clone(good), good...), 400, "body"},
		"nothing":          {http.MethodPost, v1alpha1.AuthPath, "application/json", nil, 400, "body"},
		"not an object":    {http.MethodPost, v1alpha1.AuthPath, "application/json", []byte(`[]`), 400, "body"},
		"empty object":     {http.MethodPost, v1alpha1.AuthPath, "application/json", []byte(`{}`), 400, "spec.cluster.id"},
		"more than 64 KiB": {http.MethodPost, v1alpha1.AuthPath, "application/json", append(bytes.Clone(good), bytes.Repeat([]byte(" "), maxBody)...), 400, "65536"},
		"64 KiB":           {http.MethodPost, v1alpha1.AuthPath, "application/json", append(bytes.Clone(good), bytes.Repeat([]byte(" "), maxBody-len(good))...), 403, "invitation"},
	} {
		status, _, body := d.do(test.method, test.path, test.kind, test.body)
		if status != test.status || !strings.Contains(body, test.says) || test.says == "" && body != "" {
			t.Errorf("%s: got %d %q, want %d with %q", name, status, body, test.status, test.says)
		}
	}
}

// TestBruteForce: guesses are limited, and an invited cluster gets in all the while.
func TestBruteForce(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	d.shake.failures = rate.NewLimiter(rate.Every(time.Hour), 3)
	token, invitation := d.invite()
	eventually(t, "the invitation is in the cache", func() bool {
		found, err := d.shake.invitations.find(d.ctx, invitation.Spec.TokenSHA256)
		return err == nil && len(found) == 1
	})
	guesser, rome := newConsumer(t, d.name("pisa")), newConsumer(t, d.name("rome"))
	count := map[int]int{}
	for range 10 {
		status, header, _ := d.post(newToken(), guesser)
		count[status]++
		if status == http.StatusTooManyRequests && header.Get("Retry-After") == "" {
			t.Error("nothing says when to try again")
		}
	}
	if count[403] != 3 || count[429] != 7 {
		t.Errorf("answers by status: %v, want three of 403 and seven of 429", count)
	}
	if status, _, _ := d.do(http.MethodPost, v1alpha1.AuthPath, "application/json", nil); status != http.StatusTooManyRequests {
		t.Errorf("rubbish is answered with %d, want 429", status)
	}
	for range 3 {
		if status, _, body := d.post(token, rome); status != 200 {
			t.Errorf("an invited cluster is kept out: %d %s", status, body)
		}
	}
}

// TestSlowClient: a connection that sends nothing is closed, before and after TLS.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	plainText, err := net.Dial("tcp", d.address)
	if err != nil {
		t.Fatal(err)
	}
	encrypted, err := tls.Dial("tcp", d.address, d.config)
	if err != nil {
		t.Fatal(err)
	}
	body, err := tls.Dial("tcp", d.address, d.config)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(body, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", v1alpha1.AuthPath)
	for name, c := range map[string]net.Conn{"before TLS": plainText, "before the header": encrypted, "in the body": body} {
		if err := c.SetReadDeadline(time.Now().Add(readTimeout + patience)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: not closed", name)
		}
		c.Close()
	}
}

func TestEndpointTLS(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	for name, test := range map[string]struct {
		change func(*tls.Config)
		good   bool
	}{
		"pinned":           {func(*tls.Config) {}, true},
		"TLS 1.2":          {func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }, false},
		"another name":     {func(c *tls.Config) { c.ServerName = "milan" }, false},
		"another pin":      {func(c *tls.Config) { c.RootCAs = x509.NewCertPool() }, false},
		"HTTP/2 asked for": {func(c *tls.Config) { c.NextProtos = []string{"h2", "http/1.1"} }, true},
	} {
		config := d.config.Clone()
		test.change(config)
		c, err := tls.Dial("tcp", d.address, config)
		if (err == nil) != test.good {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			if state := c.ConnectionState(); state.NegotiatedProtocol == "h2" || len(state.PeerCertificates) != 2 {
				t.Errorf("%s: protocol %q, chain of %d", name, state.NegotiatedProtocol, len(state.PeerCertificates))
			}
			c.Close()
		}
	}
}

// TestCrowd: connections of strangers that say nothing do not keep an invited cluster
// out, whether they come from one address or from many.
func TestCrowd(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	begin := time.Now()
	for n := range maxConnections {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+n/maxPerAddress))}
		c, err := (&net.Dialer{LocalAddr: from, Timeout: patience}).Dial("tcp", d.address)
		if err != nil {
			t.Fatalf("calling from %s: %v", from, err)
		}
		defer c.Close()
	}
	token, _ := d.invite()
	if status, _, body := d.post(token, newConsumer(t, d.name("rome"))); status != 200 {
		t.Errorf("%d %s after %s", status, body, time.Since(begin))
	}
}
