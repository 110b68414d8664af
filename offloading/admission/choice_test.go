package admission

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// state of a virtual node in tables, by letters: r refused, s too small, c closed.
func inState(name, letters string) virtualNode {
	n := known(remoteNode(name, "name", name, "os", "linux"))[0]
	for _, l := range letters {
		switch l {
		case 'r':
			n.refused, n.until = n.refused+1, noon.Add(time.Duration(len(name))*time.Minute)
		case 's':
			n.offer = &v1alpha1.ResourceOfferSpec{Resources: amounts("cpu", "8"), Shapes: []v1alpha1.NodeShape{{Largest: []v1alpha1.ResourceList{amounts("cpu", "1")}}}}
		case 'c':
			n.closed = true
		}
	}
	return n
}

// wanting is a pod that does not fit nodes that are too small.
func wanting(terms ...corev1.NodeSelectorTerm) *corev1.Pod {
	pod := newPod(terms...)
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("2")}
	return pod
}

// TestChoose: a pod is kept off nodes as long as there is another place.
func TestChoose(t *testing.T) {
	remoteOnly, either, local := v1alpha1.PodsRemote, v1alpha1.PodsLocalAndRemote, v1alpha1.PodsLocal
	pinned := wanting()
	pinned.Spec.NodeSelector = map[string]string{"name": "milan"}
	virtual := wanting()
	virtual.Spec.NodeSelector = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	anywhere := wanting()
	anywhere.Spec.NodeSelector = map[string]string{"os": "linux"}
	aKind := in(v1alpha1.LabelType, v1alpha1.TypeVirtualNode)
	milanOnly := &v1alpha1.ClusterSelector{NodeSelectorTerms: []v1alpha1.ClusterSelectorTerm{
		{MatchExpressions: []v1alpha1.ClusterRequirement{{Key: "name", Operator: "In", Values: []string{"milan"}}}}}}
	for _, c := range []struct {
		reason      string
		strategy    v1alpha1.PodOffloadingStrategy
		selector    *v1alpha1.ClusterSelector
		pod         *corev1.Pod
		milan, oslo string // their states; - is no such node
		avoided     string
		open        string
		home        bool
	}{
		{"nothing is wrong", remoteOnly, nil, wanting(), "", "", "", "milan oslo", false},
		{"one refuses, there is another", remoteOnly, nil, wanting(), "r", "", "milan", "oslo", false},
		{"both refuse", remoteOnly, nil, wanting(), "r", "rr", "", "", false},
		{"the only one refuses", remoteOnly, nil, wanting(), "r", "-", "", "", false},
		{"the only one refuses, and home may do", either, nil, wanting(), "r", "-", "milan", "", true},
		{"both refuse, and home may do", either, nil, wanting(), "r", "rr", "oslo milan", "", true},
		{"the other one is not picked", remoteOnly, milanOnly, wanting(), "r", "", "", "", false},
		{"the pod's own terms leave one", remoteOnly, nil, wanting(term(in("name", "milan"))), "r", "", "", "", false},
		{"the pod's selector leaves one", remoteOnly, nil, pinned, "r", "", "", "", false},
		{"a class leaves home out", either, nil, withClass(wanting()), "r", "-", "", "", false},
		{"the pod's selector leaves home out", either, nil, virtual, "r", "-", "", "", false},
		{"the pod's selector names the one that refuses", either, nil, pinned, "r", "", "", "", false},
		{"the pod's selector names the one that is too small", either, nil, pinned, "s", "", "", "", false},
		{"the pod's terms name it", either, nil, wanting(term(in("name", "milan"))), "r", "", "", "", false},
		{"the pod's terms name its kind", either, nil, wanting(term(aKind)), "r", "-", "", "", false},
		{"the pod's terms name its kind, there is another", either, nil, wanting(term(aKind)), "s", "", "milan", "oslo", false},
		{"one of the pod's terms allows home", either, nil, wanting(term(aKind), term(in("where", "local"))), "r", "-", "milan", "", true},
		{"the pod's selector allows both", either, nil, anywhere, "s", "-", "milan", "", true},
		{"the other one takes no pods", remoteOnly, nil, wanting(), "r", "c", "", "", false},
		{"a third refuses and takes no pods", remoteOnly, nil, wanting(), "cr", "", "milan", "oslo", false},
		{"one is too small", remoteOnly, nil, wanting(), "s", "", "milan", "oslo", false},
		{"both are too small", remoteOnly, nil, wanting(), "s", "s", "", "", false},
		{"the only one is too small, and home may do", either, nil, wanting(), "s", "-", "milan", "", true},
		{"one is too small, the other one refuses", remoteOnly, nil, wanting(), "s", "r", "milan", "", false},
		{"one is too small, the other one takes no pods", remoteOnly, nil, wanting(), "s", "c", "", "", false},
		{"both are too small, one of them refuses", remoteOnly, nil, wanting(), "sr", "s", "milan", "", false},
		{"none takes pods", remoteOnly, nil, wanting(), "cr", "cs", "", "", false},
		{"pods stay home", local, nil, wanting(), "r", "", "", "", true},
	} {
		f := facts{pod: c.pod, offloading: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: c.strategy, ClusterSelector: c.selector}, here: []*corev1.Node{realNode("rome-1")}}
		f.here[0].Labels["os"] = "linux"
		for name, letters := range map[string]string{"milan": c.milan, "oslo": c.oslo} {
			if letters != "-" {
				f.nodes = append(f.nodes, inState(name, letters))
			}
		}
		what, sides := where(f)
		got := choose(f, what, sides)
		want := Choice{Home: c.home, Open: strings.Fields(c.open), Avoided: strings.Fields(c.avoided), Until: got.Until}
		if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(got)); diff != "" {
			t.Errorf("%s:\n%s", c.reason, diff)
		}
		pod := admit(t, f)
		if got := strings.Join(slices.Sorted(slices.Values(Excluded(pod))), " "); got != strings.Join(slices.Sorted(slices.Values(want.Avoided)), " ") {
			t.Errorf("%s: its terms exclude %q", c.reason, got)
		}
		f.pod = pod
		if again := choose(f, what, sides); fmt.Sprint(again) != fmt.Sprint(got) {
			t.Errorf("%s: of the pod that was made %v, of the one to be made %v", c.reason, again, got)
		}
	}
}

// TestUntil: the first refusal that ends, of the nodes that matter.
func TestUntil(t *testing.T) {
	f := facts{pod: wanting(term(in("name", "milan", "athens"))), nodes: []virtualNode{inState("rio", "r"), inState("athens", "r"), inState("milan", "r"), inState("oslo", "")}}
	what, sides := where(f)
	if got := choose(f, what, sides).Until; !got.Equal(noon.Add(5 * time.Minute)) {
		t.Errorf("%s", got)
	}
	f.nodes = f.nodes[3:]
	if got := choose(f, what, sides).Until; !got.IsZero() {
		t.Errorf("without a refusal %s", got)
	}
}

func TestElsewhere(t *testing.T) {
	for _, c := range []struct {
		reason string
		choice Choice
		want   bool
	}{
		{"nowhere", Choice{}, false},
		{"home", Choice{Home: true}, true},
		{"only where it is", Choice{Open: []string{"milan"}}, false},
		{"another", Choice{Open: []string{"milan", "oslo"}}, true},
	} {
		if got := c.choice.Elsewhere("milan"); got != c.want {
			t.Errorf("%s: %t", c.reason, got)
		}
	}
}

// TestMadeAnew: a pod that is made of an earlier one gets the terms of now; what its user
// wrote stays.
func TestMadeAnew(t *testing.T) {
	remoteOnly := v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsRemote}
	own := term(in("a", "b"))
	own.MatchFields = []corev1.NodeSelectorRequirement{except("oslo")}
	pod := wanting(own)
	pod.Annotations = map[string]string{AnnotationAvoids: "oslo"} // it lies
	first := admit(t, facts{pod: pod, offloading: remoteOnly, nodes: []virtualNode{inState("milan", "r"), inState("rio", ""), inState("oslo", "")}})
	if got := Excluded(first); len(got) != 0 { // no node has a=b
		t.Errorf("it excludes %v", got)
	}
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchExpressions = nil
	first = admit(t, facts{pod: pod, offloading: remoteOnly, nodes: []virtualNode{inState("milan", "r"), inState("rio", ""), inState("oslo", "")}})
	if got := Excluded(first); !slices.Equal(got, []string{"milan"}) {
		t.Errorf("it excludes %v", got)
	}
	second := admit(t, facts{pod: first, offloading: remoteOnly, nodes: []virtualNode{inState("milan", ""), inState("rio", ""), inState("oslo", "")}})
	for node, want := range map[string]bool{"milan": true, "rio": true, "oslo": false} {
		if got := fits(t, second, remoteNode(node)); got != want {
			t.Errorf("on %s: %t", node, got)
		}
	}
	if _, ok := second.Annotations[AnnotationAvoids]; ok || len(Excluded(second)) > 0 {
		t.Errorf("it still says that it avoids %v", second.Annotations)
	}
	local := v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsLocal}
	intolerant := first.DeepCopy()
	intolerant.Spec.Tolerations = nil
	for _, pod := range []*corev1.Pod{first, intolerant} {
		if home := admit(t, facts{pod: pod, offloading: local}); len(Excluded(home)) > 0 || len(home.Annotations) > 0 {
			t.Errorf("at home it says that it avoids %v", home.Annotations)
		}
	}
}

// TestAnnotation: it is written whatever is there, and bounded when it is read.
func TestAnnotation(t *testing.T) {
	f := func(pod *corev1.Pod) facts {
		return facts{pod: pod, nodes: []virtualNode{inState("milan", "s"), inState("oslo", "")}, offloading: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsRemote}}
	}
	const spec = `"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2"}}}]}`
	for reason, raw := range map[string]string{
		"no metadata":       `{` + spec + `}`,
		"null":              `{"metadata":null,` + spec + `}`,
		"no annotations":    `{"metadata":{"future":1},` + spec + `}`,
		"null annotations":  `{"metadata":{"annotations":null},` + spec + `}`,
		"empty annotations": `{"metadata":{"annotations":{}},` + spec + `}`,
		"others":            `{"metadata":{"annotations":{"future":"x"}},` + spec + `}`,
		"something else":    `{"metadata":{"annotations":{"pelago.dev/avoids":"rio"}},` + spec + `}`,
		"no text":           `{"metadata":{"annotations":{"pelago.dev/avoids":7}},` + spec + `}`,
	} {
		pod, has, err := look([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(must(t, f(pod)).patch(has))
		if err != nil {
			t.Fatal(err)
		}
		patched := applyPatch(t, raw, text)
		after, has, err := look(patched)
		if err != nil || after.Annotations[AnnotationAvoids] != "milan" || countFuture(patched) != countFuture([]byte(raw)) {
			t.Errorf("%s: %v, %s", reason, err, patched)
		}
		if again := must(t, f(after)).patch(has); len(again) > 0 {
			t.Errorf("%s: again %v", reason, again)
		}
		none := f(after)
		none.nodes = none.nodes[1:]
		if text, err = json.Marshal(must(t, none).patch(has)); err != nil {
			t.Fatal(err)
		}
		if got := string(applyPatch(t, string(patched), text)); strings.Contains(got, "milan") {
			t.Errorf("%s: nothing is avoided, and %s", reason, got)
		}
	}
	pod := newPod()
	for text, want := range map[string]int{
		"": 0, "milan": 1, "a,b": 2, strings.Repeat("a,", 100): maxAvoided, strings.Repeat("x", maxAvoids+1): 0,
	} {
		pod.Annotations = map[string]string{AnnotationAvoids: text}
		if got := marked(pod); len(got) != want {
			t.Errorf("%.20q names %d nodes, want %d", text, len(got), want)
		}
	}
	if Excluded(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationAvoids: "milan"}}}) != nil {
		t.Error("an annotation alone excludes a node")
	}
}
