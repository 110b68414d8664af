package namespace

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

func region(values ...string) *v1alpha1.ClusterSelector {
	return &v1alpha1.ClusterSelector{NodeSelectorTerms: []v1alpha1.ClusterSelectorTerm{{
		MatchExpressions: []v1alpha1.ClusterRequirement{{Key: "region", Operator: "In", Values: values}}}}}
}

func (w *world) expect(reason string, want map[string]string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.says()); diff != "" {
		w.t.Errorf("%s: %s", reason, diff)
	}
}

func there(n *corev1.Namespace) bool { return n != nil && n.DeletionTimestamp == nil }

func TestOffloadAndBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan", "oslo")
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	w.expect("no selector selects all", map[string]string{"phase": "Ready", "ready": "True/Ready",
		"milan OffloadingRequired": "True/Selected", "milan Ready": "True/Ready", "oslo OffloadingRequired": "True/Selected", "oslo Ready": "True/Ready"})
	milan := w.peer("milan")
	n := w.remote(milan)
	if !there(n) || n.Labels["pod-security.kubernetes.io/enforce"] != "baseline" || n.Labels[v1alpha1.LabelHomeNamespace] != w.home {
		t.Fatalf("%v", n)
	}
	b := get(w, n.Name, v1alpha1.ConsumerPodsRole, &rbacv1.RoleBinding{})
	if b == nil || b.Subjects[0].Name != "user-of-"+milan {
		t.Errorf("rights: %v", b)
	}
	if l := get(w, "", w.home, &corev1.Namespace{}).Labels[v1alpha1.LabelOffloaded]; l != "true" {
		t.Errorf("label %q", l)
	}
	writes := w.writes
	w.settle()
	if w.writes != writes {
		t.Errorf("%d writes at rest", w.writes-writes)
	}

	t.Run("made again", func(t *testing.T) {
		w.end(n.Name)
		w.settle()
		if again := w.remote(milan); !there(again) || again.UID == n.UID {
			t.Errorf("%v: a namespace deleted by hand is made again", again)
		}
	})
	t.Run("label", func(t *testing.T) {
		w.patch(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.home}}, "metadata", map[string]any{"labels": map[string]any{v1alpha1.LabelOffloaded: nil}})
		w.settle()
		if get(w, "", w.home, &corev1.Namespace{}).Labels[v1alpha1.LabelOffloaded] != "true" {
			t.Error("the label is not put back")
		}
	})
	t.Run("order", func(t *testing.T) { w.unoffload(t, milan) })
}

// unoffload checks the order of the end: label, pods, entry, rights, namespace.
func (w *world) unoffload(t *testing.T, milan string) {
	pod := w.pod("web", milan, nil)
	waits := func(name, kind string) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: name}, Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i"}}, Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}}}
		if kind != "" {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "owner", UID: "u", Controller: new(bool)}}
			*p.OwnerReferences[0].Controller = true
		}
		w.create(p)
	}
	kinds := map[string]bool{"ReplicaSet": true, "StatefulSet": true, "Job": false, "DaemonSet": false, "": false}
	for kind := range kinds {
		waits("waits"+strings.ToLower(kind), kind)
	}
	if err := w.raw.Delete(ctx, w.offloading()); err != nil {
		t.Fatal(err)
	}
	if err := w.look(); err != nil {
		t.Fatal(err)
	}
	label := func() string { return get(w, "", w.home, &corev1.Namespace{}).Labels[v1alpha1.LabelOffloaded] }
	if got := label(); got != v1alpha1.OffloadedLeaving {
		t.Errorf("the label is %q while pods are to leave", got)
	}
	w.settle()
	if p := get(w, w.home, "web", &corev1.Pod{}); p == nil || p.DeletionTimestamp == nil {
		t.Error("the pod is not evicted")
	}
	for kind, ended := range kinds {
		if p := get(w, w.home, "waits"+strings.ToLower(kind), &corev1.Pod{}); (p == nil || p.DeletionTimestamp != nil) != ended {
			t.Errorf("an unbound pod of %q: %v", kind, p)
		}
	}
	if !there(w.remote(milan)) || w.says()["phase"] != "Terminating" {
		t.Errorf("%v: the namespace goes before the pod has", w.says())
	}
	w.leave(pod)
	w.settle()
	if got := label(); got != "" {
		t.Errorf("the label is %q when the pods have left", got)
	}
	if there(w.remote(milan)) || w.offloading() == nil {
		t.Error("the namespace does not go, or is not waited for")
	}
	if b := get(w, w.remote(milan).Name, v1alpha1.ConsumerPodsRole, &rbacv1.RoleBinding{}); b != nil {
		t.Error("the rights are left")
	}
	w.end(w.remote(milan).Name)
	w.end(w.remote(w.peer("oslo")).Name)
	w.settle()
	if w.offloading() != nil {
		t.Errorf("%v: the end does not come", w.says())
	}
}

func TestSelectorFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan", "oslo")
	milan, oslo := w.peer("milan"), w.peer("oslo")
	w.offload(v1alpha1.NamespaceOffloadingSpec{ClusterSelector: region("paris")})
	w.settle()
	w.expect("nothing matches", map[string]string{"phase": "NoClusterSelected", "ready": "False/NoClusterSelected",
		"milan OffloadingRequired": "False/NotSelected", "oslo OffloadingRequired": "False/NotSelected"})
	if m := meta.FindStatusCondition(w.offloading().Status.Conditions, "Ready").Message; !strings.Contains(m, "region=milan") {
		t.Errorf("no hint which labels there are: %s", m)
	}
	relabel := func(node, value string) {
		w.patch(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, "metadata", map[string]any{"labels": map[string]any{"region": value}})
	}
	relabel(oslo, "paris")
	w.settle()
	w.expect("a relabelled cluster joins", map[string]string{"phase": "Ready", "ready": "True/Ready",
		"milan OffloadingRequired": "False/NotSelected", "oslo OffloadingRequired": "True/Selected", "oslo Ready": "True/Ready"})
	if w.remote(milan) != nil || !there(w.remote(oslo)) {
		t.Error("made at the wrong cluster")
	}
	pod := w.pod("web", oslo, nil)
	relabel(oslo, "oslo")
	relabel(milan, "paris")
	w.settle()
	w.expect("a cluster leaves after its pods", map[string]string{"phase": "Ready", "ready": "True/Ready",
		"milan OffloadingRequired": "True/Selected", "milan Ready": "True/Ready", "oslo OffloadingRequired": "False/NotSelected", "oslo Ready": "False/Terminating"})
	if !there(w.remote(oslo)) {
		t.Error("the namespace goes before the pod")
	}
	w.leave(pod)
	w.settle()
	if there(w.remote(oslo)) {
		t.Error("the cluster is not left")
	}
	w.end(w.remote(oslo).Name)
	w.settle()
	w.join("paris-"+oslo, "paris")
	w.settle()
	if !there(w.remote("paris-" + oslo)) {
		t.Error("a cluster that is peered later does not join")
	}

	t.Run("node gone", func(t *testing.T) {
		if err := w.raw.Delete(ctx, w.node(milan, "")); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if !there(w.remote(milan)) {
			t.Fatal("a node that is away for a moment costs everything")
		}
		w.clock.Step(patience)
		w.settle()
		if there(w.remote(milan)) {
			t.Error("a cluster without a node keeps its namespace for ever")
		}
	})
}

func TestConflict(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan", "oslo")
	milan := w.peer("milan")
	name := v1alpha1.DefaultRemoteNamespace(w.home, milan)
	w.namespace(name, map[string]string{"theirs": "yes"})
	before := get(w, "", name, &corev1.Namespace{}).ResourceVersion
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	w.expect("a foreign namespace is in the way", map[string]string{"phase": "SomeFailed", "ready": "False/SomeFailed",
		"milan OffloadingRequired": "True/Selected", "milan Ready": "False/NameTaken", "oslo OffloadingRequired": "True/Selected", "oslo Ready": "True/Ready"})
	if n := get(w, "", name, &corev1.Namespace{}); n.ResourceVersion != before {
		t.Errorf("a foreign namespace was touched: %v", n)
	}
	w.end(name)
	w.settle()
	if n := w.remote(milan); !there(n) || n.Labels[v1alpha1.LabelTenant] != milan || w.says()["phase"] != "Ready" {
		t.Errorf("%v %v: it is made once the name is free", n, w.says())
	}
}

func TestVolumesAreKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	w.create(&corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.remote(milan).Name, Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}}}})
	if err := w.raw.Delete(ctx, w.offloading()); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if !there(w.remote(milan)) {
		t.Fatal("volumes were deleted")
	}
	if w.offloading() != nil {
		t.Errorf("%v: the end waits for ever", w.says())
	}
	if !w.said(v1alpha1.ReasonVolumesKept) {
		t.Error("nobody was told")
	}
	if get(w, w.remote(milan).Name, v1alpha1.ConsumerPodsRole, &rbacv1.RoleBinding{}) != nil {
		t.Error("the consumer has rights still")
	}
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	if w.says()["phase"] != "Ready" {
		t.Errorf("%v: what was kept is taken up again", w.says())
	}
}

func TestPeerAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	w.pod("web", milan, nil)
	w.peers[milan].away = true
	if err := w.raw.Delete(ctx, w.offloading()); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if w.offloading() == nil {
		t.Fatal("a peer that is away is not waited for")
	}
	w.clock.Step(patience + 10*time.Second) // the deletion has the API server's time
	w.settle()
	if w.offloading() != nil {
		t.Fatalf("%v: the end hangs", w.says())
	}
	if !w.said("LeftBehind") {
		t.Error("nobody was told")
	}
	w.peers[milan].away = false
	w.settle()
	if there(w.remote(milan)) {
		t.Error("what was left is not done when the peer is back")
	}
}

func TestDisruptionBudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: w.home, Name: "all"},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}
	w.create(budget)
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, ExpectedPods: 1, DesiredHealthy: 1}
	if err := w.raw.Status().Update(ctx, budget); err != nil {
		t.Fatal(err)
	}
	w.pod("web", milan, map[string]string{"app": "web"})
	daemon := w.pod("daemon", milan, nil)
	w.patch(daemon, "metadata", map[string]any{"ownerReferences": []any{map[string]any{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": true}}})
	if err := w.raw.Delete(ctx, w.offloading()); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if get(w, w.home, "web", &corev1.Pod{}).DeletionTimestamp != nil {
		t.Error("the disruption budget is not honoured")
	}
	w.clock.Step(patience)
	w.settle()
	if get(w, w.home, "web", &corev1.Pod{}).DeletionTimestamp == nil {
		t.Error("a disruption budget holds the end up for ever")
	}
	if get(w, w.home, "daemon", &corev1.Pod{}).DeletionTimestamp != nil {
		t.Error("the pod of a DaemonSet comes back anyway")
	}
	w.clock.Step(podsLimit)
	w.settle()
	if there(w.remote(milan)) {
		t.Error("a pod that does not go holds the end up")
	}
	w.clock.Step(giveUp)
	w.settle()
	if w.offloading() != nil {
		t.Errorf("%v: a namespace that does not go holds the end up for ever", w.says())
	}
}

// TestCrashAnywhere lets all processes die at their writes, on the way there and on the
// way back.
func TestCrashAnywhere(t *testing.T) {
	t.Parallel()
	kubetest.CrashPoints(t, func(after int) (int, bool) {
		w := newWorld(t, "milan")
		milan := w.peer("milan")
		crash := func() (int, bool) {
			w.writes, w.dieAfter, w.died = 0, after, false
			for quiet := 0; quiet < 2 && !w.died; quiet++ {
				before := w.writes
				if err := w.look(); err != nil && !errors.Is(err, errDead) {
					t.Fatal(err)
				}
				if w.writes != before {
					quiet = -1
				}
			}
			w.dieAfter = -1
			w.restart()
			return w.writes, w.died
		}
		w.offload(v1alpha1.NamespaceOffloadingSpec{})
		way, died := crash()
		w.settle()
		if w.says()["phase"] != "Ready" || !there(w.remote(milan)) {
			t.Fatalf("died before write %d: %v", after, w.says())
		}
		if err := w.raw.Delete(ctx, w.offloading()); err != nil {
			t.Fatal(err)
		}
		back, diedBack := crash()
		w.settle()
		if there(w.remote(milan)) {
			t.Fatalf("died before write %d: %v", after, w.says())
		}
		w.end(w.remote(milan).Name)
		w.settle()
		if w.offloading() != nil || get(w, "", w.home, &corev1.Namespace{}).Labels[v1alpha1.LabelOffloaded] != "" {
			t.Fatalf("died before write %d: %v", after, w.says())
		}
		return max(way, back), died || diedBack
	})
}

// TestMapRemovedByHand: a map that is put together again takes nothing away.
func TestMapRemovedByHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	uid := w.remote(milan).UID
	m := homeMap(milan)
	if err := w.raw.Delete(ctx, m); err != nil {
		t.Fatal(err)
	}
	w.create(&v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}})
	w.clock.Step(time.Second)
	if _, err := w.carrier.Reconcile(ctx, mapOfPeer(milan)[0]); err != nil {
		t.Fatal(err)
	}
	copied := get(w, v1alpha1.TenantNamespace(milan), v1alpha1.NamespaceMapName, &v1alpha1.NamespaceMap{})
	if _, ok := copied.Spec.Namespaces[w.home]; !ok {
		t.Fatal("an empty map here takes away what an offloading requires there")
	}
	if err := w.raw.Delete(ctx, copied); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if n := w.remote(milan); n.UID != uid || w.says()["phase"] != "Ready" {
		t.Errorf("%v", w.says())
	}
	if get(w, v1alpha1.TenantNamespace(milan), v1alpha1.NamespaceMapName, &v1alpha1.NamespaceMap{}) == nil {
		t.Error("the provider's copy is not made again")
	}
}

func TestPeeringEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	w.pod("web", milan, nil)
	if err := w.raw.Delete(ctx, &v1alpha1.Peering{ObjectMeta: metav1.ObjectMeta{Name: milan}}); err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.expect("a peering that ends takes its own away", map[string]string{"phase": "NoClusterSelected", "ready": "False/NoClusterSelected"})
	if err := w.raw.Delete(ctx, w.offloading()); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if w.offloading() != nil {
		t.Error("a peering that ends holds the end up")
	}
}

// TestOrphan: without its finalizer a NamespaceOffloading leaves entries behind.
func TestOrphan(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "milan")
	milan := w.peer("milan")
	w.offload(v1alpha1.NamespaceOffloadingSpec{})
	w.settle()
	w.patch(w.offloading(), "metadata", map[string]any{"finalizers": nil})
	if err := w.raw.Delete(ctx, w.offloading()); err != nil {
		t.Fatal(err)
	}
	w.settle()
	if there(w.remote(milan)) || get(w, "", w.home, &corev1.Namespace{}).Labels[v1alpha1.LabelOffloaded] != "" {
		t.Error("left behind")
	}
}
