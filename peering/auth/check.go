package auth

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
)

// skew is how far a signer's clock and ours may be apart, and how far signers date
// certificates back.
const skew = 10 * time.Minute

// errForeign: somebody else has made the signing request of this name.
var errForeign = errors.New("username: it was made by somebody else")

// expected is what a signing request must be to be approved.
type expected struct {
	name     string
	request  *request
	seconds  int32
	username string // ours
}

// check compares every field of a stored signing request with what was asked for,
// and reads the request in it again. Only what passes is approved.
func check(csr *certificatesv1.CertificateSigningRequest, want expected) error {
	spec := &csr.Spec
	switch {
	case want.username == "" || spec.Username != want.username:
		return errForeign
	case csr.Name != want.name:
		return errors.New("name: another one")
	case !csr.DeletionTimestamp.IsZero():
		return errors.New("it is being deleted")
	case spec.SignerName != certificatesv1.KubeAPIServerClientSignerName:
		return errors.New("signerName: another one")
	case spec.ExpirationSeconds == nil || *spec.ExpirationSeconds != want.seconds:
		return errors.New("expirationSeconds: another lifetime")
	case !exactUsages(spec.Usages):
		return errors.New("usages: not exactly digital signature and client auth")
	case !bytes.Equal(spec.Request, []byte(want.request.text)):
		return errors.New("request: another one")
	}
	for _, c := range csr.Status.Conditions {
		if c.Type != certificatesv1.CertificateApproved && c.Status != corev1.ConditionFalse {
			return fmt.Errorf("it is %s, %s", c.Type, c.Reason)
		}
	}
	again, err := parseRequest(string(spec.Request), want.request.user)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	if again.keyHash != want.request.keyHash {
		return errors.New("request: another key")
	}
	return nil
}

func exactUsages(usages []certificatesv1.KeyUsage) bool {
	count := map[certificatesv1.KeyUsage]int{}
	for _, u := range usages {
		count[u]++
	}
	return len(usages) == 2 && count[certificatesv1.UsageDigitalSignature] == 1 && count[certificatesv1.UsageClientAuth] == 1
}

func hasApproval(csr *certificatesv1.CertificateSigningRequest) bool {
	for _, c := range csr.Status.Conditions {
		if c.Type == certificatesv1.CertificateApproved && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// checkCertificate reads what a signer made and refuses it if it is for another key,
// another subject, another use or longer than was asked for.
func checkCertificate(text []byte, o order, now time.Time) (credential, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return credential{}, errors.New("the certificate is not in PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return credential{}, errors.New("the certificate is not in DER")
	}
	hash, err := keyHash(leaf.PublicKey)
	names := len(leaf.DNSNames) + len(leaf.EmailAddresses) + len(leaf.IPAddresses) + len(leaf.URIs)
	switch {
	case err != nil || hash != o.request.keyHash:
		return credential{}, errors.New("the certificate is for another key")
	case !onlyCommonName(leaf.RawSubject, o.request.user):
		return credential{}, errors.New("the certificate is for another subject")
	case leaf.IsCA || names > 0:
		return credential{}, errors.New("the certificate is for more than was asked for")
	case len(leaf.ExtKeyUsage) != 1 || leaf.ExtKeyUsage[0] != x509.ExtKeyUsageClientAuth || len(leaf.UnknownExtKeyUsage) > 0:
		return credential{}, errors.New("the certificate is for other uses than client auth")
	case leaf.NotBefore.After(now.Add(skew)) || !leaf.NotAfter.After(now):
		return credential{}, errors.New("the certificate is not valid now")
	case leaf.NotAfter.After(now.Add(o.lifetime + skew)):
		return credential{}, fmt.Errorf("the certificate is valid until %s, longer than the %s that were asked for",
			leaf.NotAfter.UTC().Format(time.RFC3339), o.lifetime)
	}
	return credential{certificate: string(text), notBefore: leaf.NotBefore, notAfter: leaf.NotAfter}, nil
}
