package main

import (
	"context"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/pelago-dev/pelago/api/conformance"
	"github.com/pelago-dev/pelago/api/wire"
)

// The example keeps the contract, over the socket that it listens at.
func TestExampleConforms(t *testing.T) {
	address := "unix://" + filepath.Join(t.TempDir(), "reader.sock")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, address) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("it ended with %v", err)
		}
	})
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conformance.Test(t, conn)
}

func TestPlans(t *testing.T) {
	for plan, resources := range plans {
		r := &wire.ReadResourcesRequest{Cluster: &wire.Cluster{Labels: map[string]string{"example.com/plan": plan}}}
		answer, err := quota{}.ReadResources(t.Context(), r)
		if err != nil || answer.GetResources()["cpu"] != resources["cpu"] {
			t.Errorf("%s: %v, %v", plan, answer, err)
		}
		if _, err := wire.Amounts(resources); err != nil {
			t.Errorf("%s: %v", plan, err)
		}
	}
	if answer, err := (quota{}).ReadResources(t.Context(), &wire.ReadResourcesRequest{}); err != nil || len(answer.GetResources()) > 0 {
		t.Errorf("without a plan: %v, %v", answer, err)
	}
}
