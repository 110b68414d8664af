// Package kubetest gives tests real Kubernetes: an API server shared by one run of
// go test (Server), and whole clusters where a test asks for them (Sandbox). Tests
// are kept apart by names, not by servers. Both come from the program
// pelago-sandbox, run as a separate process; this package never imports the
// sandbox, never starts anything that outlives the run, and fails with the command
// to run when the program is missing.
package kubetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// startLimit bounds the wait for an API server to be ready. It takes a few seconds;
// the rest is for machines that are busy with other builds.
const startLimit = 5 * time.Minute

// APIServer is a real kube-apiserver with its etcd, shared by all tests of the run.
// No controller runs beside it: what it stores is what tests and their code wrote.
type APIServer struct {
	// Config has the rights of an administrator and no client-side rate limit.
	Config *rest.Config
	// Kubeconfig is the path of a kubeconfig with the same rights.
	Kubeconfig string
	// Startup is the time from starting the program to ready, 0 if it ran already.
	Startup time.Duration
}

// Server returns the API server of this run of go test, starting it if this is the
// first call in any test binary of the run. It ends with the run, however that ends.
// The test fails if the program is missing or the server does not become ready.
func Server(t testing.TB) *APIServer {
	t.Helper()
	program, err := findProgram()
	if err != nil {
		t.Fatal(err)
	}
	owner, err := runOwner()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	s, err := share(ctx, os.TempDir(), program, owner)
	if err != nil {
		t.Fatal(err)
	}
	config, err := loadConfig(s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return &APIServer{Config: config, Kubeconfig: s.Kubeconfig, Startup: s.startup}
}

// Name returns a name that no other test uses, for objects that belong to no
// namespace: the prefix, a dash and eight random characters.
func (s *APIServer) Name(t testing.TB, prefix string) string {
	t.Helper()
	return prefix + "-" + randomName()
}

// loadConfig reads a kubeconfig for tests: the server's own fairness is the only limit.
func loadConfig(path string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", path, err)
	}
	config.QPS = -1
	return config, nil
}

// randomName is eight characters that are valid in any Kubernetes name.
func randomName() string {
	var b [4]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}
