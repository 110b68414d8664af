package serving

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Keys of the Secret of an authority.
const (
	// CertKey is the authority's certificate in PEM.
	CertKey = "ca.crt"
	// KeyKey is its private key in PEM.
	KeyKey = "ca.key"
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 30 * 24 * time.Hour
	// backdate lets clusters in whose clock is behind ours. An authority stays, also if it was made while
	// our clock was ahead.
	backdate   = time.Hour
	caBackdate = 24 * time.Hour
	// loadLimit is how long one attempt to load may take.
	loadLimit = 15 * time.Second
	// maxConflicts bounds how often the Secret is read again because somebody else has
	// changed it meanwhile.
	maxConflicts = 5
)

// AuthorityOptions are what an authority is made of.
type AuthorityOptions struct {
	// Client reads and writes the Secret, without a cache.
	Client client.Client
	// Secret that keeps the authority. It exists, and is empty at first.
	Secret client.ObjectKey
	// Subject of a new authority: what it is for.
	Subject string
	// Names and addresses that certificates are for; the first is also their subject.
	Names []string
	// Voids says what a new authority would put an end to; it ends the sentence "empty it
	// to have a new one made".
	Voids string
	// Clock is the real one if nil.
	Clock clock.Clock
	// Rand is where keys come from; crypto/rand if nil.
	Rand io.Reader
}

// Authority is a certificate authority that others pin, and the certificate that is
// served with. The authority is made once and stored; certificates are made from it in
// memory. It is safe for concurrent use.
type Authority struct {
	o AuthorityOptions

	mu     sync.Mutex
	cert   *x509.Certificate
	signer *ecdsa.PrivateKey
	leaf   *tls.Certificate
	renew  time.Time
}

// NewAuthority returns an authority that is not loaded yet.
func NewAuthority(o AuthorityOptions) *Authority {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	return &Authority{o: o}
}

// Await loads the authority, trying until it succeeds or ctx ends, which is the only
// error. What is loaded already is not read again.
func (a *Authority) Await(ctx context.Context) error {
	again := wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.3, Steps: 9, Cap: 30 * time.Second}
	for {
		if a.Bundle() != nil {
			return nil
		}
		limited, cancel := context.WithTimeout(ctx, loadLimit)
		err := a.Load(limited)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		log.FromContext(ctx).Error(err, "authority not loaded; trying again")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-a.o.Clock.After(again.Step()):
		}
	}
}

// Load reads the authority, and makes it if its Secret is empty. Of several replicas
// that find it empty, one fills it and the others read what it has written.
func (a *Authority) Load(ctx context.Context) error {
	for range maxConflicts {
		secret := &corev1.Secret{}
		if err := a.o.Client.Get(ctx, a.o.Secret, secret); err != nil {
			return fmt.Errorf("reading secret %s: %w", a.o.Secret, err)
		}
		if len(secret.Data[CertKey]) > 0 || len(secret.Data[KeyKey]) > 0 {
			return a.read(secret)
		}
		certificate, key, err := a.make()
		if err != nil {
			return fmt.Errorf("making the authority: %w", err)
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[CertKey], secret.Data[KeyKey] = certificate, key
		err = a.o.Client.Update(ctx, secret)
		if err == nil {
			return a.read(secret)
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("storing the authority in secret %s: %w", a.o.Secret, plain(err))
		}
	}
	return fmt.Errorf("storing the authority in secret %s: others keep changing it", a.o.Secret)
}

// Bundle is the authority's certificate in PEM, nil before it is loaded.
func (a *Authority) Bundle() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cert == nil {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// make returns a new authority in PEM: its certificate and its key.
func (a *Authority) make() (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), a.o.Rand)
	if err != nil {
		return nil, nil, err
	}
	template, err := a.template(a.o.Subject, caBackdate, caLife)
	if err != nil {
		return nil, nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(a.o.Rand, template, template, private.Public(), private)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}

func (a *Authority) template(name string, before, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(a.o.Rand, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := a.o.Clock.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-before), NotAfter: now.Add(life),
	}, nil
}

// read takes a stored authority. What is wrong with it is said without its content.
func (a *Authority) read(secret *corev1.Secret) error {
	broken := func(what string) error {
		return fmt.Errorf("reading secret %s: %s; empty it to have a new one made%s", a.o.Secret, what, a.o.Voids)
	}
	block, rest := pem.Decode(secret.Data[CertKey])
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return broken(CertKey + " is not one certificate in PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !certificate.IsCA {
		return broken(CertKey + " is not the certificate of an authority")
	}
	if !a.o.Clock.Now().Before(certificate.NotAfter) {
		return broken(CertKey + " has expired")
	}
	block, _ = pem.Decode(secret.Data[KeyKey])
	if block == nil {
		return broken(KeyKey + " is not in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, isECDSA := key.(*ecdsa.PrivateKey)
	if err != nil || !isECDSA || !private.PublicKey.Equal(certificate.PublicKey) {
		return broken(KeyKey + " is not the ECDSA key of " + CertKey)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cert != nil && !a.cert.Equal(certificate) {
		a.leaf = nil
	}
	a.cert, a.signer = certificate, private
	return nil
}

// Certificate returns the certificate to serve with, with that of the authority behind
// it; it is a tls.Config's GetCertificate. From two thirds of its life on it is
// replaced, as it is when the clock was set back to before it is valid; while that
// fails the old one goes on. It goes by the time of day, as those do who check it.
func (a *Authority) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.o.Clock.Now().Round(0)
	if a.leaf != nil && !now.Before(a.leaf.Leaf.NotBefore) && now.Before(a.renew) {
		return a.leaf, nil
	}
	made, err := a.makeLeaf()
	switch {
	case err == nil:
		a.leaf, a.renew = made, now.Add(leafLife*2/3)
	case a.leaf == nil:
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	return a.leaf, nil
}

func (a *Authority) makeLeaf() (*tls.Certificate, error) {
	if a.cert == nil {
		return nil, errors.New("there is no authority yet")
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), a.o.Rand)
	if err != nil {
		return nil, err
	}
	template, err := a.template(a.o.Names[0], backdate, leafLife)
	if err != nil {
		return nil, err
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	for _, name := range a.o.Names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(a.o.Rand, template, a.cert, private.Public(), a.signer)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: private, Leaf: leaf}, nil
}

// plain is an error without what was in the Secret: the API server repeats values it
// finds invalid.
func plain(err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		return err
	}
	var fields []string
	if details := status.Status().Details; details != nil {
		for _, cause := range details.Causes {
			fields = append(fields, cause.Field)
		}
	}
	slices.Sort(fields)
	return fmt.Errorf("the API server finds it invalid: %s", strings.Join(slices.Compact(fields), ", "))
}
