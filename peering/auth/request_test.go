package auth

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/url"
	"strings"
	"testing"
)

const someUser = "pelago:peering:0b3b0a3e-7a2f-4c51-9d3c-2f1c7c1f6a10"

func ecdsaKey(t testing.TB, curve elliptic.Curve) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func rsaKey(t testing.TB, bits int) crypto.Signer {
	t.Helper()
	t.Setenv("GODEBUG", "rsa1024min=0")
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func subject(name pkix.Name) *x509.CertificateRequest { return &x509.CertificateRequest{Subject: name} }

// raw is a subject of exactly these attributes.
func raw(t testing.TB, rdns ...pkix.RelativeDistinguishedNameSET) *x509.CertificateRequest {
	t.Helper()
	der, err := asn1.Marshal(pkix.RDNSequence(rdns))
	if err != nil {
		t.Fatal(err)
	}
	return &x509.CertificateRequest{RawSubject: der}
}

func cn(value any) pkix.AttributeTypeAndValue {
	return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: value}
}

func TestParseRequest(t *testing.T) {
	key := ecdsaKey(t, elliptic.P256())
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	good := requestFor(t, key, someUser)
	der := func(text string) []byte {
		block, _ := pem.Decode([]byte(text))
		return block.Bytes
	}
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	from := func(key crypto.Signer, template *x509.CertificateRequest) string {
		return requestOfTemplate(t, key, template)
	}
	only := pkix.Name{CommonName: someUser}
	broken := der(good)
	broken[len(broken)-3] ^= 1
	//lint:ignore SA1019 nothing else writes attributes that are no extensions
	challenge := from(key, &x509.CertificateRequest{Subject: only, Attributes: []pkix.AttributeTypeAndValueSET{
		{Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7}, Value: [][]pkix.AttributeTypeAndValue{{}}}}})
	for name, test := range map[string]struct {
		text   string
		rule   string // "" if it is good
		reason string
	}{
		"ECDSA P-256":          {good, "", "what Pelago itself makes"},
		"without last newline": {strings.TrimSuffix(good, "\n"), "", "a text field may lose it"},
		"Ed25519":              {requestFor(t, edKey, someUser), "", "a strong key"},
		"RSA 2048":             {requestFor(t, rsaKey(t, 2048), someUser), "", "the least RSA key"},
		"UTF-8 subject":        {from(key, raw(t, pkix.RelativeDistinguishedNameSET{cn(asn1.RawValue{Tag: asn1.TagUTF8String, Bytes: []byte(someUser)})})), "", "how other tools write it"},

		"empty":             {"", "PEM block", "nothing is asked for"},
		"two blocks":        {good + good, "PEM block", "which one would be signed?"},
		"text before":       {"x\n" + good, "PEM block", "nothing but the request"},
		"text after":        {good + "x", "PEM block", "nothing but the request"},
		"two newlines":      {good + "\n", "PEM block", "nothing but the request"},
		"CRLF":              {strings.ReplaceAll(good, "\n", "\r\n"), "PEM block", "one way of writing"},
		"headers":           {string(pem.EncodeToMemory(&pem.Block{Type: requestBlock, Headers: map[string]string{"a": "b"}, Bytes: der(good)})), "PEM block", "nothing but the request"},
		"old block type":    {encode("NEW CERTIFICATE REQUEST", der(good)), "PEM block", "one way of writing"},
		"a certificate":     {encode("CERTIFICATE", der(good)), "PEM block", "something else"},
		"trailing DER":      {encode(requestBlock, append(der(good), 0)), "DER", "what follows is not signed"},
		"too long":          {good + strings.Repeat("x", maxRequest), "4096", "bounded before it is read"},
		"bad signature":     {encode(requestBlock, broken), "signature", "who asks must have the key"},
		"RSA 1024":          {requestFor(t, rsaKey(t, 1024), someUser), "key:", "too weak"},
		"ECDSA P-224":       {requestFor(t, ecdsaKey(t, elliptic.P224()), someUser), "key:", "not listed"},
		"ECDSA P-384":       {requestFor(t, ecdsaKey(t, elliptic.P384()), someUser), "key:", "not listed"},
		"SHA-1":             {from(rsaKey(t, 2048), &x509.CertificateRequest{Subject: only, SignatureAlgorithm: x509.SHA1WithRSA}), "signature", "a broken hash"},
		"another user":      {requestFor(t, key, someUser+"0"), "subject", "another tenant's"},
		"the prefix alone":  {requestFor(t, key, "pelago:peering:"), "subject", "no tenant's"},
		"admin":             {requestFor(t, key, "system:admin"), "subject", "the cluster's administrator"},
		"empty subject":     {from(key, subject(pkix.Name{})), "subject", "nobody"},
		"organization":      {from(key, subject(pkix.Name{CommonName: someUser, Organization: []string{"system:masters"}})), "subject", "a group"},
		"country":           {from(key, subject(pkix.Name{CommonName: someUser, Country: []string{"IT"}})), "subject", "an extra attribute"},
		"two common names":  {from(key, raw(t, pkix.RelativeDistinguishedNameSET{cn(someUser)}, pkix.RelativeDistinguishedNameSET{cn("system:admin")})), "subject", "the last one would count"},
		"two in one RDN":    {from(key, raw(t, pkix.RelativeDistinguishedNameSET{cn(someUser), cn("system:admin")})), "subject", "readers differ in which one counts"},
		"O in the RDN":      {from(key, raw(t, pkix.RelativeDistinguishedNameSET{cn(someUser), {Type: asn1.ObjectIdentifier{2, 5, 4, 10}, Value: "system:masters"}})), "subject", "a group"},
		"serial number":     {from(key, subject(pkix.Name{CommonName: someUser, SerialNumber: "1"})), "subject", "an extra attribute"},
		"UID attribute":     {from(key, raw(t, pkix.RelativeDistinguishedNameSET{cn(someUser)}, pkix.RelativeDistinguishedNameSET{{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: "x"}})), "subject", "Kubernetes reads a user's UID from it"},
		"numeric string":    {from(key, raw(t, pkix.RelativeDistinguishedNameSET{cn(asn1.RawValue{Tag: asn1.TagIA5String, Bytes: []byte(someUser)})})), "subject", "another encoding"},
		"DNS name":          {from(key, &x509.CertificateRequest{Subject: only, DNSNames: []string{"milan"}}), "attributes", "an alternative name"},
		"e-mail":            {from(key, &x509.CertificateRequest{Subject: only, EmailAddresses: []string{"a@b"}}), "attributes", "an alternative name"},
		"IP address":        {from(key, &x509.CertificateRequest{Subject: only, IPAddresses: []net.IP{{10, 0, 0, 1}}}), "attributes", "an alternative name"},
		"URI":               {from(key, &x509.CertificateRequest{Subject: only, URIs: []*url.URL{{Scheme: "spiffe", Host: "x"}}}), "attributes", "an alternative name"},
		"extension":         {from(key, &x509.CertificateRequest{Subject: only, ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: []byte{0x30, 3, 1, 1, 0xff}}}}), "attributes", "asks to be an authority"},
		"unknown attribute": {challenge, "attributes", "asks for something we do not know"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseRequest(test.text, someUser)
			if test.rule == "" {
				if err != nil || got.sha256 != hashOf(test.text) || len(got.keyHash) != 64 {
					t.Errorf("%s: refused: %v", test.reason, err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.rule) {
				t.Errorf("%s: got %v, want a refusal that names %q", test.reason, err, test.rule)
			}
		})
	}
}

// FuzzParseRequest: nothing panics, and what is accepted is exactly right by other
// means than the checker's.
func FuzzParseRequest(f *testing.F) {
	key := ecdsaKey(f, elliptic.P256())
	f.Add(requestFor(f, key, someUser))
	f.Add(requestFor(f, key, "system:admin"))
	f.Add(requestOfTemplate(f, key, &x509.CertificateRequest{Subject: pkix.Name{CommonName: someUser}, DNSNames: []string{"x"}}))
	f.Add("-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n")
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := parseRequest(text, someUser); err == nil {
			exactlyRight(t, got)
		}
	})
}

// FuzzRequestDER is FuzzParseRequest for what is inside the PEM.
func FuzzRequestDER(f *testing.F) {
	key := ecdsaKey(f, elliptic.P256())
	for _, user := range []string{someUser, "system:admin", ""} {
		block, _ := pem.Decode([]byte(requestFor(f, key, user)))
		f.Add(block.Bytes)
	}
	f.Add([]byte{0x30, 0x80})
	f.Fuzz(func(t *testing.T, der []byte) {
		text := string(pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der}))
		if got, err := parseRequest(text, someUser); err == nil {
			exactlyRight(t, got)
		}
	})
}

func exactlyRight(t *testing.T, got *request) {
	t.Helper()
	block, _ := pem.Decode([]byte(got.text))
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || csr.CheckSignature() != nil {
		t.Fatalf("accepted what is no signed request: %v", err)
	}
	if s := csr.Subject; s.String() != "CN="+someUser || len(s.Names) != 1 || len(csr.Extensions) > 0 ||
		len(csr.DNSNames)+len(csr.EmailAddresses)+len(csr.IPAddresses)+len(csr.URIs) > 0 {
		t.Fatalf("accepted a request for %s with %d extensions", s, len(csr.Extensions))
	}
}
