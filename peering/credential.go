package peering

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

// Keys of the credential's Secret. A tombstone has those that say goodbye.
const (
	keyUID         = "peering-uid"
	keyKey         = "tls.key"
	keyRequest     = "request"
	keyCertificate = "tls.crt"
	keyToken       = "token"
	keyCA          = "ca.crt"
	keyServer      = "server"
	keyProxy       = "proxy-url"
	keyNamespace   = "tenant-namespace"
	keyClusterID   = "cluster-id"
	keyNotBefore   = "not-before"
	keyNotAfter    = "not-after"
	keyNextKey     = "next.key"
	keyNextRequest = "next.request"
	keyInvitation  = "token-secret"
	keyFarewell    = "farewell"
	keyTold        = "told"
	keyOwnServer   = "own-server"
	keyOwnProxy    = "own-proxy-url"
	keyUsed        = "token-sha256"
)

// credential is what the Secret of a peering holds.
type credential struct {
	UID             string // of the Peering it was made for
	Key             []byte // PEM
	Request         []byte // PEM
	Certificate     []byte // PEM; nil until issued, and for tokens
	Token           string // instead of Certificate
	CA              []byte
	Server          string
	Proxy           string
	TenantNamespace string
	ClusterID       string
	NotBefore       time.Time
	NotAfter        time.Time
	NextKey         []byte // of a renewal that is going on
	NextRequest     []byte
	Invitation      string // name of the Secret with the token
	Used            string // hash of the token that was accepted; "" before, and if an older build got the credential
	Farewell        bool   // goodbye has begun
	Told            bool   // and was taken
	OwnServer       string // spec.consume.serverURL of the Peering, for when it does not consume any more
	OwnProxy        string // and spec.consume.proxyURL
}

// issued says whether there is something to prove this cluster's identity with.
func (c *credential) issued() bool { return len(c.Certificate) > 0 || c.Token != "" }

// doubt is how long after its end a credential is still tried for a goodbye: which clock is wrong
// cannot be known here.
const doubt = time.Hour

// over says whether a credential has ended for sure.
func (c *credential) over(now time.Time) bool { return !now.Before(c.NotAfter.Add(doubt)) }

// kind is what the credential is.
func (c *credential) kind() v1alpha1.CredentialType {
	if c.Token != "" {
		return v1alpha1.CredentialToken
	}
	return v1alpha1.CredentialCertificate
}

// renewAfter is when the credential is replaced: at two thirds of its life.
func (c *credential) renewAfter() time.Time {
	return c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) * 2 / 3)
}

// connection is how the provider is reached; what the Peering says comes first, or said
// when it does not consume any more.
func (c *credential) connection(peering string, consume *v1alpha1.Consume) fleet.Connection {
	conn := fleet.Connection{
		Peering: peering, ClusterID: c.ClusterID, ServerURL: c.Server, CA: c.CA, ProxyURL: c.Proxy,
		Token: c.Token, TenantNamespace: c.TenantNamespace,
	}
	if c.Token == "" {
		conn.Certificate, conn.Key = c.Certificate, c.Key
	}
	server, proxy := c.OwnServer, c.OwnProxy
	if consume != nil {
		server, proxy = consume.ServerURL, consume.ProxyURL
	}
	conn.ServerURL, conn.ProxyURL = cmp.Or(server, conn.ServerURL), cmp.Or(proxy, conn.ProxyURL)
	return conn
}

// load reads a credential out of a Secret.
func load(s *corev1.Secret) (*credential, error) {
	d := s.Data
	c := &credential{
		UID: string(d[keyUID]), Key: d[keyKey], Request: d[keyRequest], Certificate: d[keyCertificate],
		Token: string(d[keyToken]), CA: d[keyCA], Server: string(d[keyServer]), Proxy: string(d[keyProxy]),
		TenantNamespace: string(d[keyNamespace]), ClusterID: string(d[keyClusterID]),
		NextKey: d[keyNextKey], NextRequest: d[keyNextRequest],
		Invitation: string(d[keyInvitation]), Farewell: len(d[keyFarewell]) > 0, Told: len(d[keyTold]) > 0,
		Used: string(d[keyUsed]), OwnServer: string(d[keyOwnServer]), OwnProxy: string(d[keyOwnProxy]),
	}
	for key, at := range map[string]*time.Time{keyNotBefore: &c.NotBefore, keyNotAfter: &c.NotAfter} {
		if len(d[key]) == 0 {
			continue
		}
		t, err := time.Parse(time.RFC3339, string(d[key]))
		if err != nil {
			return nil, fmt.Errorf("key %s is not a time", key)
		}
		*at = t
	}
	switch {
	case c.Token == "" && len(c.Key) == 0, len(c.Request) == 0:
		return nil, errors.New("keys tls.key and request are missing")
	case c.issued() && (c.Server == "" || c.TenantNamespace == "" || c.NotBefore.IsZero() || !c.NotAfter.After(c.NotBefore)):
		return nil, errors.New("keys server, tenant-namespace, not-before and not-after do not go with the credential")
	}
	return c, nil
}

// store writes a credential into a Secret's data. Empty values are left out.
func (c *credential) store() map[string][]byte {
	data := map[string][]byte{
		keyUID: []byte(c.UID), keyKey: c.Key, keyRequest: c.Request, keyCertificate: c.Certificate,
		keyToken: []byte(c.Token), keyCA: c.CA, keyServer: []byte(c.Server), keyProxy: []byte(c.Proxy),
		keyNamespace: []byte(c.TenantNamespace), keyClusterID: []byte(c.ClusterID),
		keyNextKey: c.NextKey, keyNextRequest: c.NextRequest,
		keyInvitation: []byte(c.Invitation),
		keyUsed:       []byte(c.Used), keyOwnServer: []byte(c.OwnServer), keyOwnProxy: []byte(c.OwnProxy),
	}
	if !c.NotAfter.IsZero() {
		data[keyNotBefore] = []byte(c.NotBefore.UTC().Format(time.RFC3339))
		data[keyNotAfter] = []byte(c.NotAfter.UTC().Format(time.RFC3339))
	}
	if c.Farewell {
		data[keyFarewell] = []byte("true")
	}
	if c.Told {
		data[keyTold] = []byte("true")
	}
	for key, value := range data {
		if len(value) == 0 {
			delete(data, key)
		}
	}
	return data
}

// status is what is said of the credential.
func (c *credential) status() *v1alpha1.CredentialStatus {
	return &v1alpha1.CredentialStatus{
		Type: c.kind(), NotBefore: metav1.NewTime(c.NotBefore), NotAfter: metav1.NewTime(c.NotAfter),
		RenewAfter: metav1.NewTime(c.renewAfter().Truncate(time.Second)),
	}
}

// peeringUID names this peering to the provider. Each has a name of its own, also those
// that one Peering has one after the other, so that a credential of one that has ended is
// worth nothing in the next. Earlier builds took the UID of the Peering.
func (c *credential) peeringUID() string {
	return cmp.Or(strings.TrimPrefix(userOf(c.Request), v1alpha1.UserPrefix), c.UID)
}

// user is the credential's name at the provider's API server.
func (c *credential) user() string { return v1alpha1.UserPrefix + c.peeringUID() }

// userOf is the user that a request in PEM is for, "" if it is none.
func userOf(request []byte) string {
	block, _ := pem.Decode(request)
	if block == nil {
		return ""
	}
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return ""
	}
	return asked.Subject.CommonName
}

// newKey makes a key and a request for a certificate of a peering's user, in PEM.
func newKey(random io.Reader, uid string) (key, request []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: v1alpha1.UserPrefix + uid}}
	csr, err := x509.CreateCertificateRequest(random, template, private)
	if err != nil {
		return nil, nil, fmt.Errorf("making a certificate request: %w", err)
	}
	key = pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: csr}), nil
}

// fingerprint is the SHA-256 of a text in hexadecimal.
func fingerprint(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
