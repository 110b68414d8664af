package kubelet

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// What is in a serving certificate of a node, by the rules of its signer.
const (
	userPrefix   = "system:node:"
	organization = "system:nodes"
	selfLife     = 10 * 365 * 24 * time.Hour // longer than any process
	skew         = 10 * time.Minute
)

// names are what a certificate is for.
type names struct {
	hosts []string
	ips   []net.IP
}

// namesOf are a node's addresses and the host name that it has of earlier builds, sorted. A host name
// with a dot, as of a request with one, could be anybody's in DNS: no certificate is approved for it.
func namesOf(node *corev1.Node) names {
	var n names
	for _, a := range node.Status.Addresses {
		switch ip := net.ParseIP(a.Address); {
		case a.Type == corev1.NodeInternalIP && ip != nil:
			n.ips = append(n.ips, ip)
		case a.Type == corev1.NodeHostName && ip == nil && a.Address == node.Name && !strings.Contains(a.Address, "."):
			n.hosts = append(n.hosts, a.Address)
		}
	}
	slices.Sort(n.hosts)
	n.hosts = slices.Compact(n.hosts)
	slices.SortFunc(n.ips, func(a, b net.IP) int { return bytes.Compare(a.To16(), b.To16()) })
	n.ips = slices.CompactFunc(n.ips, net.IP.Equal)
	return n
}

func (n names) empty() bool { return len(n.ips) == 0 }

func (n names) equal(o names) bool {
	return slices.Equal(n.hosts, o.hosts) && slices.EqualFunc(n.ips, o.ips, net.IP.Equal)
}

// selfSigned makes a certificate that proves nothing, for until there is a real one.
func selfSigned(node string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: userPrefix + node},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(selfLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// request makes a key and a signing request for it.
func request(node string, n names) (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: userPrefix + node, Organization: []string{organization}},
		DNSNames: n.hosts, IPAddresses: n.ips,
	}, key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), nil
}

// signed reads what a signer made, and refuses what is of no use here.
func signed(text []byte, key *ecdsa.PrivateKey, n names, now time.Time) (*tls.Certificate, *x509.Certificate, error) {
	var chain [][]byte
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			chain = append(chain, block.Bytes)
		}
	}
	if len(chain) == 0 {
		return nil, nil, errors.New("the certificate is not in PEM")
	}
	leaf, err := x509.ParseCertificate(chain[0])
	switch {
	case err != nil:
		return nil, nil, errors.New("the certificate is not in DER")
	case !key.PublicKey.Equal(leaf.PublicKey):
		return nil, nil, errors.New("the certificate is for another key")
	case leaf.NotBefore.After(now.Add(skew)) || !leaf.NotAfter.After(now):
		return nil, nil, errors.New("the certificate is not valid now")
	}
	for _, ip := range n.ips {
		if leaf.VerifyHostname(ip.String()) != nil {
			return nil, nil, fmt.Errorf("the certificate is not for %s", ip)
		}
	}
	return &tls.Certificate{Certificate: chain, PrivateKey: key, Leaf: leaf}, leaf, nil
}

// renewal is when a certificate is replaced: at two thirds of its life.
func renewal(leaf *x509.Certificate) time.Time {
	return leaf.NotBefore.Add(leaf.NotAfter.Sub(leaf.NotBefore) * 2 / 3)
}

// install is what takes a certificate into use.
type install func(*tls.Certificate)
