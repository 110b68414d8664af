package cli

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestRestartWorkloads holds that pods of other terms are counted, and that what makes
// them is rolled when asked for, and nothing else.
func TestRestartWorkloads(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	const name = "older-shop"
	s.space(name, nil)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}}
	s.create(account)
	meta := func(thing string, owners ...metav1.OwnerReference) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: name, Name: thing, Labels: map[string]string{"app": "x"}, OwnerReferences: owners}
	}
	yes := true
	owner := func(version, kind string, o client.Object) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: version, Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes}
	}
	spec := corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}, Spec: spec}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "x"}}
	web := &appsv1.Deployment{ObjectMeta: meta("web"), Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}
	fresh := &appsv1.Deployment{ObjectMeta: meta("fresh"), Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}
	db := &appsv1.StatefulSet{ObjectMeta: meta("db"), Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template}}
	s.create(web, fresh, db)
	set := &appsv1.ReplicaSet{ObjectMeta: meta("web-1", owner("apps/v1", "Deployment", web)), Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}}
	s.create(set)
	admitted := &corev1.Pod{ObjectMeta: meta("new"), Spec: *spec.DeepCopy()}
	admitted.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}
	s.create(&corev1.Pod{ObjectMeta: meta("web-1-a", owner("apps/v1", "ReplicaSet", set)), Spec: spec}, &corev1.Pod{ObjectMeta: meta("web-1-b", owner("apps/v1", "ReplicaSet", set)), Spec: spec},
		&corev1.Pod{ObjectMeta: meta("db-0", owner("apps/v1", "StatefulSet", db)), Spec: spec}, &corev1.Pod{ObjectMeta: meta("bare"), Spec: spec}, admitted)
	t.Cleanup(func() {
		s.drop(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: v1alpha1.OffloadingName}})
	})
	s.offloads(name, func(*v1alpha1.NamespaceOffloading) *answer {
		return &answer{phase: v1alpha1.OffloadingPhaseReady, clusters: []v1alpha1.ClusterOffloading{atCluster("milan", is(v1alpha1.ConditionReady))}}
	})
	rolled := func(o client.Object, annotations func() map[string]string) bool {
		t.Helper()
		if err := s.c.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		return annotations()[restartedAt] != ""
	}
	got := s.run("offload", "namespace", name)
	if got.code != 0 || !strings.Contains(got.err, "4 pods are older than these terms and stay where they are. To roll what makes them: pelago offload namespace older-shop --restart-workloads") {
		t.Errorf("without being asked: %+v", got)
	}
	if rolled(web, func() map[string]string { return web.Spec.Template.Annotations }) {
		t.Error("it rolls without being asked")
	}
	got = s.run("offload", "namespace", name, "--restart-workloads")
	if got.code != 0 || !strings.HasSuffix(got.out, "Rolled deployment/web (2 pods).\nRolled statefulset/db (1 pod).\n") ||
		!strings.Contains(got.err, "pod/bare is left as it is (1 pod): nothing makes it again; delete it and make it anew.") {
		t.Errorf("when asked: %+v", got)
	}
	if !rolled(web, func() map[string]string { return web.Spec.Template.Annotations }) || !rolled(db, func() map[string]string { return db.Spec.Template.Annotations }) {
		t.Error("the templates are as they were")
	}
	if rolled(fresh, func() map[string]string { return fresh.Spec.Template.Annotations }) {
		t.Error("it rolls what has no older pods")
	}
	s.testExplainPod(t, name)
	s.testExplainWarnings(t, name)
}

// testExplainWarnings explains a pod whose provider warns of something.
func (s *stage) testExplainWarnings(t *testing.T, namespace string) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lyon", Labels: map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: "lyon"}}}
	s.create(node)
	t.Cleanup(func() { s.drop(node) })
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if err := s.c.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "warned"}, Spec: corev1.PodSpec{
		NodeName: "lyon", Containers: []corev1.Container{{Name: "c", Image: "c"}},
	}}
	place := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PeeringNamespace("lyon")}}
	mapped := &v1alpha1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: place.Name, Name: v1alpha1.NamespaceMapName}}
	s.create(pod, place, mapped)
	t.Cleanup(func() { s.drop(mapped) })
	pod.Status.Phase, pod.Status.StartTime = corev1.PodPending, &pod.CreationTimestamp
	mapped.Status.Namespaces = map[string]v1alpha1.MappedNamespace{namespace: {Name: "shop-lyon", Phase: v1alpha1.MappingReady}}
	for _, o := range []client.Object{pod, mapped} {
		if err := s.c.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	now := metav1.Now()
	for name, reason := range map[string]string{"one": v1alpha1.ReasonProviderWarning, "two": "Other"} {
		s.create(&corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: "warned." + name},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: pod.Name, UID: pod.UID},
			Type:           corev1.EventTypeWarning, Reason: reason, Message: "lyon: FailedMount: word " + name,
			Source: corev1.EventSource{Component: "pelago-manager"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
		})
	}
	own, warnings := (&Cluster{Client: s.c}).words(t.Context(), pod)
	if len(own) != 1 || own[0] != "Other: lyon: FailedMount: word two" || len(warnings) != 1 || warnings[0] != "lyon: FailedMount: word one" {
		t.Errorf("own words %q, warnings %q", own, warnings)
	}
	if got := s.run("explain", "pod", pod.Name, "-n", namespace); got.code != 0 || !strings.Contains(got.out, "lyon: FailedMount: word one") || !strings.Contains(got.out, "✗ it runs and is ready") {
		t.Errorf("explaining it: %+v", got)
	}
}

// testExplainPod explains pods of this namespace.
func (s *stage) testExplainPod(t *testing.T, namespace string) {
	got := s.run("explain", "pod", "bare", "-n", namespace)
	if got.code != 0 || !strings.Contains(got.out, "Pod older-shop/bare waits for a node") || !strings.Contains(got.out, "✗ it was made under today's terms") ||
		!strings.Contains(got.out, "What to do: pods get their terms when they are made: pelago offload") {
		t.Errorf("explaining an older pod: %+v", got)
	}
	for line := range strings.Lines(got.out) {
		if n := len([]rune(line)) - 1; n > 80 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
	if got := s.run("explain", "pod", "new", "-n", namespace, "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"fact": "it was made under today's terms",
          "state": "Done"`) {
		t.Errorf("as JSON: %+v", got)
	}
	if got := s.run("explain", "pod", "none"); got.code != 1 || !strings.Contains(got.err, "there is no pod none in namespace default; see which are: kubectl -n default get pods") {
		t.Errorf("a pod there is not: %+v", got)
	}
	if got := s.run("__complete", "explain", "pod", "-n", namespace, ""); !strings.HasPrefix(got.out, "bare\ndb-0\nnew\n") {
		t.Errorf("completing: %+v", got)
	}
}
