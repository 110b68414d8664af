package peering

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Bounds on what a provider may say.
const (
	// maxReply is more than an answer with the largest authorities, certificate and token.
	maxReply       = 256 << 10
	maxAuthorities = 64 << 10 // in bytes, as many as they are
	maxCertificate = 64 << 10
	maxURL         = 300
	maxToken       = 16 << 10
	maxChain       = 10 // certificates
	maxName        = 40
	maxWord        = 64
	maxFeatures    = 64
	// minLife of a credential: a provider does not decide how often this cluster asks
	// for a new one and stores it.
	minLife = 5 * time.Minute
)

// answer is a provider's answer to an introduction or a renewal, found to be good.
type answer struct {
	cluster         v1alpha1.ClusterInfo
	server, proxy   string
	ca              []byte
	tenantNamespace string
	certificate     []byte
	token           string
	notBefore       time.Time
	notAfter        time.Time
}

// expected is what an answer must fit.
type expected struct {
	clusterID string
	user      string
	key       []byte // PEM
	request   []byte // PEM
	now       time.Time
}

// into puts an answer into a credential.
func (a *answer) into(c *credential) {
	c.ClusterID, c.Server, c.Proxy, c.CA, c.TenantNamespace = a.cluster.ID, a.server, a.proxy, a.ca, a.tenantNamespace
	c.Certificate, c.Token, c.NotBefore, c.NotAfter = a.certificate, a.token, a.notBefore, a.notAfter
}

// parseReply reads what the authentication endpoint says on success. A provider is a
// stranger: nothing is believed that is not exactly as it has to be.
func parseReply(text []byte, want expected) (*answer, error) {
	var reply struct {
		Status v1alpha1.IdentityStatus `json:"status"`
		Token  string                  `json:"token"`
	}
	if len(text) > maxReply {
		return nil, errors.New("the answer is too large")
	}
	if err := json.Unmarshal(text, &reply); err != nil {
		return nil, errors.New("the answer is not JSON of an identity's status")
	}
	return check(&reply.Status, reply.Token, want)
}

// check reads the status of an Identity that answers want.request.
func check(s *v1alpha1.IdentityStatus, token string, want expected) (*answer, error) {
	if err := checkInfo(s.Cluster, want.clusterID); err != nil {
		return nil, err
	}
	a, err := checkIssued(s, token, want)
	if err != nil {
		return nil, err
	}
	if err := checkPlace(s); err != nil {
		return nil, err
	}
	a.cluster = *s.Cluster.DeepCopy()
	a.server, a.proxy, a.ca, a.tenantNamespace = s.ServerURL, s.ProxyURL, []byte(s.ServerCA), s.TenantNamespace
	return a, nil
}

// checkIssued reads the credential that answers want.request, and nothing else.
func checkIssued(s *v1alpha1.IdentityStatus, token string, want expected) (*answer, error) {
	a := &answer{}
	if s.RequestSHA256 != fingerprint(want.request) {
		return nil, errors.New("requestSHA256: it answers another request")
	}
	switch s.CredentialType {
	case v1alpha1.CredentialCertificate:
		if token != "" {
			return nil, errors.New("token: not expected beside a certificate")
		}
		leaf, err := checkCertificate(s.Certificate, want)
		if err != nil {
			return nil, fmt.Errorf("certificate: %w", err)
		}
		a.certificate, a.notBefore, a.notAfter = []byte(s.Certificate), leaf.NotBefore, leaf.NotAfter
	case v1alpha1.CredentialToken:
		if err := checkToken(token); err != nil {
			return nil, err
		}
		if s.NotBefore == nil || s.NotAfter == nil {
			return nil, errors.New("notBefore, notAfter: missing")
		}
		a.token, a.notBefore, a.notAfter = token, s.NotBefore.Time, s.NotAfter.Time
	default:
		return nil, errors.New("credentialType: neither Certificate nor ServiceAccountToken")
	}
	if !a.notAfter.After(want.now) || !a.notAfter.After(a.notBefore) || a.notBefore.After(want.now.Add(24*time.Hour)) {
		return nil, errors.New("notBefore, notAfter: the credential is not valid now")
	}
	if a.notAfter.Sub(want.now) < minLife || a.notAfter.Sub(a.notBefore) < minLife {
		return nil, fmt.Errorf("notAfter: the credential lives less than %s", minLife)
	}
	return a, nil
}

// checkPlace checks where the provider says it is.
func checkPlace(s *v1alpha1.IdentityStatus) error {
	if err := checkURL(s.ServerURL, "https"); err != nil {
		return fmt.Errorf("serverURL: %w", err)
	}
	if s.ProxyURL != "" {
		if err := checkURL(s.ProxyURL, "http", "https"); err != nil {
			return fmt.Errorf("proxyURL: %w", err)
		}
	}
	if err := checkAuthorities(s.ServerCA); err != nil {
		return fmt.Errorf("serverCA: %w", err)
	}
	ns := s.TenantNamespace
	if !strings.HasPrefix(ns, v1alpha1.TenantNamespacePrefix) || len(ns) == len(v1alpha1.TenantNamespacePrefix) || len(validation.IsDNS1123Label(ns)) > 0 {
		return errors.New("tenantNamespace: not " + v1alpha1.TenantNamespacePrefix + "NAME")
	}
	return nil
}

// checkAuthorities checks that a connection can be made with authorities: they may be many, with
// text between them, as in the bundles of systems. None are the system's own.
func checkAuthorities(text string) error {
	switch {
	case len(text) > maxAuthorities:
		return errors.New("too large")
	case text != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(text)):
		return errors.New("no certificate in PEM")
	}
	return nil
}

func checkURL(text string, schemes ...string) error {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxURL || !slices.Contains(schemes, u.Scheme) || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(text, "?#@ ") {
		return fmt.Errorf("not %s://HOST:PORT", schemes[0])
	}
	return nil
}

var (
	uuid    = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
	word    = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9._/+]*$`)
	rfcName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
)

// checkInfo checks what a cluster says of itself, of which it can be shown and stored.
func checkInfo(i *v1alpha1.ClusterInfo, clusterID string) error {
	switch {
	case i == nil:
		return errors.New("cluster: missing")
	case !uuid.MatchString(i.ID):
		return errors.New("cluster.id: not an id")
	case i.ID != clusterID:
		return errors.New("cluster.id: it is another cluster than the one of spec.clusterID")
	case len(i.Name) > maxName || !rfcName.MatchString(i.Name):
		return errors.New("cluster.name: not a name")
	case !versionLike(i.Version) || !versionLike(i.KubernetesVersion):
		return errors.New("cluster.version, cluster.kubernetesVersion: not versions")
	case len(i.Features) > maxFeatures:
		return errors.New("cluster.features: too many")
	}
	seen := map[string]bool{}
	for _, f := range i.Features {
		if len(f) > maxWord || !word.MatchString(f) || seen[f] {
			return errors.New("cluster.features: not a set of words")
		}
		seen[f] = true
	}
	return nil
}

func versionLike(s string) bool { return s == "" || len(s) <= maxWord && word.MatchString(s) }

// checkCertificate returns the client certificate of a chain: for our key and user,
// and for nothing else.
func checkCertificate(text string, want expected) (*x509.Certificate, error) {
	if len(text) > maxCertificate {
		return nil, errors.New("too large")
	}
	chain, err := parseChain([]byte(text))
	if err != nil {
		return nil, err
	}
	leaf := chain[0]
	key, err := parseKey(want.key)
	if err != nil {
		return nil, err
	}
	own, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	switch {
	case !ok || !own.Equal(leaf.PublicKey):
		return nil, errors.New("for another key")
	case !onlyCommonName(leaf.RawSubject, want.user):
		return nil, errors.New("for another subject")
	case !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return nil, errors.New("not for client authentication")
	}
	return leaf, nil
}

// onlyCommonName says whether a subject is exactly one common name.
func onlyCommonName(raw []byte, name string) bool {
	var rdn pkix.RDNSequence
	rest, err := asn1.Unmarshal(raw, &rdn)
	if err != nil || len(rest) > 0 || len(rdn) != 1 || len(rdn[0]) != 1 {
		return false
	}
	value, ok := rdn[0][0].Value.(string)
	return ok && rdn[0][0].Type.Equal(asn1.ObjectIdentifier{2, 5, 4, 3}) && value == name
}

// parseChain reads certificates in PEM, and nothing but certificates.
func parseChain(text []byte) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for len(bytes.TrimSpace(text)) > 0 {
		block, rest := pem.Decode(text)
		if block == nil || block.Type != "CERTIFICATE" || len(chain) == maxChain {
			return nil, errors.New("not certificates in PEM")
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.New("not certificates in PEM")
		}
		chain, text = append(chain, c), rest
	}
	if len(chain) == 0 {
		return nil, errors.New("not certificates in PEM")
	}
	return chain, nil
}

// parseKey reads a private key of ours. Its errors say nothing of the key.
func parseKey(text []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, errors.New("the key in the Secret is not in PEM")
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the key in the Secret is damaged")
	}
	return key, nil
}

// checkToken checks that a token can be a header's value.
func checkToken(token string) error {
	if token == "" || len(token) > maxToken {
		return errors.New("token: missing or too large")
	}
	for _, r := range token {
		if r <= ' ' || r > '~' {
			return errors.New("token: not a token")
		}
	}
	return nil
}
