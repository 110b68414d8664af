package peering

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// tellingHome is a fakeHome that changes.
type tellingHome struct {
	fakeHome
	mu      sync.Mutex
	changes chan event.GenericEvent
}

func (h *tellingHome) Info() v1alpha1.ClusterInfo {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.info
}

func (h *tellingHome) Source(to handler.EventHandler) source.Source {
	return source.Channel(h.changes, to)
}

// TestManager runs everything as the program does: nobody looks but because a watch
// said so, and caches are as late as caches are.
func TestManager(t *testing.T) {
	s := newStage(t)
	mine := labels.SelectorFromSet(labels.Set{"test": s.name}) // other tests share the server
	mgr, err := ctrl.NewManager(s.server.Config, ctrl.Options{
		Scheme: kubetest.Scheme(), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.Peering{}: {Label: mine}, &v1alpha1.Tenant{}: {Label: mine},
			&corev1.Secret{}: {Namespaces: map[string]cache.Config{s.namespace: {}}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	home := &tellingHome{fakeHome: *s.home, changes: make(chan event.GenericEvent, 1)}
	s.options.Home, s.options.Clock = home, nil
	s.options.Fleet = fleet.New(fleet.Options{Scheme: kubetest.Scheme()})
	s.fleet = s.options.Fleet
	if err := mgr.Add(s.options.Fleet); err != nil {
		t.Fatal(err)
	}
	if err := Register(mgr, s.options); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })

	began := time.Now()
	s.invite(func(p *v1alpha1.Peering) { p.Labels = map[string]string{"test": s.name} })
	s.wait("there is a request", func() bool { return has(v1alpha1.ConditionResourcesAccepted, v1alpha1.ReasonPending)(s.peering()) })
	t.Logf("asked for resources %s after the invitation", time.Since(began))
	s.accept()
	s.wait("it is ready", func() bool { return ready(s.peering()) })

	home.mu.Lock()
	home.info.Version = "v0.3.1"
	home.mu.Unlock()
	home.changes <- event.GenericEvent{Object: &corev1.ConfigMap{}}
	s.wait("the provider knows the new version", func() bool {
		identity := s.identity()
		return s.exists(identity) && identity.Spec.Cluster.Version == "v0.3.1"
	})

	began = time.Now()
	s.delete(s.peering())
	s.wait("it is gone", func() bool {
		s.finalize(v1alpha1.PeeringNamespace(s.name))
		return s.peering() == nil
	})
	t.Logf("gone after %s", time.Since(began))
	s.expectNothing()
}

// wait polls for what others do.
func (s *stage) wait(what string, so func() bool) {
	s.t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline:
			s.t.Fatalf("waiting until %s: not so after a minute: %+v", what, s.peering())
		case <-tick.C:
		}
	}
}
