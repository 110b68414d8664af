package reader

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"google.golang.org/grpc/credentials"
)

// Files of the folder that a Secret is mounted at. Each is read when it is needed, so
// that a Secret may change.
const (
	authorityFile   = "ca.crt"  // whom the program's certificate is from; no TLS without it
	certificateFile = "tls.crt" // of the manager, for mTLS; with its key
	keyFile         = "tls.key"
	tokenFile       = "token" // sent as a bearer token
)

// folder is such a folder, "" if there is none.
type folder string

// read returns the content of a file, nil if there is none.
func (f folder) read(name string) ([]byte, error) {
	if f == "" {
		return nil, nil
	}
	content, err := os.ReadFile(filepath.Join(string(f), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return content, err
}

// trusts says whether the folder has an authority, or something in its place.
func (f folder) trusts() bool {
	authority, err := f.read(authorityFile)
	return authority != nil || err != nil
}

// config is the TLS of a connection made now.
func (f folder) config() (*tls.Config, error) {
	authority, err := f.read(authorityFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("there is no %s with certificates in PEM", authorityFile)
	}
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
	certificate, err := f.read(certificateFile)
	if err != nil || certificate == nil {
		return config, err
	}
	key, err := f.read(keyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		return nil, fmt.Errorf("%s and %s are no pair: %w", certificateFile, keyFile, err)
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// fresh is TLS of which every handshake reads the folder again.
type fresh struct {
	credentials.TransportCredentials
	folder folder
}

// ClientHandshake shakes hands with the certificates of now.
func (t fresh) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := t.folder.config()
	if err != nil {
		return nil, nil, fmt.Errorf("reading the certificates of the resource reader: %w", err)
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, authority, conn)
}

// Clone returns the same: there is nothing to change in it.
func (t fresh) Clone() credentials.TransportCredentials { return t }

// bearer sends the token of the folder, if there is one, with every call.
type bearer struct{ folder folder }

// GetRequestMetadata reads the token.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := b.folder.read(tokenFile)
	if err != nil || token == nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(token))}, nil
}

// RequireTransportSecurity says no: where there is no TLS, nobody else can listen.
func (bearer) RequireTransportSecurity() bool { return false }
