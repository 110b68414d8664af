package auth

import (
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestCheck is the approver: every field wrong once.
func TestCheck(t *testing.T) {
	asked, err := parseRequest(requestFor(t, ecdsaKey(t, elliptic.P256()), someUser), someUser)
	if err != nil {
		t.Fatal(err)
	}
	want := expected{name: "pelago-1", request: asked, seconds: 3600, username: "system:serviceaccount:pelago-system:pelago-auth"}
	type csr = certificatesv1.CertificateSigningRequest
	request := func(template *x509.CertificateRequest) func(*csr) {
		return func(c *csr) { c.Spec.Request = []byte(requestOfTemplate(t, ecdsaKey(t, elliptic.P256()), template)) }
	}
	denied := certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.CertificateDenied, Status: corev1.ConditionTrue}
	for name, test := range map[string]struct {
		change func(*csr)
		rule   string
		reason string
	}{
		"as asked for": {func(*csr) {}, "", "it is ours"},
		"approved already": {func(c *csr) {
			c.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue}}
		}, "", "by an earlier attempt"},
		"usages in any order": {func(c *csr) { c.Spec.Usages[0], c.Spec.Usages[1] = c.Spec.Usages[1], c.Spec.Usages[0] }, "", "a set"},
		"another's":           {func(c *csr) { c.Spec.Username = "mallory" }, "username", "we did not ask for it"},
		"another name":        {func(c *csr) { c.Name = "pelago-2" }, "name", "not the one we asked for"},
		"being deleted":       {func(c *csr) { c.DeletionTimestamp = ptr.To(metav1.Now()) }, "deleted", "somebody takes it away"},
		"another signer":      {func(c *csr) { c.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName }, "signerName", "kubelets' certificates"},
		"no lifetime":         {func(c *csr) { c.Spec.ExpirationSeconds = nil }, "expirationSeconds", "the signer's longest"},
		"longer":              {func(c *csr) { c.Spec.ExpirationSeconds = ptr.To(int32(3601)) }, "expirationSeconds", "longer than configured"},
		"no usages":           {func(c *csr) { c.Spec.Usages = nil }, "usages", "exactly two"},
		"one usage":           {func(c *csr) { c.Spec.Usages = c.Spec.Usages[:1] }, "usages", "exactly two"},
		"server too":          {func(c *csr) { c.Spec.Usages = append(c.Spec.Usages, certificatesv1.UsageServerAuth) }, "usages", "exactly two"},
		"server instead":      {func(c *csr) { c.Spec.Usages[1] = certificatesv1.UsageServerAuth }, "usages", "exactly these"},
		"one twice":           {func(c *csr) { c.Spec.Usages[1] = c.Spec.Usages[0] }, "usages", "exactly these"},
		"another key":         {request(&x509.CertificateRequest{Subject: pkix.Name{CommonName: someUser}}), "request", "bound to a key"},
		"another subject":     {request(&x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:admin"}}), "request", "another user"},
		"a group":             {request(&x509.CertificateRequest{Subject: pkix.Name{CommonName: someUser, Organization: []string{"system:masters"}}}), "request", "a group"},
		"denied":              {func(c *csr) { c.Status.Conditions = append(c.Status.Conditions, denied) }, "Denied", "somebody has said no"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &csr{ObjectMeta: metav1.ObjectMeta{Name: want.name}, Spec: certificatesv1.CertificateSigningRequestSpec{
				Request: []byte(asked.text), SignerName: certificatesv1.KubeAPIServerClientSignerName, ExpirationSeconds: ptr.To(want.seconds),
				Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, Username: want.username,
			}}
			test.change(c)
			err := check(c, want)
			if test.rule == "" && err != nil {
				t.Errorf("%s: refused: %v", test.reason, err)
			}
			if test.rule != "" && (err == nil || !strings.Contains(err.Error(), test.rule)) {
				t.Errorf("%s: got %v, want a refusal that names %q", test.reason, err, test.rule)
			}
		})
	}
}

// TestCheckReadsAgain: what is stored is judged by itself, even if it is what was
// asked for.
func TestCheckReadsAgain(t *testing.T) {
	key := ecdsaKey(t, elliptic.P256())
	good, err := parseRequest(requestFor(t, key, someUser), someUser)
	if err != nil {
		t.Fatal(err)
	}
	for text, reason := range map[string]string{
		requestFor(t, key, "system:admin"):                                        "another user",
		requestFor(t, ecdsaKey(t, elliptic.P256()), someUser):                     "another key",
		requestFor(t, ecdsaKey(t, elliptic.P384()), someUser):                     "a key that is not allowed",
		good.text + good.text:                                                     "two requests",
		strings.Replace(good.text, "REQUEST-----\n", "REQUEST-----\nx: y\n\n", 1): "a header",
		requestOfTemplate(t, key, &x509.CertificateRequest{Subject: pkix.Name{CommonName: someUser}, DNSNames: []string{"x"}}): "a name",
	} {
		asked := *good
		asked.text = text
		c := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: []byte(text), SignerName: certificatesv1.KubeAPIServerClientSignerName, ExpirationSeconds: ptr.To(int32(600)),
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth}, Username: "us",
		}}
		if err := check(c, expected{request: &asked, seconds: 600, username: "us"}); err == nil || !strings.HasPrefix(err.Error(), "request: ") {
			t.Errorf("%s: got %v", reason, err)
		}
	}
}

func TestCheckCertificate(t *testing.T) {
	key := ecdsaKey(t, elliptic.P256())
	asked, err := parseRequest(requestFor(t, key, someUser), someUser)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	o := order{request: asked, lifetime: time.Hour}
	for name, test := range map[string]struct {
		change func(*x509.Certificate)
		rule   string
		reason string
	}{
		"as asked for":    {func(*x509.Certificate) {}, "", "key, subject, use and lifetime"},
		"shorter":         {func(c *x509.Certificate) { c.NotAfter = now.Add(time.Minute) }, "", "signers may give less"},
		"another key":     {func(c *x509.Certificate) { c.PublicKey = ecdsaKey(t, elliptic.P256()).Public() }, "key", "nobody could use it, or somebody else"},
		"another subject": {func(c *x509.Certificate) { c.Subject.CommonName = "system:admin" }, "subject", "another user"},
		"a group":         {func(c *x509.Certificate) { c.Subject.Organization = []string{"system:masters"} }, "subject", "a group"},
		"an authority":    {func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true }, "more than", "it could sign others"},
		"a server":        {func(c *x509.Certificate) { c.DNSNames = []string{"milan"} }, "more than", "an alternative name"},
		"other use":       {func(c *x509.Certificate) { c.ExtKeyUsage = append(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth) }, "uses", "client auth only"},
		"any use":         {func(c *x509.Certificate) { c.ExtKeyUsage = nil }, "uses", "client auth only"},
		"longer":          {func(c *x509.Certificate) { c.NotAfter = now.Add(2 * time.Hour) }, "longer", "beyond the lifetime"},
		"over":            {func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Second) }, "not valid now", "worth nothing"},
		"not yet":         {func(c *x509.Certificate) { c.NotBefore = now.Add(30 * time.Minute) }, "not valid now", "worth nothing yet"},
	} {
		t.Run(name, func(t *testing.T) {
			template := &x509.Certificate{
				SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: someUser}, PublicKey: key.Public(),
				NotBefore: now.Add(-5 * time.Minute), NotAfter: now.Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			}
			test.change(template)
			der, err := x509.CreateCertificate(rand.Reader, template, signerCert, template.PublicKey, signerKey)
			if err != nil {
				t.Fatal(err)
			}
			_, err = checkCertificate(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), o, now)
			if test.rule == "" && err != nil {
				t.Errorf("%s: refused: %v", test.reason, err)
			}
			if test.rule != "" && (err == nil || !strings.Contains(err.Error(), test.rule)) {
				t.Errorf("%s: got %v, want a refusal that names %q", test.reason, err, test.rule)
			}
		})
	}
}
