package serving

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

func emptySecret(t *testing.T, c client.Client, namespace string) client.ObjectKey {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tls"}}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	return client.ObjectKeyFromObject(secret)
}

// TestAuthority: of several replicas that find the Secret empty one fills it, and all
// serve with the same authority.
func TestAuthority(t *testing.T) {
	t.Parallel()
	server := kubetest.Server(t)
	c := server.Client(t)
	key := emptySecret(t, c, server.Namespace(t))
	replicas := make([]*Authority, 4)
	var group sync.WaitGroup
	for i := range replicas {
		replicas[i] = NewAuthority(AuthorityOptions{Client: c, Secret: key, Subject: "test", Names: []string{"test"}})
		group.Go(func() {
			if err := replicas[i].Load(t.Context()); err != nil {
				t.Errorf("loading: %v", err)
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	for _, r := range replicas {
		if string(r.Bundle()) != string(secret.Data[CertKey]) {
			t.Error("a replica has another authority than the one stored")
		}
	}
	for broken, value := range map[string]string{CertKey: "rubbish", KeyKey: "rubbish"} {
		bad := secret.DeepCopy()
		bad.Data[broken] = []byte(value)
		err := NewAuthority(AuthorityOptions{Secret: key, Voids: ", after all"}).read(bad)
		if err == nil || !strings.Contains(err.Error(), broken) || !strings.HasSuffix(err.Error(), "made, after all") {
			t.Errorf("with %s broken: %v", broken, err)
		}
	}
}

// TestLeaf: the certificate is renewed at two thirds of its life by the time of day, and not before, and when the
// clock is set back to before it is valid.
func TestLeaf(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakeClock(time.Now())
	a := NewAuthority(AuthorityOptions{Clock: now, Subject: "test", Names: []string{"one.svc", "one", "192.0.2.1"}})
	if _, err := a.Certificate(nil); err == nil {
		t.Error("a certificate without an authority")
	}
	certificate, key, err := a.make()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.read(&corev1.Secret{Data: map[string][]byte{CertKey: certificate, KeyKey: key}}); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Bundle())
	first, err := a.Certificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(first.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one.svc", "one", "192.0.2.1"} {
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now.Now()}); err != nil || len(first.Certificate) != 2 {
			t.Errorf("the chain of %d is not good for %s: %v", len(first.Certificate), name, err)
		}
	}
	// A monotonic clock, by which time.Time compares where it can, stands still while a machine sleeps.
	if a.renew != a.renew.Round(0) {
		t.Errorf("it is renewed at %s of a clock that can stand still", a.renew)
	}
	for _, test := range []struct {
		age  time.Duration
		same bool
	}{{19 * 24 * time.Hour, true}, {1 - backdate, true}, {-2 * time.Hour, false}, {19 * 24 * time.Hour, true}, {20*24*time.Hour + time.Second, false}} {
		now.SetTime(leaf.NotBefore.Add(backdate + test.age))
		again, err := a.Certificate(nil)
		if err != nil || (again == first) != test.same {
			t.Errorf("after %s: the same certificate is %t, want %t; %v", test.age, again == first, test.same, err)
			continue
		}
		first = again
		if leaf, err := x509.ParseCertificate(again.Certificate[0]); err != nil {
			t.Error(err)
		} else if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, CurrentTime: now.Now()}); err != nil {
			t.Errorf("after %s: the certificate is not good then: %v", test.age, err)
		}
	}
}

// TestServer: clients that pin the authority are answered, with or without a
// certificate of their own; plain HTTP and old TLS are not; and it ends with its context.
func TestServer(t *testing.T) {
	t.Parallel()
	server := kubetest.Server(t)
	c := server.Client(t)
	a := NewAuthority(AuthorityOptions{Client: c, Secret: emptySecret(t, c, server.Namespace(t)), Subject: "test", Names: []string{"test.svc"}})
	s := &Server{Address: "127.0.0.1:0", Authority: a, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, strings.Repeat("x", 1+len(r.TLS.PeerCertificates)))
	})}
	if s.Ready(nil) == nil || s.NeedLeaderElection() {
		t.Error("ready before it listens, or for the leader only")
	}
	if err := a.Await(t.Context()); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, listener) }()

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Bundle())
	own, err := a.Certificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(config *tls.Config) (string, error) {
		config.ServerName, config.RootCAs = "test.svc", roots
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get("https://" + listener.Addr().String())
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	if got, err := ask(&tls.Config{}); err != nil || got != "x" {
		t.Errorf("without a certificate: %q, %v", got, err)
	}
	if got, err := ask(&tls.Config{Certificates: []tls.Certificate{*own}}); err != nil || got != "xxx" {
		t.Errorf("with a certificate: %q, %v; want the handler to see it", got, err)
	}
	if _, err := ask(&tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		t.Error("answered over TLS 1.1")
	}
	if err := s.Ready(nil); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
