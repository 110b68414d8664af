package vnode

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestRegister runs all controllers in a real manager: a node comes with an accepted
// offer, shows at once that its peer is lost and back, and goes with its pods.
func TestRegister(t *testing.T) {
	w := newWorld(t)
	server := kubetest.Server(t)
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: w.client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{w.key("").Namespace: {}, w.options.Namespace: {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.options.Clock = clock.RealClock{}
	if err := Register(mgr, w.options); err != nil {
		t.Fatal(err)
	}
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	})
	start := time.Now()
	w.offer(w.key("default"))
	is := func(want corev1.ConditionStatus) func() bool {
		return func() bool {
			n := w.node("default")
			return n != nil && nodeReady(n).Status == want && w.lease("default") != nil
		}
	}
	eventually(t, "the node is ready", is(corev1.ConditionTrue))
	t.Logf("accepted to Ready in %s", time.Since(start).Round(time.Millisecond))
	told := event.GenericEvent{Object: &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: w.name}}}
	for _, up := range []bool{false, true} {
		reason, want := v1alpha1.ReasonPeerUnreachable, corev1.ConditionFalse
		if up {
			reason, want = v1alpha1.ReasonPeerReachable, corev1.ConditionTrue
		}
		start = time.Now()
		w.peer.set(up, reason, start)
		w.peer.changed <- told
		eventually(t, "the node follows its peer", is(want))
		t.Logf("peer reachable %v: shown in %s", up, time.Since(start).Round(time.Millisecond))
	}
	w.offloaded(true)
	daemon := w.pod(w.options.Namespace, w.name, ownedBy("DaemonSet", "d", "u"), named)
	canary := w.pod(w.options.Namespace, w.name, ownedBy("DaemonSet", "d", "u"))
	says := func(p *corev1.Pod) func() bool {
		return func() bool { return w.exists(client.ObjectKeyFromObject(p), p) && answered(p) }
	}
	eventually(t, "a later pod of a DaemonSet is answered", says(canary))
	if says(daemon)() {
		t.Error("a pod of a DaemonSet that may go to its provider is answered here")
	}
	w.offloaded(false)
	eventually(t, "it is answered when its namespace comes home", says(daemon))
	pod := w.pod(w.options.Namespace, w.name)
	w.run(pod)
	w.drop("default")
	eventually(t, "the pod is asked to end", func() bool {
		return w.exists(client.ObjectKeyFromObject(pod), pod) && pod.DeletionTimestamp != nil
	})
	start = time.Now()
	if err := w.client.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	gone := func(request string) func() bool {
		return func() bool { return w.node(request) == nil && !w.exists(w.key(request), &v1alpha1.ResourceRequest{}) }
	}
	eventually(t, "the node goes when its pods have gone", gone("default"))
	t.Logf("last pod to request gone in %s", time.Since(start).Round(time.Millisecond))
	w.offer(w.key("empty"))
	eventually(t, "the second node is listed", func() bool {
		return w.node("empty") != nil && contains(w.listed(v1alpha1.AnnotationAdmissionNodes), w.name+"-empty")
	})
	start = time.Now()
	w.drop("empty")
	eventually(t, "a node without pods goes", gone("empty"))
	t.Logf("without pods: request gone in %s", time.Since(start).Round(time.Millisecond))
	eventually(t, "admission forgets it", func() bool {
		return len(w.listed(v1alpha1.AnnotationAdmissionNodes)) == 0 || !contains(w.listed(v1alpha1.AnnotationAdmissionNodes), w.name+"-empty")
	})
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-deadline:
			t.Fatalf("waiting until %s: not so after two minutes", what)
		case <-tick.C:
		}
	}
}
