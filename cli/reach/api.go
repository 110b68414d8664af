package reach

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"time"
)

// rootFile is where a pod finds by what home's API server proves who it is.
const rootFile = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"

// api calls home's API server, and has it prove who it is by a certificate of what is in a file. What
// it answers does not matter: a token of the pod's need not allow anything, and is not sent.
func api(ctx context.Context, target, at, file string) Answer {
	host, _, _ := net.SplitHostPort(target)
	roots := x509.NewCertPool()
	text, err := os.ReadFile(file)
	if err == nil && !roots.AppendCertsFromPEM(text) {
		err = errors.New("there is no certificate in " + file)
	}
	if err != nil {
		return Answer{Err: "what proves home's API server is not there: " + err.Error(), At: AtTransfer}
	}
	begin := time.Now()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
	if err != nil {
		return Answer{Err: plain(err), At: AtConnect}
	}
	took := time.Since(begin)
	defer conn.Close()
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12},
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+target+"/version", nil)
	if err != nil {
		return Answer{Err: err.Error(), At: AtName}
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return Answer{Err: plain(err), At: AtTransfer}
	}
	_ = response.Body.Close()
	return Answer{Server: API, Micros: took.Microseconds()}
}
