package vnode

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func built(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{}
	for _, f := range change {
		f(p)
	}
	return p
}

func TestAimedAt(t *testing.T) {
	daemon := ownedBy("DaemonSet", "d", "u")
	for _, c := range []struct {
		reason string
		pod    *corev1.Pod
		want   string
	}{
		{"a DaemonSet's, for one node", built(daemon, aimed("a")), "a"},
		{"with several terms that say the same", built(daemon, aimed("a", "a")), "a"},
		{"with several nodes", built(daemon, aimed("a", "b")), ""},
		{"without affinity", built(daemon), ""},
		{"a ReplicaSet's", built(ownedBy("ReplicaSet", "d", "u"), aimed("a")), ""},
		{"nobody's", built(aimed("a")), ""},
		{"by another operator", built(daemon, aimed("a"), func(p *corev1.Pod) {
			p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields[0].Operator = corev1.NodeSelectorOpNotIn
		}), ""},
		{"a term that says more", built(daemon, aimed("a"), func(p *corev1.Pod) {
			terms := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
			terms[0].MatchFields = append(terms[0].MatchFields, terms[0].MatchFields[0])
		}), ""},
	} {
		if got := aimedAt(c.pod); got != c.want {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

func TestWaitingFor(t *testing.T) {
	named := func(name string, age int) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Name, p.CreationTimestamp = name, metav1.NewTime(noon.Add(-time.Duration(age)*time.Second))
		}
	}
	daemon := ownedBy("DaemonSet", "d", "u")
	pods := []corev1.Pod{
		*built(named("young", 1), daemon, aimed("a")), *built(named("old", 9), daemon, aimed("b")), *built(named("elsewhere", 5), daemon, aimed("c")),
		*built(named("bound", 5), daemon, aimed("a"), func(p *corev1.Pod) { p.Spec.NodeName = "a" }),
		*built(named("going", 5), daemon, aimed("a"), func(p *corev1.Pod) { now := metav1.Now(); p.DeletionTimestamp = &now }),
	}
	var got []string
	for _, p := range waitingFor(pods, []string{"a", "b"}) {
		got = append(got, p.Name)
	}
	if diff := cmp.Diff([]string{"old", "young"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestNodeNames(t *testing.T) {
	node := func(name string, virtual bool) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if virtual {
			n.Labels = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
		}
		return n
	}
	request := func(namespace, name string, finalizers ...string) v1alpha1.ResourceRequest {
		return v1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Finalizers: finalizers}}
	}
	got := nodeNames([]corev1.Node{node("orphan", true), node("worker", false), node("milan", true)}, []v1alpha1.ResourceRequest{
		request("pelago-peering-milan", "default", v1alpha1.FinalizerNode), request("pelago-peering-milan", "batch", v1alpha1.FinalizerNode),
		request("pelago-peering-milan", "new"), request("pelago-peering-worker", "default", v1alpha1.FinalizerNode),
		request("pelago-tenant-rome", "default", v1alpha1.FinalizerNode),
	})
	if diff := cmp.Diff([]string{"milan", "milan-batch", "orphan"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestDaemonSets follows a pod of a DaemonSet: let through, bound, answered, ended.
func TestDaemonSets(t *testing.T) {
	w := newWorld(t)
	w.offer(w.key("default"))
	w.settle("default")
	namespace := w.options.Namespace
	labels := map[string]string{"app": "agent"}
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "agent"}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
	}}
	w.create(set)
	pod := w.pod(namespace, "", ownedBy("DaemonSet", "agent", string(set.UID)), aimed(w.name))
	liar := w.pod(namespace, "", ownedBy("DaemonSet", "agent", "another"), aimed(w.name))
	w.settle("default")
	let := w.listed(v1alpha1.AnnotationAdmissionDaemons)
	if !contains(let, namespace+"/"+pod.Name) || contains(let, namespace+"/"+liar.Name) {
		t.Fatalf("let through: %v", let)
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: w.name}}
	if err := w.client.SubResource("binding").Create(ctx, pod, binding); err != nil {
		t.Fatal(err)
	}
	if w.settle("default"); contains(w.listed(v1alpha1.AnnotationAdmissionDaemons), namespace+"/"+pod.Name) {
		t.Error("a bound pod is still let through")
	}
	look := func(p *corev1.Pod) {
		t.Helper()
		if _, err := w.daemons.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)}); err != nil {
			t.Fatal(err)
		}
	}
	look(pod)
	w.exists(client.ObjectKeyFromObject(pod), pod)
	var conditions []string
	for _, c := range pod.Status.Conditions {
		conditions = append(conditions, fmt.Sprintf("%s=%s", c.Type, c.Status))
	}
	slices.Sort(conditions)
	if got := strings.Join(conditions, " "); pod.Status.Phase != corev1.PodRunning || !strings.Contains(got, "PodScheduled=True") || !strings.Contains(got, "Ready=True") ||
		pod.Status.StartTime == nil || pod.Status.PodIP != "" || len(pod.Status.ContainerStatuses) != 0 || !answered(pod) || needsAnswer(pod) {
		t.Errorf("answer: %+v", pod.Status)
	}
	version := pod.ResourceVersion
	look(pod)
	if w.exists(client.ObjectKeyFromObject(pod), pod); pod.ResourceVersion != version {
		t.Error("answered twice")
	}
	if err := w.client.Delete(ctx, pod); err != nil {
		t.Fatal(err)
	}
	if look(pod); w.exists(client.ObjectKeyFromObject(pod), pod) {
		t.Error("a deleted pod stays")
	}
}

// TestEverywhere holds that pods of DaemonSets that tolerate everything are answered and ended
// whether their namespace is offloaded or not, and stay so when it becomes so.
func TestEverywhere(t *testing.T) {
	w := newWorld(t)
	w.offer(w.key("default"))
	w.settle("default")
	for _, offloaded := range []bool{false, true} {
		w.offloaded(offloaded)
		pod := w.pod(w.options.Namespace, w.name, ownedBy("DaemonSet", "d", "u"), func(p *corev1.Pod) {
			p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		})
		look := func() bool {
			t.Helper()
			if _, err := w.daemons.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)}); err != nil {
				t.Fatal(err)
			}
			return w.exists(client.ObjectKeyFromObject(pod), pod)
		}
		if !look() || !answered(pod) {
			t.Errorf("offloaded %v: %+v", offloaded, pod.Status)
		}
		w.offloaded(true)
		if err := w.client.Delete(ctx, pod); err != nil {
			t.Fatal(err)
		}
		if look() {
			t.Errorf("offloaded %v: a deleted pod stays", offloaded)
		}
	}
}

// named lets a pod onto virtual nodes as admission does.
func named(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists}}
}

// offloaded labels the namespace of the options.
func (w *world) offloaded(is bool) {
	w.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"%t"}}}`, v1alpha1.LabelOffloaded, is)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.options.Namespace}}
	if err := w.client.Patch(ctx, namespace, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		w.t.Fatal(err)
	}
}

// TestLeftAlone holds whose pods are not answered.
func TestLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.offer(w.key("default"))
	w.settle("default")
	real := w.name + "-real"
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: real}})
	daemon := ownedBy("DaemonSet", "d", "u")
	namespace := &corev1.Namespace{}
	w.exists(client.ObjectKey{Name: w.options.Namespace}, namespace)
	for _, c := range []struct {
		reason string
		pod    *corev1.Pod
		label  string
	}{
		{"on a real node", w.pod(w.options.Namespace, real, daemon), ""},
		{"an ordinary pod", w.pod(w.options.Namespace, w.name), ""},
		{"of an offloaded namespace, and let through by name", w.pod(w.options.Namespace, w.name, daemon, named), "true"},
	} {
		namespace.Labels[v1alpha1.LabelOffloaded] = c.label
		if err := w.client.Update(ctx, namespace); err != nil {
			t.Fatal(err)
		}
		for _, deleted := range []bool{false, true} {
			if deleted {
				w.run(c.pod)
				if err := w.client.Delete(ctx, c.pod); err != nil {
					t.Fatal(err)
				}
			}
			w.exists(client.ObjectKeyFromObject(c.pod), c.pod)
			version := c.pod.ResourceVersion
			if _, err := w.daemons.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(c.pod)}); err != nil {
				t.Fatal(err)
			}
			if !w.exists(client.ObjectKeyFromObject(c.pod), c.pod) || c.pod.ResourceVersion != version {
				t.Errorf("%s, deleted %v: touched", c.reason, deleted)
			}
		}
	}
}

// What is let through leaves room for the names of nodes.
func TestFitting(t *testing.T) {
	if few := []string{"a/b", "c/d"}; len(fitting(few)) != 2 {
		t.Errorf("of %v fit %v", few, fitting(few))
	}
	many := slices.Repeat([]string{strings.Repeat("n", 63) + "/" + strings.Repeat("p", 253)}, maxDaemons)
	if size := len(strings.Join(fitting(many), " ")); size > maxDaemonsSize || size < maxDaemonsSize-400 {
		t.Errorf("%d bytes are let through, of %d", size, maxDaemonsSize)
	}
}
