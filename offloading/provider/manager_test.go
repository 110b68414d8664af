package provider

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// manage runs the room in a real manager until the test ends.
func (b *bench) manage() {
	b.t.Helper()
	server := kubetest.Server(b.t)
	mgr, err := ctrl.NewManager(server.Config, ctrl.Options{
		Scheme: b.c.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{ // others use the same server
			&v1alpha1.ShadowPod{}: {Namespaces: map[string]cache.Config{b.tenantSpace(): {}}},
		}},
	})
	b.must(err)
	b.must(Register(mgr, Options{}))
	b.run(mgr)
}

// run runs a manager until the test ends.
func (b *bench) run(mgr ctrl.Manager) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("the manager ended with %v", err)
		}
	})
}

// wait waits until something is so.
func (b *bench) wait(what string, is func() bool) {
	b.t.Helper()
	deadline := time.After(2 * time.Minute)
	for !is() {
		select {
		case <-deadline:
			b.t.Fatalf("waited in vain: %s; the shadow pod is %s", what, b.show())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (b *bench) count(list client.ObjectList, namespace string) int {
	b.t.Helper()
	b.must(b.c.List(b.t.Context(), list, client.InNamespace(namespace)))
	switch l := list.(type) {
	case *corev1.PodList:
		return len(l.Items)
	case *v1alpha1.ShadowPodList:
		return len(l.Items)
	}
	return -1
}

// With a real manager, its cache and its events: nobody calls Reconcile but what happens.
func TestManager(t *testing.T) {
	b := newBench(t)
	b.manage()
	node := b.node(corev1.ConditionTrue)

	broken := b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) { s.Spec.Home.Name = "broken" })
	b.wait("a pod that does not start", func() bool { return len(b.podsOf(broken.Name)) == 1 })
	b.event(b.pod(), corev1.EventTypeWarning, "FailedMount", "no configmap")

	b.shadowPod(corev1.RestartPolicyAlways)
	b.wait("a pod", func() bool { return len(b.podsOf(b.uid)) == 1 })
	first := b.pod()
	b.bind(node.Name)
	b.status(running)
	b.wait("Running", func() bool { return b.get(b.uid).Status.Phase == "Running" })

	old := b.uid
	b.shadowPod(corev1.RestartPolicyAlways)
	b.wait("the name to be taken", func() bool { return b.reason() == "False NameTaken" })
	b.must(b.c.Delete(t.Context(), b.get(old)))
	b.wait("the first to go", func() bool { return b.podsOf(old)[0].DeletionTimestamp != nil })
	begun := time.Now()
	b.must(b.c.Delete(t.Context(), first, client.GracePeriodSeconds(0)))
	b.wait("the name to be free", func() bool { return len(b.podsOf(b.uid)) == 1 })
	if took := time.Since(begun); took > refusedAgain*2/3 {
		t.Errorf("it took %s to notice that the name is free: nothing but the next try did", took)
	}
	b.wait("the first to be gone", func() bool { return b.get(old) == nil })

	// The namespace is not ready, then it is.
	m := &v1alpha1.NamespaceMap{}
	b.must(b.c.Get(t.Context(), client.ObjectKey{Namespace: b.tenantSpace(), Name: v1alpha1.NamespaceMapName}, m))
	m.Status.Namespaces["later"] = v1alpha1.MappedNamespace{Phase: v1alpha1.MappingPending}
	b.must(b.c.Status().Update(t.Context(), m))
	b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) {
		s.Spec.Home = v1alpha1.HomePod{Namespace: "later", Name: "x"}
	})
	b.wait("it to wait", func() bool { return b.reason() == "False NamespaceMissing" })
	later := &corev1.Namespace{}
	later.Name = "later-" + b.tenant
	later.Labels = map[string]string{v1alpha1.LabelTenant: b.tenant, v1alpha1.LabelHomeNamespace: "later"}
	b.must(b.c.Create(t.Context(), later))
	t.Cleanup(func() {
		b.must(b.c.DeleteAllOf(context.Background(), &corev1.Pod{}, client.InNamespace(later.Name), client.GracePeriodSeconds(0)))
		b.dropNamespace(context.Background(), later.Name)
	})
	m.Status.Namespaces["later"] = v1alpha1.MappedNamespace{Phase: v1alpha1.MappingReady, Name: later.Name}
	b.must(b.c.Status().Update(t.Context(), m))
	b.wait("it to run", func() bool { return len(b.podsOf(b.uid)) == 1 })

	// Cordoned, and not any more.
	tenant := &v1alpha1.Tenant{}
	b.must(b.c.Get(t.Context(), client.ObjectKey{Name: b.tenant}, tenant))
	tenant.Spec.State = v1alpha1.TenantCordoned
	b.must(b.c.Update(t.Context(), tenant))
	b.wait("the cache", func() bool {
		b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) { s.Spec.Home.Name = "c" + s.Name })
		b.wait("an answer", func() bool { return b.reason() != "" })
		return b.reason() == "False Cordoned"
	})
	tenant.Spec.State = v1alpha1.TenantActive
	b.must(b.c.Update(t.Context(), tenant))
	b.wait("it to run", func() bool { return b.reason() == "True Running" })
	b.wait("the warning to be told", func() bool {
		told := b.get(broken.Name).Status.Warnings
		return len(told) == 1 && told[0].Reason == "FailedMount" && told[0].Message == "no configmap"
	})
	b.many(100)
	b.takenAway(node)
}

// takenAway takes the namespace away from the tenant while a pod runs in it.
func (b *bench) takenAway(node *corev1.Node) {
	b.t.Helper()
	b.shadowPod(corev1.RestartPolicyNever, func(s *v1alpha1.ShadowPod) { s.Spec.Home.Name = "job" })
	b.wait("a pod that is held", func() bool { pods := b.podsOf(b.uid); return len(pods) == 1 && pinnedByUs(&pods[0]) })
	b.bind(node.Name)
	b.status(running)
	b.wait("Running", func() bool { return b.get(b.uid).Status.Phase == "Running" })
	n := &corev1.Namespace{}
	b.must(b.c.Get(b.t.Context(), client.ObjectKey{Name: b.space}, n))
	before := n.DeepCopy()
	delete(n.Labels, v1alpha1.LabelTenant)
	b.must(b.c.Patch(b.t.Context(), n, client.MergeFrom(before)))
	b.wait("it to be let go of", func() bool { return !pinnedByUs(b.pod()) })
}

// many makes pods and ends them again, and tells how fast.
func (b *bench) many(n int) {
	b.t.Helper()
	before := b.count(&corev1.PodList{}, b.space)
	shadowsBefore := b.count(&v1alpha1.ShadowPodList{}, b.tenantSpace())
	begun := time.Now()
	var uids []string
	for i := range n {
		uids = append(uids, b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) { s.Spec.Home.Name = fmt.Sprintf("many-%d", i) }).Name)
	}
	b.wait("all pods", func() bool { return b.count(&corev1.PodList{}, b.space) == before+n })
	b.t.Logf("%d shadow pods were written and their pods made in %s", n, time.Since(begun).Round(time.Millisecond))
	begun = time.Now()
	for _, uid := range uids {
		b.must(b.c.Delete(b.t.Context(), &v1alpha1.ShadowPod{ObjectMeta: metaOf(b.tenantSpace(), uid)}))
	}
	b.wait("all to be gone", func() bool { return b.count(&v1alpha1.ShadowPodList{}, b.tenantSpace()) == shadowsBefore })
	b.t.Logf("they were ended in %s", time.Since(begun).Round(time.Millisecond))
	if left := b.count(&corev1.PodList{}, b.space); left != before {
		b.t.Errorf("%d pods are left, want %d", left, before)
	}
}
