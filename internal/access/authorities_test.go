package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/utils/clock"
)

// authority signs certificates of clients.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "clients"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{key: key, cert: cert}
}

func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

func (a *authority) issue(t testing.TB, template *x509.Certificate) []*x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return []*x509.Certificate{cert}
}

func (a *authority) user(t testing.TB, name string, groups ...string) []*x509.Certificate {
	return a.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: groups}, ExtKeyUsage: clientAuth})
}

var clientAuth = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}

func TestClientCertificates(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	a := &Authorities{}
	good := ca.user(t, "admin", "ops")
	if _, ok := a.client(good, time.Now()); ok {
		t.Error("somebody is trusted before anything is known")
	}
	if err := a.Set(map[string]string{keyClientCA: ca.pem()}); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		reason string
		chain  []*x509.Certificate
		want   bool
	}{
		{"of the authority", good, true},
		{"none", nil, false},
		{"of another authority", other.user(t, "admin"), false},
		{"without a name", ca.user(t, "", "ops"), false},
		{"for servers", ca.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "admin"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}), false},
		{"expired", ca.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "admin"}, ExtKeyUsage: clientAuth, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(-time.Hour)}), false},
		{"too long a chain", append(good, make([]*x509.Certificate, maxIntermediates)...), false},
	}
	for _, c := range cases {
		user, ok := a.client(c.chain, time.Now())
		if ok != c.want {
			t.Errorf("%s: got %t", c.reason, ok)
		}
		if ok && (user.Username != "admin" || !cmp.Equal(user.Groups, []string{"ops", groupAll})) {
			t.Errorf("%s: got %v", c.reason, user)
		}
	}
	// Authorities change while the program runs; nonsense leaves them as they are.
	if err := a.Set(map[string]string{keyClientCA: "nonsense"}); err == nil {
		t.Error("nonsense was accepted")
	}
	if _, ok := a.client(good, time.Now()); !ok {
		t.Error("nonsense replaced what was known")
	}
	if err := a.Set(map[string]string{keyClientCA: other.pem()}); err != nil {
		t.Fatal(err)
	}
	if _, ok := a.client(good, time.Now()); ok {
		t.Error("the authority before is still trusted")
	}
}

func TestFrontProxies(t *testing.T) {
	ca, clients := newAuthority(t), newAuthority(t)
	data := map[string]string{
		keyClientCA: clients.pem(), keyProxyCA: ca.pem(), keyProxyNames: `["front"]`, keyUserHeaders: `["X-Remote-User"]`,
		keyUIDHeaders: `["X-Remote-Uid"]`, keyGroupHeaders: `["X-Remote-Group"]`, keyExtraPrefixes: `["X-Remote-Extra-"]`,
	}
	with := func(key, value string) map[string]string {
		changed := map[string]string{}
		for k, v := range data {
			changed[k] = v
		}
		changed[key] = value
		return changed
	}
	full := http.Header{"X-Remote-User": {"rome"}, "X-Remote-Uid": {"1"}, "X-Remote-Group": {"a", "b"}, "X-Remote-Extra-Acme.com%2fpart": {"x"}}
	cases := []struct {
		reason string
		data   map[string]string
		chain  []*x509.Certificate
		header http.Header
		want   string
	}{
		{"as API servers ask", data, ca.user(t, "front"), full, "rome"},
		{"no certificate", data, nil, full, ""},
		{"a certificate of ordinary clients", data, clients.user(t, "front"), full, ""},
		{"another name", data, ca.user(t, "back"), full, ""},
		{"any name", with(keyProxyNames, "[]"), ca.user(t, "back"), full, "rome"},
		{"any name of the clients' authority", with(keyProxyCA, clients.pem()), clients.user(t, "back"), full, ""},
		{"any name where clients have the same authority", map[string]string{keyClientCA: ca.pem(), keyProxyCA: ca.pem(), keyUserHeaders: `["X-Remote-User"]`}, ca.user(t, "back"), full, ""},
		{"on behalf of nobody", data, ca.user(t, "front"), http.Header{}, ""},
		{"too many groups", data, ca.user(t, "front"), http.Header{"X-Remote-User": {"rome"}, "X-Remote-Group": make([]string, maxHeaderValues+1)}, ""},
		{"no front proxies", map[string]string{keyClientCA: clients.pem()}, ca.user(t, "front"), full, ""},
	}
	for _, c := range cases {
		a := &Authorities{}
		if err := a.Set(c.data); err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = c.header
		r.TLS = &tls.ConnectionState{PeerCertificates: c.chain}
		user, ok := a.Proxied(r, clock.RealClock{})
		if ok != (c.want != "") || ok && user.Username != c.want {
			t.Errorf("%s: got %q, %t", c.reason, user.Username, ok)
		}
		if c.reason == "as API servers ask" {
			want := authenticationv1.UserInfo{Username: "rome", UID: "1", Groups: []string{"a", "b"}, Extra: map[string]authenticationv1.ExtraValue{"acme.com/part": {"x"}}}
			if diff := cmp.Diff(want, user); diff != "" {
				t.Error(diff)
			}
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header = full
	if _, ok := (&Authorities{}).Proxied(r, clock.RealClock{}); ok {
		t.Error("without TLS somebody is believed")
	}
}

// What a cluster says of its authorities is read without harm, whatever it is.
func FuzzParse(f *testing.F) {
	f.Add("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", `["a"]`)
	f.Add("", "{")
	f.Fuzz(func(_ *testing.T, ca, names string) {
		_, _ = parse(map[string]string{keyClientCA: ca, keyProxyCA: ca, keyProxyNames: names, keyUserHeaders: names})
	})
}
