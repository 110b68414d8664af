package vnode

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/discovery"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestLife follows a node from the accepted offer to its end.
func TestLife(t *testing.T) {
	w := newWorld(t)
	w.offer(w.key("default"))
	if _, err := w.nodes.Reconcile(ctx, ctrl.Request{NamespacedName: w.key("default")}); err != nil || w.node("default") != nil {
		t.Fatalf("a node that admission does not know was made: %v", err)
	}
	w.expect("before admission knows it", "default", "False/Waiting", "")
	w.settle("default")
	w.expect("made", "default", "True/Ready", w.name)
	n := w.node("default")
	if got := n.Status.Allocatable.Cpu().String() + " " + n.Status.Capacity.Memory().String() + " " + n.Status.Allocatable.Pods().String(); got != "5 8Gi 21" {
		t.Errorf("size %s", got)
	}
	if n.Labels["color"] != "blue" || n.Labels[corev1.LabelArchStable] != "arm64" || n.Spec.ProviderID != "pelago://"+clusterID+"/default" || n.Status.DaemonEndpoints.KubeletEndpoint.Port != 10300 {
		t.Errorf("node %+v", n)
	}
	l := w.lease("default")
	if l == nil || *l.Spec.HolderIdentity != w.name || *l.Spec.LeaseDurationSeconds != 40 || l.OwnerReferences[0].UID != n.UID {
		t.Fatalf("lease %+v", l)
	}
	if !contains(w.listed(v1alpha1.AnnotationAdmissionNodes), w.name) || !contains(w.listed(v1alpha1.AnnotationAdmissionCluster), "rome") {
		t.Errorf("admission knows %v", w.listed(v1alpha1.AnnotationAdmissionNodes))
	}
	writes := w.writes
	w.clock.SetTime(w.clock.Now().Add(10 * time.Second))
	if _, err := w.nodes.Reconcile(ctx, ctrl.Request{NamespacedName: w.key("default")}); err != nil || w.writes != writes {
		t.Errorf("at rest: %d writes, %v", w.writes-writes, err)
	}
	w.look("default")
	if after := w.lease("default"); !after.Spec.RenewTime.Time.After(l.Spec.RenewTime.Time) {
		t.Error("the lease is not renewed")
	}
	o := &v1alpha1.ResourceOffer{}
	w.exists(w.key("default"), o)
	before := o.DeepCopy()
	o.Spec.Resources, o.Spec.Used, o.Spec.Labels = list("cpu", "3", "memory", "8Gi", "pods", "19"), list("cpu", "2", "pods", "2"), nil
	if err := w.client.Patch(ctx, o, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if w.settle("default"); w.node("default").Status.Allocatable.Cpu().String() != "5" || w.node("default").Labels["color"] != "" {
		t.Errorf("after a change of the offer: %v, %v", w.node("default").Status.Allocatable, w.node("default").Labels)
	}
	w.drop("default")
	w.gone("default")
}

// TestFeaturesAreKept holds that an API server of a release that knows the features of nodes keeps them, and that they cost one write.
func TestFeaturesAreKept(t *testing.T) {
	w := newWorld(t)
	d, err := discovery.NewDiscoveryClientForConfig(kubetest.Server(t).Config)
	if err != nil {
		t.Fatal(err)
	}
	info, err := d.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	w.offer(w.key("default"))
	w.settle("default")
	p := &v1alpha1.Peering{}
	w.exists(client.ObjectKey{Name: w.name}, p)
	p.Status.Remote = &v1alpha1.ClusterInfo{Name: "milan", ID: clusterID, KubernetesVersion: "v1.36.0"}
	if err := w.client.Status().Update(ctx, p); err != nil {
		t.Fatal(err)
	}
	w.settle("default")
	want := features
	if release(info.GitVersion).LessThan(declaredSince) {
		want = nil
	}
	if got := w.node("default").Status.DeclaredFeatures; !slices.Equal(got, want) {
		t.Errorf("an API server of %s has kept %v, want %v", info.GitVersion, got, want)
	}
	writes := w.writes
	if w.settle("default"); w.writes != writes && want != nil {
		t.Errorf("%d writes at rest", w.writes-writes)
	}
}

// TestSizeThatIsRefused holds that a node whose size the API server does not take is still ready or not.
func TestSizeThatIsRefused(t *testing.T) {
	w := newWorld(t)
	w.offer(w.key("default"))
	w.settle("default")
	o := &v1alpha1.ResourceOffer{}
	w.exists(w.key("default"), o)
	before := o.DeepCopy()
	o.Spec.Resources = list("cpu", "3", "memory", "8Gi", "pods", "19", "example.com/x", "1125899906842625.5")
	if err := w.client.Patch(ctx, o, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.look("default")
	w.expect("while it answers", "default", "True/Ready", w.name)
	w.peer.set(false, v1alpha1.ReasonPeerUnreachable, w.clock.Now())
	w.look("default")
	w.expect("while it does not", "default", "False/PeerUnreachable", w.name)
	n := w.node("default")
	if nodeReady(n).Status == corev1.ConditionTrue || n.Status.Allocatable.Cpu().String() != "5" {
		t.Errorf("Ready is %s with %v", nodeReady(n).Status, n.Status.Allocatable)
	}
	w.peer.set(true, v1alpha1.ReasonPeerReachable, w.clock.Now())
	w.look("default")
	w.expect("when it answers again", "default", "True/Ready", w.name)
}

func (w *world) drop(request string) {
	w.t.Helper()
	if err := w.client.Delete(ctx, w.request(w.key(request))); err != nil {
		w.t.Fatal(err)
	}
}

// gone looks until nothing is written and holds that nothing is left.
func (w *world) gone(request string) {
	w.t.Helper()
	w.settle(request)
	if w.exists(w.key(request), &v1alpha1.ResourceRequest{}) || w.node(request) != nil || w.lease(request) != nil {
		w.t.Errorf("something is left: node %v, lease %v", w.node(request), w.lease(request))
	}
	w.look(request)
	if name := v1alpha1.VirtualNodeName(w.name, request); contains(w.listed(v1alpha1.AnnotationAdmissionNodes), name) {
		w.t.Errorf("admission still knows %s", name)
	}
}

// TestPeerAway holds that a lost peer shows at once, that the lease goes on, and that
// what people wrote on the node stays.
func TestPeerAway(t *testing.T) {
	w := newWorld(t)
	w.offer(w.key("default"))
	w.settle("default")
	n := w.node("default")
	before := n.DeepCopy()
	n.Spec.Unschedulable, n.Labels["mine"] = true, "x"
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule})
	if err := w.client.Patch(ctx, n, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.peer.set(false, v1alpha1.ReasonPeerUnreachable, w.clock.Now())
	if _, err := w.look("default"); err != nil {
		t.Fatal(err)
	}
	w.expect("away", "default", "False/PeerUnreachable", w.name)
	renewed := w.lease("default").Spec.RenewTime.Time
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	w.look("default")
	if !w.lease("default").Spec.RenewTime.Time.After(renewed) {
		t.Error("the lease is not renewed while the peer is away")
	}
	w.peer.set(true, v1alpha1.ReasonPeerReachable, w.clock.Now())
	w.look("default")
	w.expect("back", "default", "True/Ready", w.name)
	if n = w.node("default"); !n.Spec.Unschedulable || n.Labels["mine"] != "x" || !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "mine" }) {
		t.Errorf("what people wrote is gone: %+v", n)
	}
	// A restart and a turn to lead are no interruption, and one that does not connect is.
	w.peer.missing = true
	w.restart()
	w.clock.SetTime(w.clock.Now().Add(time.Hour)) // in which another replica led
	w.settle("default")
	w.expect("just leading", "default", "True/Ready", w.name)
	w.clock.SetTime(w.clock.Now().Add(connectingFor))
	w.settle("default")
	w.expect("not connected", "default", "False/PeerUnreachable", w.name)
}

// TestForeignNode holds that a node which is not ours is neither touched nor listed.
func TestForeignNode(t *testing.T) {
	w := newWorld(t)
	foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name}}
	w.create(foreign)
	w.offer(w.key("default"))
	w.settle("default")
	w.expect("taken", "default", "False/NameTaken", "")
	n := w.node("default")
	if n.ResourceVersion != foreign.ResourceVersion || w.lease("default") != nil || contains(w.listed(v1alpha1.AnnotationAdmissionNodes), w.name) || held(w.request(w.key("default"))) {
		t.Errorf("a foreign node was taken: %+v", n)
	}
	if err := w.client.Delete(ctx, foreign); err != nil {
		t.Fatal(err)
	}
	w.settle("default")
	w.expect("free again", "default", "True/Ready", w.name)
	// Deleted by hand it is made again; taken meanwhile it is not, and is left at the end.
	uid := w.node("default").UID
	if err := w.client.Delete(ctx, w.node("default")); err != nil {
		t.Fatal(err)
	}
	if w.settle("default"); w.node("default") == nil || w.node("default").UID == uid {
		t.Fatal("a node deleted by hand was not made again")
	}
	if err := w.client.Delete(ctx, w.node("default")); err != nil {
		t.Fatal(err)
	}
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.name}})
	w.settle("default")
	w.expect("taken meanwhile", "default", "False/NameTaken", "")
	if contains(w.listed(v1alpha1.AnnotationAdmissionNodes), w.name) {
		t.Error("admission keeps pods off a foreign node")
	}
	w.drop("default")
	if w.settle("default"); w.node("default") == nil || w.exists(w.key("default"), &v1alpha1.ResourceRequest{}) {
		t.Error("the end took a foreign node, or waits for it")
	}
}

// TestCrash lets writes fail, and all after them, on the way up and down: what follows
// ends where it should.
func TestCrash(t *testing.T) {
	for _, direction := range []string{"up", "down"} {
		t.Run(direction, func(t *testing.T) {
			kubetest.CrashPoints(t, func(after int) (int, bool) {
				w := newWorld(t)
				w.offer(w.key("default"))
				if direction == "down" {
					w.settle("default")
					w.pod(w.options.Namespace, w.name, account)
					w.drop("default")
				}
				w.writes, w.fail = 0, after+1
				died := false
				for range 8 {
					_, err := w.look("default")
					died = died || errors.Is(err, errInjected)
				}
				writes := w.writes
				w.fail = 0
				w.restart()
				w.settle("default")
				if direction == "up" {
					w.expect(fmt.Sprintf("died after %d writes", after), "default", "True/Ready", w.name)
				} else {
					w.finish()
					w.gone("default")
				}
				return writes, died
			})
		})
	}
}

func account(p *corev1.Pod) { p.Spec.ServiceAccountName = "default" }

// finish ends pods as their provider would.
func (w *world) finish() {
	w.t.Helper()
	for _, p := range w.podsOn(w.name) {
		if p.DeletionTimestamp == nil {
			w.t.Errorf("pod %s was not asked to end", p.Name)
		}
		if err := w.client.Delete(ctx, &p, client.GracePeriodSeconds(0)); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) podsOn(node string) []corev1.Pod {
	w.t.Helper()
	pods := &corev1.PodList{}
	if err := w.client.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}); err != nil {
		w.t.Fatal(err)
	}
	return pods.Items
}

// TestDrainNode holds the order of the end: cordoned, evicted, waited for, removed.
func TestDrainNode(t *testing.T) {
	w := newWorld(t)
	w.offer(w.key("default"))
	w.settle("default")
	ordinary := w.pod(w.options.Namespace, w.name)
	daemon := w.pod(w.options.Namespace, w.name, ownedBy("DaemonSet", "d", "u"))
	guarded := w.pod(w.options.Namespace, w.name, func(p *corev1.Pod) { p.Labels = map[string]string{"guarded": w.name} })
	w.run(guarded)
	w.create(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.options.Namespace, Name: "all"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: &intstr.IntOrString{IntVal: 1}, Selector: &metav1.LabelSelector{MatchLabels: guarded.Labels},
	}})
	w.decide(w.key("default"), false, v1alpha1.ReasonDeclined)
	w.settle("default")
	w.expect("draining", "default", "False/Declined", w.name)
	if n := w.node("default"); n == nil || !n.Spec.Unschedulable || !draining(n) {
		t.Fatalf("not cordoned: %+v", n)
	}
	goes := func(p *corev1.Pod) bool {
		return !w.exists(client.ObjectKeyFromObject(p), p) || p.DeletionTimestamp != nil
	}
	if !goes(ordinary) || goes(daemon) || goes(guarded) {
		t.Errorf("going: an ordinary pod %v, a DaemonSet's %v, a guarded one %v", goes(ordinary), goes(daemon), goes(guarded))
	}
	w.clock.SetTime(w.clock.Now().Add(budgetsFor))
	if w.settle("default"); !goes(guarded) || goes(daemon) {
		t.Error("a budget holds up the end for more than a minute, or a DaemonSet's pod goes before the node")
	}
	w.finishAll(ordinary, guarded)
	w.settle("default")
	w.expect("drained", "default", "False/Declined", "")
	if w.node("default") != nil || w.lease("default") != nil || held(w.request(w.key("default"))) || !goes(daemon) {
		t.Error("something is left")
	}
	w.decide(w.key("default"), true, v1alpha1.ReasonAccepted)
	w.settle("default")
	w.expect("accepted again", "default", "True/Ready", w.name)
}

// run gives a pod a status as its provider would.
func (w *world) run(p *corev1.Pod) {
	w.t.Helper()
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue})
	if err := w.client.Status().Update(ctx, p); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) finishAll(pods ...*corev1.Pod) {
	w.t.Helper()
	for _, p := range pods {
		if err := w.client.Delete(ctx, p, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			w.t.Fatal(err)
		}
	}
}

// TestGiveUp holds that pods of a provider that does not answer are given up after a
// minute, and at once with force.
func TestGiveUp(t *testing.T) {
	for _, forced := range []bool{false, true} {
		w := newWorld(t)
		w.offer(w.key("default"))
		w.settle("default")
		pod := w.pod(w.options.Namespace, w.name)
		w.run(pod)
		w.peer.set(false, v1alpha1.ReasonPeerUnreachable, w.clock.Now())
		w.settle("default")
		p := &v1alpha1.Peering{}
		w.exists(client.ObjectKey{Name: w.name}, p)
		p.Finalizers = []string{v1alpha1.FinalizerConsume}
		if forced {
			p.Annotations = map[string]string{v1alpha1.AnnotationForce: "true"}
		}
		if err := w.client.Update(ctx, p); err != nil {
			t.Fatal(err)
		}
		if err := w.client.Delete(ctx, p); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			w.settle("default")
		}
		if done := w.node("default") == nil; done != forced {
			t.Errorf("forced %v: gone at once %v", forced, done)
		}
		w.clock.SetTime(w.clock.Now().Add(awayFor))
		for range 4 {
			w.settle("default")
		}
		if w.node("default") != nil || w.exists(client.ObjectKeyFromObject(pod), pod) || held(w.request(w.key("default"))) {
			t.Errorf("forced %v: not given up after a minute", forced)
		}
		w.exists(client.ObjectKey{Name: w.name}, p)
		p.Finalizers = nil
		if err := w.client.Update(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMany makes 100 nodes, and holds that at rest they cost one write each, the lease.
func TestMany(t *testing.T) {
	w := newWorld(t)
	const many = 100
	name := func(i int) string { return fmt.Sprintf("r%d", i) }
	for i := range many {
		w.offer(w.key(name(i)))
	}
	start := time.Now()
	for range 2 {
		for i := range many {
			if _, err := w.nodes.Reconcile(ctx, ctrl.Request{NamespacedName: w.key(name(i))}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.admission.Reconcile(ctx, w.admission.self(ctx, nil)[0]); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d nodes made in %s", many, time.Since(start).Round(time.Millisecond))
	start, w.writes = time.Now(), 0
	for i := range many {
		if _, err := w.nodes.Reconcile(ctx, ctrl.Request{NamespacedName: w.key(name(i))}); err != nil {
			t.Fatal(err)
		}
	}
	if w.writes != 0 {
		t.Errorf("%d writes at rest", w.writes)
	}
	for range 2 {
		start, w.renewals = time.Now(), 0
		for i := range many {
			if _, err := w.leases.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Name: v1alpha1.VirtualNodeName(w.name, name(i))}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if w.renewals != many || time.Since(start) > renewEvery {
		t.Errorf("%d leases: %d writes in %s", many, w.renewals, time.Since(start))
	}
	t.Logf("%d leases renewed one by one in %s", many, time.Since(start).Round(time.Millisecond))
}
