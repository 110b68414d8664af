// Command reader is the resource reader of cluster tests: the label example.com/does of a
// Tenant says whether it grants two CPUs to it, hangs, lies or ends. It serves TLS to those
// who show a certificate of its authority.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/pelago-dev/pelago/api/wire"
)

// folder is where the Secret is mounted.
const folder = "/tls/"

type server struct {
	wire.UnimplementedResourceReaderServer
}

// ReadResources does what the label says.
func (server) ReadResources(ctx context.Context, r *wire.ReadResourcesRequest) (*wire.ReadResourcesResponse, error) {
	grants := map[string]string{"cpu": "2", "memory": "1Gi"}
	switch r.GetCluster().GetLabels()["example.com/does"] {
	case "hang":
		<-ctx.Done()
	case "lie":
		grants["cpu"] = "-2"
	case "end":
		os.Exit(1)
	}
	return &wire.ReadResourcesResponse{Resources: grants}, nil
}

func main() {
	if err := serve(); err != nil {
		log.Fatal(err)
	}
}

func serve() error {
	pair, err := tls.LoadX509KeyPair(folder+"tls.crt", folder+"tls.key")
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(folder + "ca.crt")
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return errors.New("ca.crt holds no certificate")
	}
	listener, err := net.Listen("tcp", ":8443")
	if err != nil {
		return err
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool, MinVersion: tls.VersionTLS13,
	})))
	wire.RegisterResourceReaderServer(s, server{})
	return s.Serve(listener)
}
