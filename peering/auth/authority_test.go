package auth

import (
	"crypto/rand"
	"crypto/x509"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

func emptySecret(t *testing.T, c client.Client, namespace string) client.ObjectKey {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.AuthTLSName}}
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
	now := clocktesting.NewFakePassiveClock(time.Now())
	replicas := make([]*authority, 4)
	var group sync.WaitGroup
	for i := range replicas {
		replicas[i] = &authority{client: c, key: key, clock: now, rand: rand.Reader}
		group.Go(func() {
			if err := replicas[i].load(t.Context()); err != nil {
				t.Errorf("loading: %v", err)
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
	for _, r := range replicas {
		if !r.cert.Equal(replicas[0].cert) {
			t.Error("two replicas have two authorities")
		}
	}
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	pin, err := v1alpha1.CertificateSHA256(secret.Data[caCertKey])
	if err != nil || pin != hashOf(string(replicas[0].cert.Raw)) {
		t.Errorf("the fingerprint is %q, %v", pin, err)
	}
	secret.Data[caKeyKey] = []byte("rubbish")
	if err := (&authority{key: key, clock: now}).read(secret); err == nil {
		t.Error("accepted a key that is none")
	}
}

// TestLeaf: the certificate is renewed at two thirds of its life, and not before.
func TestLeaf(t *testing.T) {
	t.Parallel()
	now := clocktesting.NewFakePassiveClock(time.Now())
	a := &authority{clock: now, rand: rand.Reader}
	certificate, key, err := a.make()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.read(&corev1.Secret{Data: map[string][]byte{caCertKey: certificate, caKeyKey: key}}); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	first, err := a.serve(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(first.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "pelago-auth", CurrentTime: now.Now()}); err != nil || len(first.Certificate) != 2 {
		t.Errorf("the chain of %d is not good: %v", len(first.Certificate), err)
	}
	for _, test := range []struct {
		age  time.Duration
		same bool
	}{{19 * 24 * time.Hour, true}, {20*24*time.Hour + time.Second, false}} {
		now.SetTime(leaf.NotBefore.Add(backdate + test.age))
		again, err := a.serve(nil)
		if err != nil || (again == first) != test.same {
			t.Errorf("after %s: the same certificate is %t, want %t; %v", test.age, again == first, test.same, err)
		}
	}
}
