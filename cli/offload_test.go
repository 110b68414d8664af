package cli

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// answer is what the player of pelago-manager says of an offloading.
type answer struct {
	phase    v1alpha1.OffloadingPhase
	message  string
	clusters []v1alpha1.ClusterOffloading
}

// atCluster is a cluster that is selected, and how the namespace is there.
func atCluster(name string, ready metav1.Condition) v1alpha1.ClusterOffloading {
	required := is(v1alpha1.ConditionOffloadingRequired)
	required.LastTransitionTime, ready.LastTransitionTime = metav1.Now(), metav1.Now()
	return v1alpha1.ClusterOffloading{Name: name, RemoteNamespace: "shop-rome", Conditions: []metav1.Condition{required, ready}}
}

// offloads plays pelago-manager for the offloading of one namespace.
func (s *stage) offloads(namespace string, say func(*v1alpha1.NamespaceOffloading) *answer) func() {
	return s.play(func(ctx context.Context) {
		var o v1alpha1.NamespaceOffloading
		if s.c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.OffloadingName}, &o) != nil {
			return
		}
		a := say(&o)
		switch {
		case a == nil:
		case !o.DeletionTimestamp.IsZero():
			o.Finalizers = nil
			s.c.Update(ctx, &o)
		case len(o.Finalizers) == 0:
			o.Finalizers = []string{v1alpha1.FinalizerOffloading}
			s.c.Update(ctx, &o)
		default:
			ready := is(v1alpha1.ConditionReady)
			if a.phase != v1alpha1.OffloadingPhaseReady {
				ready = isNot(v1alpha1.ConditionReady, string(a.phase), a.message)
			}
			conditions(&o.Status.Conditions, o.Generation, ready)
			o.Status.ObservedGeneration, o.Status.Phase, o.Status.Clusters = o.Generation, a.phase, a.clusters
			s.c.Status().Update(ctx, &o)
		}
	})
}

// space makes a namespace that goes with the test.
func (s *stage) space(name string, labels map[string]string) {
	s.t.Helper()
	n := newNamespace(name)
	n.Labels = labels
	if err := s.c.Create(s.t.Context(), n); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		s.c.Delete(ctx, n)
		if s.c.Get(ctx, client.ObjectKeyFromObject(n), n) == nil {
			n.Spec.Finalizers = nil
			s.c.SubResource("finalize").Update(ctx, n)
		}
	})
}

func (s *stage) offloading(namespace string) *v1alpha1.NamespaceOffloading {
	s.t.Helper()
	o := &v1alpha1.NamespaceOffloading{}
	err := s.c.Get(s.t.Context(), client.ObjectKey{Namespace: namespace, Name: v1alpha1.OffloadingName}, o)
	if apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		s.t.Fatal(err)
	}
	return o
}

// TestOffload goes through the life of an offloading.
func TestOffload(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	const name = "offloaded-shop"
	got := s.run("offload", "namespace", name)
	if got.code != 1 || !strings.Contains(got.err, "there is no namespace offloaded-shop; make it first: kubectl create namespace offloaded-shop") {
		t.Errorf("a namespace there is not: %+v", got)
	}
	s.space(name, nil)
	t.Cleanup(func() {
		s.drop(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: v1alpha1.OffloadingName}})
	})
	if got := s.run("unoffload", "namespace", name); got.code != 1 || !strings.Contains(got.err, "is not offloaded; see which are: pelago status") {
		t.Errorf("unoffloading what is not offloaded: %+v", got)
	}
	if got := s.run("offload", "namespace", name, "--timeout", "4s"); got.code != 1 || !strings.Contains(got.err, "waiting for pelago-manager; it goes on by itself; see: pelago explain namespace offloaded-shop") {
		t.Errorf("without a manager: %+v", got)
	}
	rounds := 0
	stop := s.offloads(name, func(*v1alpha1.NamespaceOffloading) *answer {
		if rounds++; rounds < 20 {
			return &answer{phase: v1alpha1.OffloadingPhaseInProgress, clusters: []v1alpha1.ClusterOffloading{atCluster("milan", isNot(v1alpha1.ConditionReady, v1alpha1.ReasonPending, "")), {Name: "oslo"}}}
		}
		return &answer{phase: v1alpha1.OffloadingPhaseReady, clusters: []v1alpha1.ClusterOffloading{atCluster("milan", is(v1alpha1.ConditionReady)), {Name: "oslo"}}}
	})
	got = s.run("offload", "namespace", name, "--pod-offloading-strategy", "Remote", "--cluster-selector", "region=eu")
	want := "Namespace offloaded-shop is offloaded: Remote, region=eu.\nCLUSTER  NAMESPACE THERE  STATE         REASON\nmilan    shop-rome        ready         -\noslo     -                not selected  -\n"
	if d := cmp.Diff(result{0, want, ""}, result{got.code, got.out, ""}, cmp.AllowUnexported(result{})); d != "" || !strings.Contains(got.err, "offloaded-shop: waiting for milan") {
		t.Errorf("offloading (-want +got):\n%s%s", d, got.err)
	}
	if got := s.run("offload", "namespace", name, "--cluster-selector", ""); got.code != 0 || !strings.Contains(got.out, "Remote, all clusters") {
		t.Errorf("taking the selector off again: %+v", got)
	}
	if o := s.offloading(name); o.Spec.PodOffloadingStrategy != v1alpha1.PodsRemote || o.Spec.ClusterSelector != nil {
		t.Errorf("what was not given has changed: %+v", o.Spec)
	}
	if got := s.run("offload", "namespace", name, "--reachability", "none"); got.code != 0 || s.offloading(name).Spec.Reachability != v1alpha1.ReachNone {
		t.Errorf("changing the reachability: %+v", got)
	}
	if got := s.run("offload", "namespace", name, "--pod-offloading-strategy", "Remote"); got.code != 0 || s.offloading(name).Spec.Reachability != v1alpha1.ReachNone {
		t.Errorf("changing something else: %+v", got)
	}
	if got := s.run("offload", "namespace", name, "--reachability", "some"); got.code != 2 || !strings.Contains(got.err, "use none, offloaded-only, full") {
		t.Errorf("a word that is none: %+v", got)
	}
	for _, c := range []struct {
		flag string
		want v1alpha1.UnreachablePolicy
	}{{"--restart-workloads=false", v1alpha1.UnreachableKeep}, {"--when-unreachable=Replace", v1alpha1.UnreachableReplace}, {"--pod-offloading-strategy=Remote", v1alpha1.UnreachableReplace}} {
		if got := s.run("offload", "namespace", name, c.flag); got.code != 0 || s.offloading(name).Spec.WhenUnreachable != c.want {
			t.Errorf("%s: %q, %+v", c.flag, s.offloading(name).Spec.WhenUnreachable, got)
		}
	}
	if got := s.run("explain", "namespace", name); !strings.Contains(strings.Join(strings.Fields(got.out), " "), "pods are replaced when their cluster is away") {
		t.Errorf("explained while they are: %+v", got)
	}
	if got := s.run("offload", "namespace", name, "--when-unreachable", "Keep"); got.code != 0 || s.offloading(name).Spec.WhenUnreachable != v1alpha1.UnreachableKeep {
		t.Errorf("keeping them again: %+v", got)
	}
	if got := s.run("offload", "namespace", name, "--when-unreachable", "Fence"); got.code != 2 || !strings.Contains(got.err, "use Keep, Replace") {
		t.Errorf("a word that is none: %+v", got)
	}
	for _, c := range []struct {
		flag string
		want v1alpha1.OnwardPolicy
	}{{"--restart-workloads=false", v1alpha1.OnwardDeny}, {"--onward", v1alpha1.OnwardAllow}, {"--pod-offloading-strategy=Remote", v1alpha1.OnwardAllow}, {"--onward=false", v1alpha1.OnwardDeny}} {
		if got := s.run("offload", "namespace", name, c.flag); got.code != 0 || s.offloading(name).Spec.Onward != c.want {
			t.Errorf("%s: %q, %+v", c.flag, s.offloading(name).Spec.Onward, got)
		}
	}
	got = s.run("offload", "namespace", name, "--namespace-mapping-strategy", "EnforceSameName")
	if got.code != 1 || !strings.Contains(got.err, "DefaultName, which cannot be changed; run: pelago unoffload namespace offloaded-shop, then offload it again") {
		t.Errorf("changing what cannot be changed: %+v", got)
	}
	if got := s.run("offload", "namespace", name, "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"phase": "Ready"`) || strings.Contains(got.out, "managedFields") {
		t.Errorf("as JSON: %+v", got)
	}
	s.testExplainNamespace(t, name)
	if got := s.run("__complete", "unoffload", "namespace", ""); !strings.HasPrefix(got.out, name+"\n:4") {
		t.Errorf("completing: %+v", got)
	}
	if got := s.run("__complete", "offload", "namespace", ""); !strings.Contains(got.out, name+"\n") || strings.Contains(got.out, "kube-system") {
		t.Errorf("completing: %+v", got)
	}
	if got := s.run("unoffload", "namespace", name); got.code != 0 || got.out != "Namespace offloaded-shop is not offloaded any more.\n" || s.offloading(name) != nil {
		t.Errorf("unoffloading: %+v", got)
	}
	stop()
}

// testExplainNamespace reads what the player has said.
func (s *stage) testExplainNamespace(t *testing.T, name string) {
	patch := client.MergeFrom(newNamespace(name))
	labelled := newNamespace(name)
	labelled.Labels = map[string]string{v1alpha1.LabelOffloaded: "true"}
	if err := s.c.Patch(t.Context(), labelled, patch); err != nil {
		t.Fatal(err)
	}
	got := s.run("explain", "namespace", name)
	if got.code != 0 || !strings.Contains(got.out, "✓ it is offloaded") || !strings.Contains(got.out, "✓ offloaded-shop is there at milan") || !strings.Contains(got.out, "– oslo is selected") {
		t.Errorf("explaining: %+v", got)
	}
	sent := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "catalogue", Annotations: map[string]string{v1alpha1.AnnotationReflect: "true"}}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "private"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	for _, service := range []*corev1.Service{sent, other} {
		if err := s.c.Create(t.Context(), service); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.run("explain", "namespace", name); got.code != 0 || !strings.Contains(got.out, "✓ Services of it are there also without a pod") || !strings.Contains(got.out, "catalogue; a cluster's own pods") {
		t.Errorf("explaining what needs no pod: %+v", got)
	}
	if got := s.run("status", "-o", "json"); !strings.Contains(got.out, "\"services\": [\n        \"catalogue\"\n      ]") {
		t.Errorf("the status of what needs no pod: %+v", got)
	}
	if got := s.run("explain", "namespace", "kube-system"); got.code != 0 || !strings.Contains(got.out, "✗ it is offloaded") {
		t.Errorf("explaining one that is not offloaded: %+v", got)
	}
	if got := s.run("explain", "namespace", "nothing"); got.code != 1 || !strings.Contains(got.err, "there is no namespace nothing") {
		t.Errorf("explaining one there is not: %+v", got)
	}
}

// TestOffloadFails holds that what is not as asked for ends with 1 and says what to do.
func TestOffloadFails(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	const name = "refused-shop"
	s.space(name, nil)
	t.Cleanup(func() {
		s.drop(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: v1alpha1.OffloadingName}})
	})
	taken := atCluster("oslo", isNot(v1alpha1.ConditionReady, v1alpha1.ReasonNameTaken, "shop-rome is not this tenant's"))
	well := atCluster("milan", is(v1alpha1.ConditionReady))
	var says answer
	stop := s.offloads(name, func(*v1alpha1.NamespaceOffloading) *answer { return &says })
	for _, c := range []struct {
		reason string
		says   answer
		want   string
	}{
		{"some refuse", answer{v1alpha1.OffloadingPhaseSomeFailed, "", []v1alpha1.ClusterOffloading{well, taken}}, "some clusters refuse namespace refused-shop: oslo: NameTaken, shop-rome is not this tenant's; something else has that name there"},
		{"all refuse", answer{v1alpha1.OffloadingPhaseAllFailed, "", []v1alpha1.ClusterOffloading{taken}}, "all clusters refuse namespace refused-shop: oslo: NameTaken"},
		{"none is selected", answer{v1alpha1.OffloadingPhaseNoClusterSelected, "there is no virtual node", nil}, "is offloaded, but to no cluster: there is no virtual node; peer with a cluster"},
	} {
		stop()
		says = c.says
		stop = s.offloads(name, func(*v1alpha1.NamespaceOffloading) *answer { a := c.says; return &a })
		eventually(t, "the player has said it", func() bool {
			s.run("offload", "namespace", name, "--timeout", "300ms")
			o := s.offloading(name)
			return o != nil && o.Status.Phase == c.says.phase
		})
		if got := s.run("offload", "namespace", name, "--restart-workloads"); got.code != 1 || !strings.Contains(got.err, c.want) ||
			strings.Contains(got.err, "Nothing is rolled") != (c.says.phase != v1alpha1.OffloadingPhaseSomeFailed) {
			t.Errorf("%s: %+v", c.reason, got)
		}
	}
	stop()
	long := strings.Repeat("x", 60)
	s.space(long, nil)
	if got := s.run("offload", "namespace", long); got.code != 1 || !strings.Contains(got.err, "which has 65 characters, at most 63; choose a name that the provider allows: --namespace-mapping-strategy SelectedName") {
		t.Errorf("a name that is too long there: %+v", got)
	}
	s.testChangeSelectedName(long)
}

// testChangeSelectedName holds that what has a name there of its own can be changed, however long the
// usual one would be.
func (s *stage) testChangeSelectedName(namespace string) {
	s.t.Helper()
	named := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.OffloadingName},
		Spec: v1alpha1.NamespaceOffloadingSpec{NamespaceMappingStrategy: v1alpha1.MappingSelectedName, RemoteNamespaceName: "short"}}
	s.create(named)
	s.offloads(namespace, func(*v1alpha1.NamespaceOffloading) *answer {
		return &answer{phase: v1alpha1.OffloadingPhaseReady, clusters: []v1alpha1.ClusterOffloading{atCluster("milan", is(v1alpha1.ConditionReady))}}
	})
	for _, flag := range []string{"--restart-workloads", "--pod-offloading-strategy=Remote"} {
		if got := s.run("offload", "namespace", namespace, flag); got.code != 0 {
			s.t.Errorf("changing one with a name of its own, %s: %+v", flag, got)
		}
	}
	if o := s.offloading(namespace); o.Spec.PodOffloadingStrategy != v1alpha1.PodsRemote || o.Spec.RemoteNamespaceName != "short" {
		s.t.Errorf("it is not changed: %+v", o.Spec)
	}
	if got := s.run("offload", "namespace", namespace, "--namespace-mapping-strategy", "DefaultName"); got.code != 1 || !strings.Contains(got.err, "SelectedName short, which cannot be changed") {
		s.t.Errorf("taking its name away: %+v", got)
	}
}

// TestOffloadOldRefusal holds that a refusal from before is not told as long as pelago-manager is about to look
// again, and is told if it holds.
func TestOffloadOldRefusal(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	const name = "once-refused-shop"
	s.space(name, nil)
	o := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: v1alpha1.OffloadingName}}
	s.create(o)
	t.Cleanup(func() { s.drop(o) })
	say := func(phase v1alpha1.OffloadingPhase, condition metav1.Condition) {
		o = s.offloading(name)
		o.Status.Conditions = nil
		conditions(&o.Status.Conditions, o.Generation, condition)
		o.Status.ObservedGeneration, o.Status.Phase = o.Generation, phase
		if err := s.c.Status().Update(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
	stalled := is(v1alpha1.ConditionStalled)
	stalled.Reason, stalled.Message = v1alpha1.ReasonInvalid, "its owner does not let it"
	say(v1alpha1.OffloadingPhaseAllFailed, stalled)
	if got := s.run("offload", "namespace", name); got.code != 1 || !strings.Contains(got.err, "cannot be offloaded: its owner does not let it") {
		t.Errorf("refused still: %+v", got)
	}
	var once sync.Once
	connect := func(Access) (*Cluster, error) {
		c, err := Connect(s.access)
		if err == nil { // who waits sees the manager look
			c.Client = interceptor.NewClient(c.Client, interceptor.Funcs{Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) (watch.Interface, error) {
				w, err := c.Watch(ctx, list, options...)
				once.Do(func() { say(v1alpha1.OffloadingPhaseReady, is(v1alpha1.ConditionReady)) })
				return w, err
			}})
		}
		return c, err
	}
	if got := programWith(t.Context(), func(e *Env) { e.Connect = connect }, "offload", "namespace", name); got.code != 0 {
		t.Errorf("refused a moment ago: %+v", got)
	}
}

// TestLabelledNamespace holds that what a label asked for is taken over by who changes it,
// and that unoffloading takes the label off, which would offload the namespace again.
func TestLabelledNamespace(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	const name = "labelled-shop"
	s.space(name, map[string]string{v1alpha1.LabelOffload: "true"})
	s.create(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: v1alpha1.OffloadingName, Labels: map[string]string{v1alpha1.LabelManagedBy: "offloading"}}})
	s.create(newNamespace("pelago-peering-oslo"))
	kept := &v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: "pelago-peering-oslo", Name: v1alpha1.NamespaceMapName}}
	s.create(kept)
	kept.Status.Namespaces = map[string]v1alpha1.MappedNamespace{name: {Name: "labelled-shop-rome", Phase: v1alpha1.MappingKept, Reason: v1alpha1.ReasonVolumesKept}}
	if err := s.c.Status().Update(t.Context(), kept); err != nil {
		t.Fatal(err)
	}
	s.offloads(name, func(*v1alpha1.NamespaceOffloading) *answer { return &answer{phase: v1alpha1.OffloadingPhaseReady} })
	if got := s.run("offload", "namespace", name, "--pod-offloading-strategy", "Local"); got.code != 0 {
		t.Errorf("changing it: %+v", got)
	}
	if o := s.offloading(name); o.Labels[v1alpha1.LabelManagedBy] != "" || o.Spec.PodOffloadingStrategy != v1alpha1.PodsLocal {
		t.Errorf("it is still the label's: %+v", o)
	}
	got := s.run("unoffload", "namespace", name)
	if got.code != 0 || !strings.Contains(got.err, "oslo keeps namespace labelled-shop-rome, as it holds volume claims; once they are not needed, its owner deletes it: kubectl delete namespace labelled-shop-rome") {
		t.Errorf("unoffloading: %+v", got)
	}
	n := &corev1.Namespace{}
	if err := s.c.Get(t.Context(), client.ObjectKey{Name: name}, n); err != nil || n.Labels[v1alpha1.LabelOffload] != "" {
		t.Errorf("the label is still there: %v, %v", n.Labels, err)
	}
}

func TestOffloadDryRun(t *testing.T) {
	got := program("offload", "namespace", "shop", "--cluster-selector", "region=eu,tier in (b,a)", "--cluster-selector", "!edge", "--dry-run",
		"--namespace-mapping-strategy", "SelectedName", "--remote-name", "webshop")
	if got.code != 0 || got.err != "" {
		t.Errorf("%+v", got)
	}
	golden(t, "offload.yaml", got.out)
}

func TestClusterSelector(t *testing.T) {
	for _, text := range []string{"region=eu", "region in (eu,us),!edge", "region!=eu,tier notin (a,b),zone", "size>3", "size<4"} {
		selector, err := clusterSelector([]string{text})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		again, err := clusterSelector(strings.Split(chain.SelectorText(selector), " or "))
		if d := cmp.Diff(selector, again); d != "" || err != nil {
			t.Errorf("%q, written and read again, %v:\n%s", text, err, d)
		}
	}
	if selector, err := clusterSelector([]string{" "}); selector != nil || err != nil {
		t.Errorf("an empty selector is %v, %v", selector, err)
	}
}

// TestSelectorsAreAccepted holds that what the words become passes the rules of the kind.
func TestSelectorsAreAccepted(t *testing.T) {
	s := newStage(t, 0)
	s.space("selected-shop", nil)
	selector, err := clusterSelector([]string{"a=1,b in (1,2),c!=1,d notin (1,2),e,!f", "g>1", "h<2"})
	if err != nil {
		t.Fatal(err)
	}
	s.create(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "selected-shop", Name: v1alpha1.OffloadingName}, Spec: v1alpha1.NamespaceOffloadingSpec{ClusterSelector: selector}})
}

func TestGrouped(t *testing.T) {
	yes := true
	owner := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: name, UID: "uid-x", Controller: &yes}}
	}
	pod := func(name string, owners []metav1.OwnerReference) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
	}
	set := appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-1", UID: "uid-x", OwnerReferences: owner("Deployment", "web")}}
	lone := appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "lone", UID: "uid-x"}}
	paused := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "uid-x"}, Spec: appsv1.DeploymentSpec{Paused: true}}
	byHand := appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "uid-x"}, Spec: appsv1.StatefulSetSpec{UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}}}
	cases := []struct {
		reason      string
		pods        []corev1.Pod
		sets        []appsv1.ReplicaSet
		deployments []appsv1.Deployment
		statefuls   []appsv1.StatefulSet
		want        workload
	}{
		{"two of a Deployment", []corev1.Pod{pod("a", owner("ReplicaSet", "web-1")), pod("b", owner("ReplicaSet", "web-1"))}, []appsv1.ReplicaSet{set}, nil, nil, workload{"Deployment", "web", 2, ""}},
		{"a Deployment that is paused", []corev1.Pod{pod("a", owner("ReplicaSet", "web-1"))}, []appsv1.ReplicaSet{set}, []appsv1.Deployment{paused}, nil, workload{"Deployment", "web", 1, "it is paused; to go on: kubectl rollout resume deployment web"}},
		{"a ReplicaSet of nobody", []corev1.Pod{pod("a", owner("ReplicaSet", "lone"))}, []appsv1.ReplicaSet{lone}, nil, nil, workload{"ReplicaSet", "lone", 1, "no Deployment rolls it; delete its pods, it makes new ones"}},
		{"a StatefulSet", []corev1.Pod{pod("db-0", owner("StatefulSet", "db"))}, nil, nil, nil, workload{"StatefulSet", "db", 1, ""}},
		{"a StatefulSet that is rolled by hand", []corev1.Pod{pod("db-0", owner("StatefulSet", "db"))}, nil, nil, []appsv1.StatefulSet{byHand}, workload{"StatefulSet", "db", 1, "its updateStrategy is OnDelete; delete its pods, it makes new ones"}},
		{"a Job", []corev1.Pod{pod("a", owner("Job", "once"))}, nil, nil, nil, workload{"Job", "once", 1, "its pods run to their end"}},
		{"somebody's own kind", []corev1.Pod{pod("a", owner("Cluster", "pg"))}, nil, nil, nil, workload{"Cluster", "pg", 1, "only its own controller can replace its pods; delete them, or roll it"}},
		{"nobody's", []corev1.Pod{pod("a", nil)}, nil, nil, nil, workload{"Pod", "a", 1, "nothing makes it again; delete it and make it anew"}},
	}
	for _, c := range cases {
		got := grouped(c.pods, c.sets, c.deployments, c.statefuls)
		if d := cmp.Diff([]workload{c.want}, got, cmp.AllowUnexported(workload{})); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, d)
		}
	}
}

func TestSettled(t *testing.T) {
	with := func(phase v1alpha1.OffloadingPhase, clusters ...v1alpha1.ClusterOffloading) *v1alpha1.NamespaceOffloading {
		return &v1alpha1.NamespaceOffloading{Status: v1alpha1.NamespaceOffloadingStatus{Phase: phase, Clusters: clusters}}
	}
	well, waits := atCluster("milan", is(v1alpha1.ConditionReady)), atCluster("oslo", isNot(v1alpha1.ConditionReady, v1alpha1.ReasonWaiting, ""))
	fails := atCluster("turin", isNot(v1alpha1.ConditionReady, v1alpha1.ReasonNameTaken, ""))
	stalled := with("")
	stalled.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue}}
	cases := []struct {
		reason string
		o      *v1alpha1.NamespaceOffloading
		over   bool
		state  string
	}{
		{"ready", with(v1alpha1.OffloadingPhaseReady, well), true, ""},
		{"in progress", with(v1alpha1.OffloadingPhaseInProgress, well, waits), false, "waiting for oslo"},
		{"one has refused, one has not answered", with(v1alpha1.OffloadingPhaseSomeFailed, fails, waits), false, "waiting for oslo"},
		{"one has refused, one is ready", with(v1alpha1.OffloadingPhaseSomeFailed, fails, well), true, "waiting for "},
		{"all have refused", with(v1alpha1.OffloadingPhaseAllFailed, fails), true, ""},
		{"no cluster", with(v1alpha1.OffloadingPhaseNoClusterSelected), true, ""},
		{"it cannot be", stalled, true, ""},
		{"nothing is said", with(""), false, "waiting for the clusters"},
	}
	for _, c := range cases {
		if over, state := settled(c.o); over != c.over || !over && state != c.state {
			t.Errorf("%s: %t, %q; want %t, %q", c.reason, over, state, c.over, c.state)
		}
	}
}
