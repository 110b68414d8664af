// Command reader is an example of a resource reader: it grants each consumer a quota by
// the label example.com/plan that the owner puts on its Tenant, and nothing to consumers
// without a plan. Begin your own with a copy of it.
package main

import (
	"context"
	"flag"
	"log"
	"net"
	"os"
	"os/signal"
	"strings"

	"google.golang.org/grpc"

	"github.com/pelago-dev/pelago/api/wire"
)

// plans are the quotas: all that a consumer may have, what it uses included.
var plans = map[string]map[string]string{
	"small": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "10Gi"},
	"large": {"cpu": "16", "memory": "64Gi", "ephemeral-storage": "200Gi", "example.com/gpu": "1"},
}

// quota is the server. RemoveCluster and Subscribe are left unimplemented: it keeps
// nothing by consumer, and when a label changes it is asked anew at once.
type quota struct {
	wire.UnimplementedResourceReaderServer
}

// ReadResources answers from the plan.
func (quota) ReadResources(_ context.Context, r *wire.ReadResourcesRequest) (*wire.ReadResourcesResponse, error) {
	plan := r.GetCluster().GetLabels()["example.com/plan"]
	return &wire.ReadResourcesResponse{Resources: plans[plan]}, nil
}

func main() {
	address := flag.String("address", "unix:///run/pelago/reader.sock", "where to listen: unix:///path, or HOST:PORT behind something that adds TLS")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := serve(ctx, *address); err != nil {
		log.Fatal(err)
	}
}

// serve answers until ctx ends.
func serve(ctx context.Context, address string) error {
	network, at := "tcp", address
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		network, at = "unix", path
		_ = os.Remove(path) // left behind by a crash
	}
	listener, err := net.Listen(network, at)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	wire.RegisterResourceReaderServer(server, quota{})
	context.AfterFunc(ctx, server.Stop)
	return server.Serve(listener)
}
