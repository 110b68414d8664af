package consumer

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// await polls until the condition holds.
func (w *world) await(what string, condition func() bool) {
	w.t.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline.C:
			w.t.Fatalf("waiting until %s: not so after two minutes", what)
		case <-tick.C:
		}
	}
}

// TestManager runs everything as in the program, with a fleet, a cache and its events.
func TestManager(t *testing.T) {
	w := newWorld(t)
	config := rest.CopyConfig(kubetest.Server(t).Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	named := func(name string) cache.ByObject {
		return cache.ByObject{Field: fields.OneTermEqualSelector("metadata.name", name)}
	}
	here := cache.ByObject{Namespaces: map[string]cache.Config{w.home: {}}}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: kubetest.Scheme(), Logger: logr.Discard(), Metrics: server.Options{BindAddress: "0"},
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{ // others use the same server
			&corev1.Pod{}: here, &v1alpha1.NamespaceOffloading{}: here, &corev1.Namespace{}: named(w.home),
			&corev1.Node{}: {Label: labels.SelectorFromSet(labels.Set{"world": w.peering})}, &v1alpha1.Peering{}: named(w.peering),
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	links := fleet.New(fleet.Options{Scheme: kubetest.Scheme()})
	if err := Register(mgr, Options{Fleet: Connections(links), Views: w.views, Tunnels: w.tunnels, Clock: w.clock}); err != nil {
		t.Fatal(err)
	}
	if err := mgr.Add(links); err != nil {
		t.Fatal(err)
	}
	early := w.pod("early")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if err := links.Set(ctx, fleet.Connection{
		Peering: w.peering, ClusterID: "x", ServerURL: config.Host, CA: config.CAData,
		Certificate: config.CertData, Key: config.KeyData, TenantNamespace: w.peer.namespace,
	}); err != nil {
		t.Fatal(err)
	}
	w.await("the pod that was there is carried", func() bool { return w.shadow(early) != nil })
	w.keepsThroughOutages()
	p := w.pod("web", owned("ReplicaSet"))
	w.await("the new pod is carried", func() bool { return w.shadow(p) != nil })
	began := time.Now()
	w.tell(p, addressed("10.42.0.7"), accepted(metav1.ConditionTrue, v1alpha1.ReasonRunning, ""))
	w.await("the pod runs", func() bool { return w.now(p).Status.Phase == corev1.PodRunning })
	t.Logf("status is home after %s", time.Since(began))
	if ip := w.now(p).Status.PodIP; ip != "" {
		t.Errorf("without a view the pod is at %s", ip)
	}
	w.view("10.81.0.0/16")
	w.await("the pod has an address", func() bool { return w.now(p).Status.PodIP == "10.81.0.7" })
	w.view("10.82.0.0/16")
	w.await("the pod has the new one", func() bool { return w.now(p).Status.PodIP == "10.82.0.7" })
	w.view("")
	w.await("the pod has none again", func() bool { return w.now(p).Status.PodIP == "" })
	w.tunnelDies()
	w.gatewaysCome()

	w.delete(early)
	w.await("the end is asked for", func() bool { return w.shadow(early).DeletionTimestamp != nil })
	w.release(string(early.UID))
	w.await("the pod is gone", func() bool { return w.now(early) == nil })

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node}}
	text := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}]}}`, "192.0.2.8")
	if err := w.admin.Status().Patch(ctx, node, client.RawPatch("application/strategic-merge-patch+json", []byte(text))); err != nil {
		t.Fatal(err)
	}

	outside := w.pod("late", func(p *corev1.Pod) { p.Spec.NodeName = "" })
	if err := w.admin.SubResource("binding").Create(ctx, outside, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: w.node}}); err != nil {
		t.Fatal(err)
	}
	w.await("the bound pod is carried", func() bool { return w.shadow(outside) != nil })

	w.remote()
	held, owner := w.pod("held", owned("ReplicaSet")), uuid.NewUUID()
	w.await("the pod is carried that will be refused", func() bool { return w.shadow(held) != nil })
	w.tell(held, nil, accepted(metav1.ConditionFalse, v1alpha1.ReasonLimitExceeded, ""))
	w.await("it says why", func() bool { return w.now(held).Status.Reason == v1alpha1.ReasonLimitExceeded })
	w.refuses(w.node, owner, time.Hour)
	waiting := w.unplaced("waiting", ownedBy("ReplicaSet", owner), avoiding(w.node, w.peering+"-2"))
	if w.now(held).DeletionTimestamp != nil {
		t.Error("it is evicted, and there is no other place")
	}
	w.await("a pod goes that avoids the only node and one that is gone", func() bool { return w.now(waiting) == nil })
	w.second()
	w.await("there is another place, and it is evicted", func() bool { return w.now(held).DeletionTimestamp != nil })
	w.release(string(held.UID))
	owner = uuid.NewUUID()
	w.refuses(w.node, owner, time.Hour)
	cached := &v1alpha1.NamespaceMap{}
	w.await("the refusal is known", func() bool {
		err := mgr.GetClient().Get(ctx, mapKey(w.node), cached)
		return err == nil && len(cached.Status.Refusals) == 1 && cached.Status.Refusals[0].Owner == string(owner)
	})
	waiting = w.unplaced("waiting", ownedBy("ReplicaSet", owner), avoiding(w.node))
	canary := w.unplaced("canary", owned("ReplicaSet"), avoiding(w.node))
	w.await("a later one of another owner goes", func() bool { return w.now(canary) == nil })
	if w.now(waiting) == nil {
		t.Error("a pod went while its node is to be avoided")
	}
	w.refuses(w.node, owner, 0)
	w.await("it goes when its node is not to be avoided", func() bool { return w.now(waiting) == nil })

	// The namespace comes home under a pod of a DaemonSet, and a cluster is left under another.
	daemon := w.pod("daemon", owned("DaemonSet"))
	w.await("the pod of a DaemonSet is carried", func() bool { return w.shadow(daemon) != nil })
	w.label(false)
	w.awaitEnd(daemon)
	w.label(true)
	daemon = w.pod("daemon-2", owned("DaemonSet"))
	w.await("the second pod of a DaemonSet is carried", func() bool { return w.shadow(daemon) != nil })
	w.mapped(false)
	w.awaitEnd(daemon)
	daemon = w.pod("daemon-3", owned("DaemonSet"))
	w.await("the third one waits", func() bool { return w.now(daemon).Status.Reason == v1alpha1.ReasonNamespaceMissing })
	w.mapped(true)
	w.await("the third one is carried", func() bool { return w.shadow(daemon) != nil })

	links.Remove(w.peering)
	w.delete(outside)
	w.drop(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: v1alpha1.OffloadingName}})
	if err := links.Set(ctx, fleet.Connection{
		Peering: w.peering, ClusterID: "x", ServerURL: config.Host, CA: config.CAData,
		Certificate: config.CertData, Key: config.KeyData, TenantNamespace: w.peer.namespace,
	}); err != nil {
		t.Fatal(err)
	}
	w.await("the connection is back and the end is asked for", func() bool { return w.shadow(outside).DeletionTimestamp != nil })
	w.release(string(outside.UID))
	w.await("the pod is gone", func() bool { return w.now(outside) == nil })

	w.delete(p, client.GracePeriodSeconds(0))
	w.await("what was left behind is ended", func() bool { return w.shadow(p).DeletionTimestamp != nil })
}
