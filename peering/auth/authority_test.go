package auth

import (
	"crypto/rand"
	"crypto/x509"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/internal/serving"
)

func emptySecret(t *testing.T, c client.Client, namespace string) client.ObjectKey {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.AuthTLSName}}
	if err := c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	return client.ObjectKeyFromObject(secret)
}

// TestAuthority: invitations pin what is stored, and the certificate served is for the
// name that consumers expect; a broken Secret says what a new one would end.
func TestAuthority(t *testing.T) {
	t.Parallel()
	server := kubetest.Server(t)
	c := server.Client(t)
	key := emptySecret(t, c, server.Namespace(t))
	a := newAuthority(c, key, clock.RealClock{}, rand.Reader)
	if err := a.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	served, err := a.Certificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(served.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(a.Bundle())
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: "pelago-auth"}); err != nil {
		t.Errorf("the certificate is not good: %v", err)
	}
	secret := &corev1.Secret{}
	if err := c.Get(t.Context(), key, secret); err != nil {
		t.Fatal(err)
	}
	pin, err := v1alpha1.CertificateSHA256(secret.Data[serving.CertKey])
	if err != nil || pin != hashOf(string(served.Certificate[1])) {
		t.Errorf("the fingerprint is %q, %v", pin, err)
	}
	secret.Data[serving.KeyKey] = []byte("rubbish")
	if err := c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	want := "reading secret " + key.String() + ": ca.key is not in PEM; empty it to have a new one made, which voids all open invitations"
	if err := newAuthority(c, key, clock.RealClock{}, rand.Reader).Load(t.Context()); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
