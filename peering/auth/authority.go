package auth

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
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Keys of the Secret of the authority.
const (
	caCertKey = "ca.crt"
	caKeyKey  = "ca.key"
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 30 * 24 * time.Hour
	// backdate lets clusters in whose clock is behind ours.
	backdate = time.Hour
)

// authority is the certificate authority of the endpoint, which invitations pin, and
// the certificate it serves with. The authority is made once and stored; certificates
// are made from it in memory.
type authority struct {
	client client.Client
	key    client.ObjectKey
	clock  clock.PassiveClock
	rand   io.Reader

	cert   *x509.Certificate
	signer *ecdsa.PrivateKey

	mu    sync.Mutex
	leaf  *tls.Certificate
	renew time.Time
}

// +kubebuilder:rbac:groups="",resources=secrets,resourceNames=pelago-auth-tls,verbs=get;update,roleName=pelago-auth,namespace=pelago-system

// load reads the authority, and makes it if its Secret is empty. Of several replicas
// that find it empty, one fills it and the others read what it has written.
func (a *authority) load(ctx context.Context) error {
	for range maxConflicts {
		secret := &corev1.Secret{}
		if err := a.client.Get(ctx, a.key, secret); err != nil {
			return fmt.Errorf("reading secret %s: %w", a.key, err)
		}
		if len(secret.Data[caCertKey]) > 0 || len(secret.Data[caKeyKey]) > 0 {
			return a.read(secret)
		}
		certificate, key, err := a.make()
		if err != nil {
			return fmt.Errorf("making the authority: %w", err)
		}
		if secret.Data == nil {
			secret.Data = map[string][]byte{}
		}
		secret.Data[caCertKey], secret.Data[caKeyKey] = certificate, key
		err = a.client.Update(ctx, secret)
		if err == nil {
			return a.read(secret)
		}
		if !apierrors.IsConflict(err) {
			return fmt.Errorf("storing the authority in secret %s: %w", a.key, plain(err))
		}
	}
	return fmt.Errorf("storing the authority in secret %s: others keep changing it", a.key)
}

// make returns a new authority in PEM: its certificate and its key.
func (a *authority) make() (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), a.rand)
	if err != nil {
		return nil, nil, err
	}
	template, err := a.template("Pelago authentication endpoint", caLife)
	if err != nil {
		return nil, nil, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(a.rand, template, template, private.Public(), private)
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

func (a *authority) template(name string, life time.Duration) (*x509.Certificate, error) {
	serial, err := rand.Int(a.rand, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := a.clock.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(life),
	}, nil
}

// read takes a stored authority. What is wrong with it is said without its content.
func (a *authority) read(secret *corev1.Secret) error {
	broken := func(what string) error {
		return fmt.Errorf("reading secret %s: %s; empty it to have a new one made, which voids all open invitations", a.key, what)
	}
	block, rest := pem.Decode(secret.Data[caCertKey])
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return broken(caCertKey + " is not one certificate in PEM")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil || !certificate.IsCA {
		return broken(caCertKey + " is not the certificate of an authority")
	}
	if !a.clock.Now().Before(certificate.NotAfter) {
		return broken(caCertKey + " has expired")
	}
	block, _ = pem.Decode(secret.Data[caKeyKey])
	if block == nil {
		return broken(caKeyKey + " is not in PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, isECDSA := key.(*ecdsa.PrivateKey)
	if err != nil || !isECDSA || !private.PublicKey.Equal(certificate.PublicKey) {
		return broken(caKeyKey + " is not the ECDSA key of " + caCertKey)
	}
	a.cert, a.signer = certificate, private
	return nil
}

// serve returns the certificate to serve with, with that of the authority behind it.
// From two thirds of its life on it is replaced; while that fails the old one goes on.
func (a *authority) serve(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if a.leaf != nil && now.Before(a.renew) {
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

func (a *authority) makeLeaf() (*tls.Certificate, error) {
	if a.cert == nil {
		return nil, errors.New("there is no authority yet")
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), a.rand)
	if err != nil {
		return nil, err
	}
	template, err := a.template(v1alpha1.AuthService, leafLife)
	if err != nil {
		return nil, err
	}
	if template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	template.DNSNames = []string{v1alpha1.AuthService}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	der, err := x509.CreateCertificate(a.rand, template, a.cert, private.Public(), a.signer)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: private}, nil
}
