package conformance

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/pelago-dev/pelago/api/wire"
)

// bad is a server that does one thing wrong.
type bad struct {
	wire.UnimplementedResourceReaderServer
	answer func(ctx context.Context, r *wire.ReadResourcesRequest) (map[string]string, error)
	remove error
	listen func(wire.ResourceReader_SubscribeServer) error

	mu   sync.Mutex
	seen map[string]bool
}

func (b *bad) ReadResources(ctx context.Context, r *wire.ReadResourcesRequest) (*wire.ReadResourcesResponse, error) {
	resources, err := b.answer(ctx, r)
	return &wire.ReadResourcesResponse{Resources: resources}, err
}

func (b *bad) RemoveCluster(_ context.Context, r *wire.RemoveClusterRequest) (*wire.RemoveClusterResponse, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.remove != nil && b.seen[r.GetClusterId()] {
		return nil, b.remove
	}
	b.seen[r.GetClusterId()] = true
	return &wire.RemoveClusterResponse{}, nil
}

func (b *bad) Subscribe(_ *wire.SubscribeRequest, stream wire.ResourceReader_SubscribeServer) error {
	if b.listen == nil {
		<-stream.Context().Done()
		return nil
	}
	return b.listen(stream)
}

// connect serves b and connects to it.
func connect(t *testing.T, b *bad) *grpc.ClientConn {
	t.Helper()
	b.seen = map[string]bool{}
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	wire.RegisterResourceReaderServer(server, b)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix://"+path, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// good answers what it is told is free.
func good(_ context.Context, r *wire.ReadResourcesRequest) (map[string]string, error) {
	return r.GetFree(), nil
}

func TestGoodServer(t *testing.T) { Test(t, connect(t, &bad{answer: good})) }

// Each check finds what it is for.
func TestChecksFind(t *testing.T) {
	for _, c := range []struct {
		reason string
		server *bad
		want   string // in the name of a check that fails
	}{
		{"it lies", &bad{answer: func(context.Context, *wire.ReadResourcesRequest) (map[string]string, error) {
			return map[string]string{"cpu": "-1"}, nil
		}}, "with resources that can be read"},
		{"it is slow", &bad{answer: func(ctx context.Context, _ *wire.ReadResourcesRequest) (map[string]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}, "answers a question within a second"},
		{"it wants something to be free", &bad{answer: func(ctx context.Context, r *wire.ReadResourcesRequest) (map[string]string, error) {
			if r.GetFree()["cpu"] == "0" {
				return nil, errors.New("why do you ask")
			}
			return good(ctx, r)
		}}, "nothing is free"},
		{"it knows its consumers", &bad{answer: func(ctx context.Context, r *wire.ReadResourcesRequest) (map[string]string, error) {
			if !strings.HasPrefix(r.GetCluster().GetTenant(), "conformance-") {
				return nil, status.Error(codes.NotFound, "who")
			}
			return good(ctx, r)
		}}, "does not know is no error"},
		{"it ends without a consumer", &bad{answer: func(ctx context.Context, r *wire.ReadResourcesRequest) (map[string]string, error) {
			if r.GetCluster() == nil {
				return nil, status.Error(codes.Unavailable, "as if it had ended")
			}
			return good(ctx, r)
		}}, "without a consumer"},
		{"it answers all names and one more", &bad{answer: func(_ context.Context, r *wire.ReadResourcesRequest) (map[string]string, error) {
			r.GetFree()["example.com/one-more"] = "1"
			return r.GetFree(), nil
		}}, "as many as there can be"},
		{"one at a time", &bad{answer: func() func(context.Context, *wire.ReadResourcesRequest) (map[string]string, error) {
			one := make(chan struct{}, 1)
			return func(ctx context.Context, r *wire.ReadResourcesRequest) (map[string]string, error) {
				one <- struct{}{}
				defer func() { <-one }()
				late := time.NewTimer(50 * time.Millisecond)
				defer late.Stop()
				<-late.C
				return good(ctx, r)
			}
		}()}, "at once"},
		{"it counts removals", &bad{answer: good, remove: errors.New("gone already")}, "can be removed"},
		{"it hangs up", &bad{answer: good, listen: func(wire.ResourceReader_SubscribeServer) error { return nil }}, "stay open"},
	} {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			conn := connect(t, c.server)
			for _, check := range Checks {
				if strings.Contains(check.Name, c.want) {
					if err := check.Run(t.Context(), conn); err == nil {
						t.Errorf("%q found nothing", check.Name)
					}
					return
				}
			}
			t.Errorf("no check is called %q", c.want)
		})
	}
}
