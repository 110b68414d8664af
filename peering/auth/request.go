package auth

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	maxRequest   = 4096
	minRSABits   = 2048
	maxRSABits   = 8192 // strangers decide what is computed here
	requestBlock = "CERTIFICATE REQUEST"
)

// request is a certificate signing request that keeps every rule for a tenant.
type request struct {
	text    string // in PEM
	sha256  string // of text
	keyHash string // of the public key in PKIX DER
	key     any
	user    string
}

// strongEnough are the signatures a request may have.
var strongEnough = map[x509.SignatureAlgorithm]bool{
	x509.ECDSAWithSHA256: true, x509.ECDSAWithSHA384: true, x509.ECDSAWithSHA512: true,
	x509.PureEd25519:   true,
	x509.SHA256WithRSA: true, x509.SHA384WithRSA: true, x509.SHA512WithRSA: true,
	x509.SHA256WithRSAPSS: true, x509.SHA384WithRSAPSS: true, x509.SHA512WithRSAPSS: true,
}

// parseRequest checks a certificate signing request against every rule for the user
// it is to be for. The error is the rule that is broken and nothing of the request.
func parseRequest(text, user string) (*request, error) {
	if len(text) > maxRequest {
		return nil, fmt.Errorf("more than %d characters", maxRequest)
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != requestBlock {
		return nil, fmt.Errorf("not one PEM block %s", requestBlock)
	}
	// Written again it must be the same: nothing before, after or in between.
	if len(rest) > 0 || len(block.Headers) > 0 || !sameBlock(text, block) {
		return nil, fmt.Errorf("more than one PEM block %s as encoders write it", requestBlock)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, errors.New("not a certificate request in DER")
	}
	if err := checkKey(csr.PublicKey); err != nil {
		return nil, err
	}
	if !strongEnough[csr.SignatureAlgorithm] {
		return nil, errors.New("signature algorithm: not of SHA-256, SHA-384, SHA-512 or Ed25519")
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, errors.New("signature: not made by the key in the request")
	}
	if !onlyCommonName(csr.RawSubject, user) {
		return nil, fmt.Errorf("subject: not exactly CN=%s", user)
	}
	if err := checkAttributes(csr.RawTBSCertificateRequest); err != nil {
		return nil, err
	}
	hash, err := keyHash(csr.PublicKey)
	if err != nil {
		return nil, errors.New("key: not one that can be written in PKIX")
	}
	return &request{text: text, sha256: hashOf(text), keyHash: hash, key: csr.PublicKey, user: user}, nil
}

func sameBlock(text string, block *pem.Block) bool {
	again := string(pem.EncodeToMemory(block))
	return text == again || text+"\n" == again
}

func checkKey(key any) error {
	switch k := key.(type) {
	case *ecdsa.PublicKey:
		if k.Curve == elliptic.P256() {
			return nil
		}
	case ed25519.PublicKey:
		return nil
	case *rsa.PublicKey:
		if bits := k.N.BitLen(); bits >= minRSABits && bits <= maxRSABits {
			return nil
		}
	}
	return fmt.Errorf("key: not ECDSA P-256, Ed25519 or RSA of %d to %d bits", minRSABits, maxRSABits)
}

// onlyCommonName reports whether a subject in DER is one common name and nothing else,
// in one of the two ways of writing it.
func onlyCommonName(subject []byte, name string) bool {
	for _, tag := range []int{asn1.TagPrintableString, asn1.TagUTF8String} {
		value := asn1.RawValue{Class: asn1.ClassUniversal, Tag: tag, Bytes: []byte(name)}
		want, err := asn1.Marshal(pkix.RDNSequence{{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: value}}})
		if err == nil && bytes.Equal(subject, want) {
			return true
		}
	}
	return false
}

// checkAttributes refuses whatever a request asks for beside subject and key: names,
// extensions, passwords.
func checkAttributes(der []byte) error {
	var inner struct {
		Version    int
		Subject    asn1.RawValue
		PublicKey  asn1.RawValue
		Attributes []asn1.RawValue `asn1:"tag:0"`
	}
	if rest, err := asn1.Unmarshal(der, &inner); err != nil || len(rest) > 0 {
		return errors.New("not a certificate request in DER")
	}
	if inner.Version != 0 {
		return errors.New("version: not 1")
	}
	if len(inner.Attributes) > 0 {
		return errors.New("attributes: there are some; no names, extensions or passwords can be asked for")
	}
	return nil
}

// keyHash is the SHA-256 of a public key in PKIX DER, in hexadecimal.
func keyHash(key any) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "", fmt.Errorf("encoding a public key: %w", err)
	}
	return hashOf(string(der)), nil
}

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}
