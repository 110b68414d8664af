package reader

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/pelago-dev/pelago/api/wire"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		address, target string
		local           bool
		want            string // of the error
	}{
		{"unix:///run/reader.sock", "unix:///run/reader.sock", true, ""},
		{"127.0.0.1:7000", "dns:///127.0.0.1:7000", true, ""},
		{"[::1]:7000", "dns:///[::1]:7000", true, ""},
		{"quota.example:7000", "dns:///quota.example:7000", false, ""},
		{"localhost:7000", "dns:///localhost:7000", false, ""}, // a name means what somebody says it means
		{"unix://reader.sock", "", false, "absolute"},
		{"unix:reader.sock", "", false, "port"},
		{"", "", false, "neither"},
		{":7000", "", false, "neither"},
		{"quota.example", "", false, "neither"},
		{"xds:///quota:7000", "", false, "neither"},
		{"https://quota:7000", "", false, "neither"},
		{"quota:0", "", false, "port"},
		{"quota:http", "", false, "port"},
	} {
		got, err := parse(c.address)
		switch {
		case c.want == "" && (err != nil || got != place{c.target, c.local}):
			t.Errorf("%q: %+v, %v", c.address, got, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: %v, want %q", c.address, err, c.want)
		}
	}
}

// server is a resource reader that the tests steer.
type server struct {
	wire.UnimplementedResourceReaderServer
	hang    atomic.Bool
	asked   atomic.Int64
	bearer  atomic.Value
	removed chan string
	notices chan string
}

func newServer() *server { return &server{removed: make(chan string, 10), notices: make(chan string)} }

func (s *server) ReadResources(ctx context.Context, _ *wire.ReadResourcesRequest) (*wire.ReadResourcesResponse, error) {
	s.asked.Add(1)
	if m, ok := metadata.FromIncomingContext(ctx); ok {
		s.bearer.Store(strings.Join(m.Get("authorization"), ","))
	}
	if s.hang.Load() {
		<-ctx.Done()
	}
	return &wire.ReadResourcesResponse{Resources: map[string]string{"cpu": "1"}}, nil
}

func (s *server) RemoveCluster(_ context.Context, r *wire.RemoveClusterRequest) (*wire.RemoveClusterResponse, error) {
	s.removed <- r.GetClusterId()
	return &wire.RemoveClusterResponse{}, nil
}

func (s *server) Subscribe(_ *wire.SubscribeRequest, stream wire.ResourceReader_SubscribeServer) error {
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case id := <-s.notices:
			if err := stream.Send(&wire.SubscribeResponse{ClusterId: id}); err != nil {
				return err
			}
		}
	}
}

// serve listens, until stop or the end of the test.
func (s *server) serve(t *testing.T, network, at string, options ...grpc.ServerOption) (address string, stop func()) {
	t.Helper()
	listener, err := net.Listen(network, at)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(options...)
	wire.RegisterResourceReaderServer(g, s)
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	return listener.Addr().String(), g.Stop
}

func newClient(t *testing.T, o Options) *Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// read asks with the deadline that callers have.
func read(c *Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), wire.AnswerLimit)
	defer cancel()
	_, err := c.ReadResources(ctx, &wire.ReadResourcesRequest{})
	return err
}

// patiently asks again, five times at most, where an answer is late: of a machine that is busy with other
// tests that says nothing.
func patiently(ask func() error) (err error) {
	for range 5 {
		if err = ask(); !errors.Is(err, wire.ErrLate) {
			break
		}
	}
	return err
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline.C:
			t.Fatalf("not so within a minute: %s", what)
		case <-tick.C:
		}
	}
}

// A program that is absent, comes, crashes, comes back, hangs and wakes up.
func TestLifeOfAProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	c := newClient(t, Options{Address: "unix://" + path})
	says := func(when, want string) {
		t.Helper()
		eventually(t, when+": "+want, func() bool {
			err := read(c)
			return err != nil && err.Error() == want
		})
	}
	says("absent", "it cannot be reached")
	s := newServer()
	_, stop := s.serve(t, "unix", path)
	eventually(t, "it has come", func() bool { return read(c) == nil })
	stop()
	says("crashed", "it cannot be reached")
	_, _ = s.serve(t, "unix", path)
	eventually(t, "it is back", func() bool { return read(c) == nil })
	s.hang.Store(true)
	before := c.current()
	says("hanging", "it does not answer in time")
	eventually(t, "the connection that does not answer is in use no more", func() bool { return read(c) != nil && c.current() != before })
	s.hang.Store(false)
	eventually(t, "it is awake", func() bool { return read(c) == nil })
}

// Changes come in by the subscription, also after a crash; removals go out.
func TestSubscription(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := newServer()
	_, stop := s.serve(t, "unix", path)
	c := newClient(t, Options{Address: "unix://" + path})
	heard := make(chan string, 10)
	c.Notify(func(id string) { heard <- id })
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	hears := func(said, want string) {
		t.Helper()
		deadline := time.NewTimer(time.Minute)
		defer deadline.Stop()
		select {
		case s.notices <- said:
		case <-deadline.C:
			t.Fatalf("nobody subscribes for %q", said)
		}
		select {
		case got := <-heard:
			if got != want {
				t.Errorf("said %.80q, heard %q, want %q", said, got, want)
			}
		case <-deadline.C:
			t.Fatalf("nobody heard %q", said)
		}
	}
	hears("rome", "rome")
	hears("", "")
	hears(strings.Repeat("x", 1000), "")
	c.Remove("rome")
	if got := <-s.removed; got != "rome" {
		t.Errorf("removed %q", got)
	}
	stop()
	for range 2 * maxRemovals {
		c.Remove("nobody hears") // never waits
	}
	_, _ = s.serve(t, "unix", path)
	if got := <-heard; got != "" {
		t.Errorf("after a subscription that was lost: heard %q, want everyone", got)
	}
	hears("milan", "milan")
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// authority signs certificates for the tests.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.key, a.cert = a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return a
}

func (a *authority) sign(template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.NotAfter = big.NewInt(1), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return key, cert
}

func encoded(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// folder writes what a Secret would hold.
func (a *authority) folder(dir string) {
	a.t.Helper()
	key, cert := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "manager"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		authorityFile: encoded("CERTIFICATE", a.cert.Raw), certificateFile: encoded("CERTIFICATE", cert.Raw), keyFile: encoded("PRIVATE KEY", der),
		tokenFile: []byte("secret\n"),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// option makes a server that only talks to those this authority knows.
func (a *authority) option() grpc.ServerOption {
	key, cert := a.sign(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS13,
	}))
}

// TLS both ways and a token, with a Secret that changes while the program runs.
func TestTrust(t *testing.T) {
	first, second, dir := newAuthority(t), newAuthority(t), t.TempDir()
	s := newServer()
	address, stop := s.serve(t, "tcp", "127.0.0.1:0", first.option())
	first.folder(dir)
	c := newClient(t, Options{Address: address, Folder: dir})
	if err := patiently(func() error { return read(c) }); err != nil || s.bearer.Load() != "Bearer secret" {
		t.Fatalf("%v, token %q", err, s.bearer.Load())
	}
	if err := os.WriteFile(filepath.Join(dir, tokenFile), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := patiently(func() error { return read(c) }); err != nil || s.bearer.Load() != "Bearer other" {
		t.Errorf("another token: %v, token %q", err, s.bearer.Load())
	}
	stop()
	asked := s.asked.Load()
	_, _ = s.serve(t, "tcp", address, second.option())
	for range 5 {
		if read(c) == nil {
			t.Fatal("a program of another authority was trusted")
		}
	}
	if s.asked.Load() != asked {
		t.Error("a program of another authority was asked")
	}
	second.folder(dir)
	eventually(t, "the new Secret is used", func() bool { return read(c) == nil })
}

// What is wrong with an address is said at the start, what is wrong with files by each
// call: a Secret that rots must not keep the manager from starting.
func TestMistakes(t *testing.T) {
	for reason, o := range map[string]Options{"neither unix": {}, "needs TLS": {Address: "quota.example:7000"}} {
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%+v: %v, want %q", o, err, reason)
		}
	}
	a := newAuthority(t)
	address, _ := newServer().serve(t, "tcp", "127.0.0.1:0", a.option())
	for _, c := range []struct {
		reason string
		change func(dir string) error
	}{
		{"an authority that is none", func(dir string) error { return os.WriteFile(filepath.Join(dir, authorityFile), []byte("x"), 0o600) }},
		{"a certificate without its key", func(dir string) error { return os.Remove(filepath.Join(dir, keyFile)) }},
		{"no certificate for one who wants it", func(dir string) error { return os.Remove(filepath.Join(dir, certificateFile)) }},
	} {
		dir := t.TempDir()
		a.folder(dir)
		if err := c.change(dir); err != nil {
			t.Fatal(err)
		}
		client := newClient(t, Options{Address: address, Folder: dir})
		err := patiently(func() error { return read(client) })
		// A server that misses a certificate says so and hangs up, and of TLS 1.3 the client
		// may see only that.
		if err == nil || !strings.Contains(err.Error(), "does not trust") && !strings.Contains(err.Error(), "cannot be reached") {
			t.Errorf("%s: %v", c.reason, err)
		}
	}
	if _, err := New(Options{Address: "quota.example:7000", Folder: t.TempDir()}); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
}
