package kubetest

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// kindsLimit bounds the wait for Pelago's kinds to be served.
const kindsLimit = 2 * time.Minute

// Scheme returns a scheme with the kinds of Kubernetes and of Pelago.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(scheme))
	utilruntime.Must(v1alpha1.AddToScheme(scheme))
	return scheme
}

// clients are those of the servers that Server returned, by the path of the kubeconfig.
var clients struct {
	sync.Mutex
	made map[string]client.WithWatch
}

// Client returns a client of the server that knows Pelago's kinds, which it defines
// there first, from deploy/generated/crds, with one field more (see Later). It reads from the server, not from a cache.
// All tests of a process have one client: definitions and discovery take a second.
func (s *APIServer) Client(t testing.TB) client.WithWatch {
	t.Helper()
	if s.Kubeconfig == "" { // not of Server; its kinds may come and go
		return s.newClient(t)
	}
	clients.Lock()
	defer clients.Unlock()
	if clients.made[s.Kubeconfig] == nil {
		made := s.newClient(t)
		if clients.made == nil {
			clients.made = map[string]client.WithWatch{}
		}
		clients.made[s.Kubeconfig] = made
	}
	return clients.made[s.Kubeconfig]
}

func (s *APIServer) newClient(t testing.TB) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(s.Config, client.Options{Scheme: Scheme()})
	if err != nil {
		t.Fatalf("making a client: %v", err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	root, err := repositoryRoot(here)
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "deploy", "generated", "crds", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("finding the definitions of Pelago's kinds: %d files, %v; run: make gen", len(files), err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), kindsLimit)
	defer cancel()
	for _, file := range files {
		if err := define(ctx, c, file); err != nil {
			t.Fatalf("defining %s: %v", filepath.Base(file), err)
		}
	}
	return c
}

// define applies one CustomResourceDefinition and waits until it is served.
func define(ctx context.Context, c client.Client, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	definition := &unstructured.Unstructured{}
	if err := yaml.Unmarshal(text, &definition.Object); err != nil {
		return err
	}
	if err := addLater(definition); err != nil {
		return err
	}
	owner := client.FieldOwner("kubetest")
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(definition), owner, client.ForceOwnership); err != nil {
		return err
	}
	kind, _, _ := unstructured.NestedString(definition.Object, "spec", "names", "kind")
	served := &unstructured.UnstructuredList{}
	served.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind + "List"))
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if c.List(ctx, served, client.Limit(1)) == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
