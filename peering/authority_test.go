package peering

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  any
	pem  []byte
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// bundle is so many authorities in PEM.
func bundle(t testing.TB, n int) string {
	t.Helper()
	var all strings.Builder
	for range n {
		all.Write(newAuthority(t).pem)
	}
	return all.String()
}

// clusterAuthority is the one that the test's API server believes.
func clusterAuthority(t testing.TB, server *kubetest.APIServer) *authority {
	t.Helper()
	folder := filepath.Join(filepath.Dir(server.Kubeconfig), "pki")
	pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "ca.crt"), filepath.Join(folder, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert: cert, key: pair.PrivateKey, pem: text}
}

// sign makes a certificate; change may bend its template.
func (a *authority) sign(t testing.TB, public any, change func(*x509.Certificate)) []byte {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-5 * time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	change(template)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue answers a request as a provider does.
func (a *authority) issue(t testing.TB, request string, life time.Duration) []byte {
	t.Helper()
	block, _ := pem.Decode([]byte(request))
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return a.sign(t, csr.PublicKey, func(c *x509.Certificate) {
		c.RawSubject = csr.RawSubject
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Minute), time.Now().Add(life)
	})
}
