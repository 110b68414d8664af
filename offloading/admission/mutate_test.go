package admission

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var strategies = []v1alpha1.PodOffloadingStrategy{v1alpha1.PodsLocal, v1alpha1.PodsRemote, v1alpha1.PodsLocalAndRemote}

func realNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"where": "local", "disk": "ssd"}}}
}

func remoteNode(name string, labels ...string) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			"where": "remote", v1alpha1.LabelType: v1alpha1.TypeVirtualNode, v1alpha1.LabelPeering: name, v1alpha1.LabelRequest: "default"}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: v1alpha1.TaintVirtualNode, Value: "true", Effect: corev1.TaintEffectNoExecute}}},
	}
	for i := 0; i+1 < len(labels); i += 2 {
		node.Labels[labels[i]] = labels[i+1]
	}
	return node
}

func known(nodes ...*corev1.Node) []virtualNode {
	var all []virtualNode
	for _, n := range nodes {
		all = append(all, virtualNode{name: n.Name, labels: n.Labels})
	}
	return all
}

// fits is what the scheduler says of a pod and an empty node: affinity, node selector
// and taints, by its own code.
func fits(t *testing.T, pod *corev1.Pod, node *corev1.Node) bool {
	t.Helper()
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	if err != nil {
		t.Fatalf("the scheduler does not understand the terms: %v", err)
	}
	_, untolerated := scheduling.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, nil, false)
	return matches && !untolerated
}

// apply is the pod with its terms.
func apply(pod *corev1.Pod, t terms) *corev1.Pod {
	pod = pod.DeepCopy()
	if t.required != nil {
		if pod.Spec.Affinity == nil {
			pod.Spec.Affinity = &corev1.Affinity{}
		}
		if pod.Spec.Affinity.NodeAffinity == nil {
			pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
		}
		pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = t.required
	}
	for _, at := range t.unlimited {
		pod.Spec.Tolerations[at].TolerationSeconds = nil
	}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, t.add...)
	if t.avoids != nil {
		pod.Annotations = map[string]string{AnnotationAvoids: *t.avoids}
		if *t.avoids == "" {
			pod.Annotations = nil
		}
	}
	return pod
}

// admit mutates a pod and holds that doing it again changes nothing.
func admit(t *testing.T, f facts) *corev1.Pod {
	t.Helper()
	made, err := mutate(f)
	if err != nil {
		t.Fatal(err)
	}
	f.pod = apply(f.pod, made)
	again, err := mutate(f)
	if err != nil {
		t.Fatalf("asked again: %v", err)
	}
	if again.required != nil || len(again.add) > 0 || len(again.unlimited) > 0 || again.avoids != nil {
		t.Errorf("asked again it changes the pod again: %+v", again)
	}
	return f.pod
}

// newPod is as the API server hands it over: with the usual tolerations.
func newPod(terms ...corev1.NodeSelectorTerm) *corev1.Pod {
	seconds := int64(usualTolerance)
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
			Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds})
	}
	if len(terms) > 0 {
		pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	return pod
}

func term(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: requirements}
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

// withClass is what the API server makes of a pod with the RuntimeClass, before us.
func withClass(pod *corev1.Pod) *corev1.Pod {
	class := v1alpha1.RuntimeClass
	pod.Spec.RuntimeClassName = &class
	pod.Spec.NodeSelector = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
		Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
	return pod
}

// TestTwelve holds the twelve outcomes: a strategy, a pod pinned to a local or a virtual
// node, without and with the RuntimeClass. The last column also without its admission plugin.
func TestTwelve(t *testing.T) {
	local, remote := realNode("worker"), remoteNode("milan")
	want := map[v1alpha1.PodOffloadingStrategy][4]bool{ // local; remote; class and remote; class and local
		v1alpha1.PodsLocal:          {true, false, true, false},
		v1alpha1.PodsRemote:         {false, true, true, false},
		v1alpha1.PodsLocalAndRemote: {true, true, true, false},
	}
	for strategy, expected := range want {
		for i, c := range []struct {
			what  string
			class bool
			node  *corev1.Node
		}{{"local", false, local}, {"remote", false, remote}, {"class, remote", true, remote}, {"class, local", true, local}} {
			t.Run(fmt.Sprintf("%s/%s", strategy, c.what), func(t *testing.T) {
				pod := newPod(term(in("where", c.node.Labels["where"])))
				if c.class {
					pod = withClass(pod)
				}
				f := facts{pod: pod, offloading: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: strategy}, nodes: known(remote)}
				pod = admit(t, f)
				for _, node := range []*corev1.Node{local, remote} {
					if got := fits(t, pod, node); got != (expected[i] && node == c.node) {
						t.Errorf("on %s: %t, want %t\n%+v", node.Name, got, expected[i] && node == c.node, pod.Spec)
					}
				}
				if c.class {
					pod.Spec.NodeSelector = nil
					if fits(t, pod, local) {
						t.Error("at home without the plugin of RuntimeClasses")
					}
				}
			})
		}
	}
}

// TestSides: pods pinned to nothing.
func TestSides(t *testing.T) {
	local, milan, oslo := realNode("worker"), remoteNode("milan", "region", "it"), remoteNode("oslo", "region", "no")
	italy := &v1alpha1.ClusterSelector{NodeSelectorTerms: []v1alpha1.ClusterSelectorTerm{
		{MatchExpressions: []v1alpha1.ClusterRequirement{{Key: "region", Operator: "In", Values: []string{"it"}}}}}}
	everything := newPod()
	everything.Spec.Tolerations = append(everything.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
	nowhere := newPod(corev1.NodeSelectorTerm{})
	partly := newPod(corev1.NodeSelectorTerm{}, term(in("where", "local", "remote")))
	for _, c := range []struct {
		reason     string
		pod        *corev1.Pod
		strategy   v1alpha1.PodOffloadingStrategy
		selector   *v1alpha1.ClusterSelector
		worker, it bool
		no         bool
	}{
		{"Local pods stay home", newPod(), v1alpha1.PodsLocal, nil, true, false, false},
		{"Local pods stay home even if they tolerate everything", everything, v1alpha1.PodsLocal, nil, true, false, false},
		{"both means all", newPod(), v1alpha1.PodsLocalAndRemote, nil, true, true, true},
		{"no strategy is the default one", newPod(), "", nil, true, true, true},
		{"the selector limits clusters, not home", newPod(), v1alpha1.PodsLocalAndRemote, italy, true, true, false},
		{"Remote leaves home", newPod(), v1alpha1.PodsRemote, nil, false, true, true},
		{"Remote with a selector", newPod(), v1alpha1.PodsRemote, italy, false, true, false},
		{"a class obeys the selector", withClass(newPod()), v1alpha1.PodsLocal, italy, false, true, false},
		{"the pod's own terms hold too", newPod(term(in("region", "no")), term(in("disk", "ssd"))), v1alpha1.PodsLocalAndRemote, italy, true, false, false},
		{"the pod's own terms are alternatives", newPod(term(in("region", "no")), term(in("disk", "ssd"))), v1alpha1.PodsLocalAndRemote, nil, true, false, true},
		{"a term that matches nothing stays so", nowhere, v1alpha1.PodsLocalAndRemote, nil, false, false, false},
		{"and does not spoil the others", partly, v1alpha1.PodsRemote, nil, false, true, true},
		{"a pod that names virtual nodes itself", newPod(term(in(v1alpha1.LabelType, v1alpha1.TypeVirtualNode))), v1alpha1.PodsLocalAndRemote, nil, false, true, true},
		{"a pod that excludes them itself", newPod(term(corev1.NodeSelectorRequirement{Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpDoesNotExist})), v1alpha1.PodsRemote, nil, false, false, false},
	} {
		t.Run(c.reason, func(t *testing.T) {
			pod := admit(t, facts{pod: c.pod, nodes: known(milan, oslo),
				offloading: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: c.strategy, ClusterSelector: c.selector}})
			for node, want := range map[*corev1.Node]bool{local: c.worker, milan: c.it, oslo: c.no} {
				if got := fits(t, pod, node); got != want {
					t.Errorf("on %s: %t, want %t\n%+v", node.Name, got, want, pod.Spec.Affinity)
				}
			}
		})
	}
}

// TestUntouched: what gets no terms.
func TestUntouched(t *testing.T) {
	yes := true
	daemon := newPod()
	daemon.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: &yes}}
	bound := newPod()
	bound.Spec.NodeName = "worker"
	for reason, pod := range map[string]*corev1.Pod{"the DaemonSet has chosen the node": daemon, "there is nothing left to schedule": bound} {
		for _, strategy := range strategies {
			got, err := mutate(facts{pod: pod, offloading: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: strategy}})
			if diff := cmp.Diff(terms{outcome: outcomeIgnored}, got, cmp.AllowUnexported(terms{})); err != nil || diff != "" {
				t.Errorf("%s, %s: %v\n%s", reason, strategy, err, diff)
			}
		}
	}
	if got, err := mutate(facts{pod: newPod(), offloading: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsLocal}}); err != nil || len(got.patch(parents{})) > 0 {
		t.Errorf("Local pods are patched: %+v, %v", got, err)
	}
}

// TestPatience: who runs elsewhere only waits for ever for its node.
func TestPatience(t *testing.T) {
	own, usual := int64(60), int64(usualTolerance)
	toleration := func(key string, seconds *int64) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: seconds}
	}
	admitted := toleration(v1alpha1.TaintVirtualNode, nil)
	notReady, unreachable := corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable
	for _, c := range []struct {
		reason     string
		strategy   v1alpha1.PodOffloadingStrategy
		have, want []corev1.Toleration
	}{
		{"the usual time is dropped", v1alpha1.PodsRemote, []corev1.Toleration{toleration(notReady, &usual), toleration(unreachable, &usual)},
			[]corev1.Toleration{toleration(notReady, nil), toleration(unreachable, nil), admitted}},
		{"the user's own time stays", v1alpha1.PodsRemote, []corev1.Toleration{toleration(notReady, &own), toleration(unreachable, &usual)},
			[]corev1.Toleration{toleration(notReady, &own), toleration(unreachable, nil), admitted}},
		{"it is added where the plugin is off", v1alpha1.PodsRemote, nil,
			[]corev1.Toleration{admitted, toleration(notReady, nil), toleration(unreachable, nil)}},
		{"who may run at home comes home", v1alpha1.PodsLocalAndRemote, []corev1.Toleration{toleration(notReady, &usual), toleration(unreachable, &usual)},
			[]corev1.Toleration{toleration(notReady, &usual), toleration(unreachable, &usual), admitted}},
		{"a toleration of everything does not name our taint", v1alpha1.PodsRemote, []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			[]corev1.Toleration{{Operator: corev1.TolerationOpExists}, admitted}},
		{"one with an end is not enough", v1alpha1.PodsLocalAndRemote, []corev1.Toleration{toleration(v1alpha1.TaintVirtualNode, &own)},
			[]corev1.Toleration{toleration(v1alpha1.TaintVirtualNode, &own), admitted}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			pod := newPod()
			pod.Spec.Tolerations = c.have
			pod = admit(t, facts{pod: pod, offloading: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: c.strategy}})
			if diff := cmp.Diff(c.want, pod.Spec.Tolerations); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func amounts(pairs ...string) v1alpha1.ResourceList {
	list := v1alpha1.ResourceList{}
	for i := 0; i+1 < len(pairs); i += 2 {
		list[pairs[i]] = resource.MustParse(pairs[i+1])
	}
	return list
}

// TestAvoid: nodes without room and nodes that have refused the pod's like.
func TestAvoid(t *testing.T) {
	free := amounts("cpu", "16", "memory", "64Gi", "pods", "100")
	shapes := []v1alpha1.NodeShape{
		{Largest: []v1alpha1.ResourceList{amounts("cpu", "4", "memory", "2Gi"), amounts("cpu", "1", "memory", "16Gi")}},
		{Largest: []v1alpha1.ResourceList{amounts("cpu", "2", "memory", "8Gi", "example.com/gpu", "1")}},
	}
	offer := func(change ...func(*v1alpha1.ResourceOfferSpec)) *v1alpha1.ResourceOfferSpec {
		o := &v1alpha1.ResourceOfferSpec{Resources: free, Shapes: shapes}
		for _, f := range change {
			f(o)
		}
		return o
	}
	full := func(o *v1alpha1.ResourceOfferSpec) { o.Resources = amounts("cpu", "1") }
	grows := func(o *v1alpha1.ResourceOfferSpec) { o.SchedulingTimeout = &metav1.Duration{Duration: 5 * time.Minute} }
	noShapes := func(o *v1alpha1.ResourceOfferSpec) { o.Shapes = nil }
	noRoom := func(o *v1alpha1.ResourceOfferSpec) { o.Shapes = []v1alpha1.NodeShape{{}} }
	endless := func(o *v1alpha1.ResourceOfferSpec) {
		o.Resources = amounts("cpu", "1E", "memory", "1E")
		o.Shapes = []v1alpha1.NodeShape{{Largest: []v1alpha1.ResourceList{{"cpu": resource.MustParse("1e300"), "memory": resource.MustParse("1e300")}}}}
	}
	for _, c := range []struct {
		reason  string
		wants   v1alpha1.ResourceList
		offer   *v1alpha1.ResourceOfferSpec
		refused int32
		avoided bool
	}{
		{"it fits one of the largest", amounts("cpu", "4", "memory", "2Gi"), offer(), 0, false},
		{"it fits another", amounts("cpu", "500m", "memory", "10Gi"), offer(), 0, false},
		{"it fits none, though it fits the sum", amounts("cpu", "4", "memory", "4Gi"), offer(), 0, true},
		{"one thousandth too much", amounts("cpu", "4001m"), offer(), 0, true},
		{"what asks for nothing fits", nil, offer(), 0, false},
		{"a device that is there", amounts("example.com/gpu", "1"), offer(func(o *v1alpha1.ResourceOfferSpec) { o.Resources = amounts("example.com/gpu", "1") }), 0, false},
		{"a device on a node with too little beside it", amounts("cpu", "3", "example.com/gpu", "1"), offer(func(o *v1alpha1.ResourceOfferSpec) { o.Resources = amounts("cpu", "9", "example.com/gpu", "1") }), 0, true},
		{"there is no room at all now: it waits as the scheduler would have it", amounts("cpu", "4", "memory", "4Gi"), offer(full), 0, false},
		{"no node has room for any pod", amounts("cpu", "1"), offer(noRoom), 0, true},
		{"the provider adds nodes", amounts("cpu", "8"), offer(grows), 0, false},
		{"the shapes are not known", amounts("cpu", "8"), offer(noShapes), 0, false},
		{"the offer is not known", amounts("cpu", "8"), nil, 0, false},
		{"amounts beyond reason are enough", amounts("cpu", "8"), offer(endless), 0, false},
		{"its like was refused", nil, nil, 1, true},
	} {
		t.Run(c.reason, func(t *testing.T) {
			for _, strategy := range []v1alpha1.PodOffloadingStrategy{v1alpha1.PodsRemote, v1alpha1.PodsLocalAndRemote} {
				milan, oslo, local := remoteNode("milan"), remoteNode("oslo"), realNode("worker")
				pod := newPod()
				pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{}
				for name, q := range c.wants {
					pod.Spec.Containers[0].Resources.Requests[corev1.ResourceName(name)] = q
				}
				nodes := known(milan, oslo)
				nodes[0].offer, nodes[0].refused = c.offer, c.refused
				pod = admit(t, facts{pod: pod, nodes: nodes, offloading: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: strategy}})
				if got := !fits(t, pod, milan); got != c.avoided {
					t.Errorf("%s: avoided %t, want %t", strategy, got, c.avoided)
				}
				if !fits(t, pod, oslo) || fits(t, pod, local) != (strategy == v1alpha1.PodsLocalAndRemote) {
					t.Errorf("%s: the other nodes are concerned too", strategy)
				}
			}
		})
	}
}

// TestBounds: many nodes, many terms, and facts that have changed since the pod was first
// asked about.
func TestBounds(t *testing.T) {
	var nodes []virtualNode
	for i := range 100 {
		n := known(remoteNode(fmt.Sprintf("n%03d", i)))[0]
		n.refused = int32(i % 3)
		nodes = append(nodes, n)
	}
	f := facts{pod: newPod(), nodes: nodes, offloading: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsRemote}}
	names := choose(f, outcomeRemote, remote(nil, nil)).Avoided
	if len(names) != maxAvoided || names[0] != "n002" || slices.Contains(names, "n000") || names[33] != "n001" {
		t.Errorf("avoids %d: %v", len(names), names)
	}
	pod := admit(t, f)
	for i := range f.nodes {
		f.nodes[i].refused = 0
	}
	f.nodes[0].refused, f.pod = 5, pod
	again := apply(pod, must(t, f))
	got := again.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	if len(got) != 1 || len(got[0].MatchFields) != 1 || again.Annotations[AnnotationAvoids] != "n000" || len(got[0].MatchExpressions) != 1 {
		t.Errorf("what is avoided later makes %d terms, the first with %d fields", len(got), len(got[0].MatchFields))
	}

	selector := &v1alpha1.ClusterSelector{}
	for i := range 16 {
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, v1alpha1.ClusterSelectorTerm{
			MatchExpressions: []v1alpha1.ClusterRequirement{{Key: fmt.Sprint("k", i), Operator: "Exists"}}})
	}
	for count, good := range map[int]bool{3: true, 4: false, 65: false} {
		var own []corev1.NodeSelectorTerm
		for i := range count {
			own = append(own, term(in("a", fmt.Sprint(i))))
		}
		_, err := mutate(facts{pod: newPod(own...), offloading: v1alpha1.NamespaceOffloadingSpec{
			PodOffloadingStrategy: v1alpha1.PodsLocalAndRemote, ClusterSelector: selector}})
		if (err == nil) != good {
			t.Errorf("%d terms of the pod with 17 sides: %v", count, err)
		}
	}
}

func must(t *testing.T, f facts) terms {
	t.Helper()
	made, err := mutate(f)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// TestPatch: the patch leaves what it does not know.
func TestPatch(t *testing.T) {
	for reason, raw := range map[string]string{
		"nothing there":           `{"spec":{"containers":[{"name":"c"}]}}`,
		"an affinity to pods":     `{"spec":{"affinity":{"podAffinity":{"future":1}},"containers":[{"name":"c"}]}}`,
		"a preference":            `{"spec":{"affinity":{"nodeAffinity":{"future":1}},"tolerations":[{"operator":"Exists","future":1}]}}`,
		"null where a map may be": `{"spec":{"affinity":null,"tolerations":null}}`,
		"an empty list":           `{"spec":{"affinity":{},"tolerations":[]}}`,
	} {
		pod, has, err := look([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		operations := must(t, facts{pod: pod, offloading: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsRemote}}).patch(has)
		text, err := json.Marshal(operations)
		if err != nil {
			t.Fatal(err)
		}
		patched := applyPatch(t, raw, text)
		after, has, err := look(patched)
		if err != nil {
			t.Fatal(err)
		}
		if again := must(t, facts{pod: after, offloading: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsRemote}}).patch(has); len(again) > 0 {
			t.Errorf("%s: after %s\nstill %v", reason, text, again)
		}
		if got, want := countFuture(patched), countFuture([]byte(raw)); got != want {
			t.Errorf("%s: what is not known went: %s", reason, patched)
		}
	}
}

// TestTerms: how many terms there are, and that asking again does not multiply them.
func TestTerms(t *testing.T) {
	selector := &v1alpha1.ClusterSelector{}
	for _, region := range []string{"it", "no"} {
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, v1alpha1.ClusterSelectorTerm{
			MatchExpressions: []v1alpha1.ClusterRequirement{{Key: "region", Operator: "In", Values: []string{region}}}})
	}
	for _, c := range []struct {
		reason string
		pod    *corev1.Pod
		want   int
	}{
		{"two kinds of clusters, and home", newPod(), 3},
		{"each own term with each", newPod(term(in("a", "1")), term(in("b", "2"))), 6},
		{"a term that names virtual nodes is for these only", newPod(term(in(v1alpha1.LabelType, v1alpha1.TypeVirtualNode))), 2},
	} {
		pod := admit(t, facts{pod: c.pod, offloading: v1alpha1.NamespaceOffloadingSpec{
			PodOffloadingStrategy: v1alpha1.PodsLocalAndRemote, ClusterSelector: selector}})
		if got := len(pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms); got != c.want {
			t.Errorf("%s: %d terms, want %d", c.reason, got, c.want)
		}
	}
}
