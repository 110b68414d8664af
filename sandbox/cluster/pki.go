package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// authority signs the certificates of one cluster. Its files lie in dir:
// NAME.crt and NAME.key, keys readable by their owner only.
type authority struct {
	dir  string
	name string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

const validity = 365 * 24 * time.Hour

// openAuthority reads the authority called name, making it the first time.
func openAuthority(dir, name string) (*authority, error) {
	a := &authority{dir: dir, name: name}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making folder for certificates: %w", err)
	}
	if !isWritten(a.path(name, "crt")) {
		key, err := newKey(a.path(name, "key"))
		if err != nil {
			return nil, err
		}
		template := certificate(pkix.Name{CommonName: name})
		template.IsCA, template.BasicConstraintsValid = true, true
		template.KeyUsage |= x509.KeyUsageCertSign
		if err := a.write(name, template, template, key.Public(), key); err != nil {
			return nil, err
		}
	}
	return a, a.load()
}

func (a *authority) path(name, kind string) string { return filepath.Join(a.dir, name+"."+kind) }

func (a *authority) load() error {
	text, err := os.ReadFile(a.path(a.name, "crt"))
	if err != nil {
		return fmt.Errorf("reading certificate authority: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return fmt.Errorf("%s holds no certificate; remove the sandbox and start again", a.path(a.name, "crt"))
	}
	if a.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		return fmt.Errorf("reading certificate authority: %w", err)
	}
	text, err = os.ReadFile(a.path(a.name, "key"))
	if err != nil {
		return fmt.Errorf("reading key of certificate authority: %w", err)
	}
	if block, _ = pem.Decode(text); block == nil {
		return fmt.Errorf("%s holds no key; remove the sandbox and start again", a.path(a.name, "key"))
	}
	a.key, err = x509.ParseECPrivateKey(block.Bytes)
	return err
}

// client makes a client certificate unless it is there already.
func (a *authority) client(file, user string, groups ...string) error {
	return a.issue(file, pkix.Name{CommonName: user, Organization: groups}, x509.ExtKeyUsageClientAuth, nil, nil)
}

// server makes a server certificate unless it is there already.
func (a *authority) server(file string, subject pkix.Name, names []string, addresses []netip.Addr) error {
	return a.issue(file, subject, x509.ExtKeyUsageServerAuth, names, addresses)
}

func (a *authority) issue(file string, subject pkix.Name, usage x509.ExtKeyUsage, names []string, addresses []netip.Addr) error {
	if isWritten(a.path(file, "key")) && isWritten(a.path(file, "crt")) {
		return nil
	}
	key, err := newKey(a.path(file, "key"))
	if err != nil {
		return err
	}
	template := certificate(subject)
	template.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	template.DNSNames = names
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(address.AsSlice()))
	}
	return a.write(file, template, a.cert, key.Public(), a.key)
}

func (a *authority) write(file string, template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer) error {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, signer)
	if err != nil {
		return fmt.Errorf("signing certificate %s: %w", file, err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return writeWhole(a.path(file, "crt"), text, 0o644)
}

func certificate(subject pkix.Name) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    time.Now().Add(-5 * time.Minute),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

// newKey makes a private key and stores it, readable by its owner only.
func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
	if err := writeWhole(path, text, 0o600); err != nil {
		return nil, fmt.Errorf("storing a key: %w", err)
	}
	return key, nil
}

// randomFile stores a secret of some random bytes, in hexadecimal, unless it is
// there already.
func randomFile(path string, bytes int) error {
	if isWritten(path) {
		return nil
	}
	secret := make([]byte, bytes)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("making a secret: %w", err)
	}
	return writeWhole(path, []byte(hex.EncodeToString(secret)), 0o600)
}

// writeWhole writes a file that is there whole afterwards or not at all, as on a
// full disk: what is made once would be spoilt for good.
func writeWhole(path string, text []byte, mode fs.FileMode) error {
	if err := os.WriteFile(path+".new", text, mode); err != nil {
		_ = os.Remove(path + ".new")
		return fmt.Errorf("writing %s: %w", filepath.Base(path), err)
	}
	return os.Rename(path+".new", path)
}

// isWritten tells whether a file is there. An empty one is what a full disk, or
// the loss of power, has left.
func isWritten(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}
