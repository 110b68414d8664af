package offer

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/home"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// selfFleet is a provider that is this same cluster, watched through the manager.
type selfFleet struct {
	*fakePeer
	cache cache.Cache
}

func (f selfFleet) Peer(string) (Peer, bool) { return f.fakePeer, true }

func (f selfFleet) Source(kind client.Object, mapper func(string, client.Object) []reconcile.Request) source.Source {
	return source.Kind(f.cache, kind, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
		if obj.GetNamespace() != f.namespace {
			return nil
		}
		return mapper(f.namespace[len(v1alpha1.TenantNamespacePrefix):], obj)
	}))
}

func (f selfFleet) StateSource(func(string) []reconcile.Request) source.Source {
	return source.Channel(make(chan event.GenericEvent), &handler.EnqueueRequestForObject{})
}

// fixedHome is settings that do not change.
type fixedHome struct{ offer home.Offer }

func (f fixedHome) Config() home.Config { return home.Config{Offer: f.offer} }
func (fixedHome) Subscribe(func())      {}

// With a real manager: a request becomes an accepted offer, and the offer follows a
// pod on a node.
func TestRegister(t *testing.T) {
	w := newWorld(t)
	gpu := "test.pelago.dev/" + w.name
	server := kubetest.Server(t)
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: w.client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{w.there("").Namespace: {}, w.here("").Namespace: {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = Register(mgr, Options{
		Home:  fixedHome{home.Offer{Reserve: "25%"}},
		Fleet: selfFleet{w.peer, mgr.GetCache()},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	})

	node := aNode(w.name, list(cpu, "8", memory, "8Gi", pods, "10", gpu, "4"))
	allocatable, conditions := node.Status.Allocatable, node.Status.Conditions
	w.create(node)
	node.Status.Allocatable, node.Status.Capacity, node.Status.Conditions = allocatable, allocatable, conditions
	if err := w.client.Status().Update(ctx, node); err != nil {
		t.Fatal(err)
	}
	node.Spec.Taints = nil // the API server puts one on; a controller would take it off
	if err := w.client.Update(ctx, node); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	w.ask(w.here("default"), v1alpha1.ResourceRequestSpec{Resources: list(cpu, "2", gpu, "4")})
	eventually(t, "the request is ready", func() bool {
		for _, c := range w.request(w.here("default")).Status.Conditions {
			if c.Type == ready && c.Status == metav1.ConditionTrue {
				return true
			}
		}
		return false
	})
	t.Logf("request to Ready in %s", time.Since(start).Round(time.Millisecond))
	has := func(want int64) func() bool {
		return func() bool {
			o := w.offer(w.here("default"))
			return o != nil && amountsOf(o.Spec.Resources)[gpu] == want
		}
	}
	eventually(t, "a quarter is reserved", has(3))
	pod := aPod(w.name, w.name, "1", "1Gi")
	pod.Namespace, pod.UID = w.there("").Namespace, ""
	pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image = "c", "i"
	pod.Spec.ServiceAccountName = "default"
	q := list(gpu, "2")[gpu]
	pod.Spec.Containers[0].Resources.Requests[corev1.ResourceName(gpu)] = q
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceName(gpu): q}
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: "default"}})
	w.create(pod)
	eventually(t, "a pod takes two", has(1))
	now := int64(0)
	if err := w.client.Delete(ctx, pod, &client.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the pod is gone", has(3))
	if err := w.client.Delete(ctx, w.offer(w.there("default"))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the offer is withdrawn", func() bool {
		for _, c := range w.request(w.here("default")).Status.Conditions {
			if c.Type == offered && c.Reason == v1alpha1.ReasonWithdrawn {
				return true
			}
		}
		return false
	})
	if err := w.client.Delete(ctx, w.request(w.here("default"))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the request is gone from both sides", func() bool { return len(w.versions()) == 0 })
}
