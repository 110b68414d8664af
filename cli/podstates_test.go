package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
)

// lists is a reader of whose calls List is played.
type lists struct {
	client.WithWatch
	play func(list client.ObjectList, o *client.ListOptions) error
}

func (l lists) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return l.play(list, (&client.ListOptions{}).ApplyOptions(opts))
}

// TestPages holds that lists are read in pages to their end, also when the server forgets them.
func TestPages(t *testing.T) {
	var asked []string
	var seen []string
	c := &Cluster{Client: lists{play: func(list client.ObjectList, o *client.ListOptions) error {
		asked = append(asked, fmt.Sprintf("%d %s %s", o.Limit, o.Continue, o.FieldSelector))
		pods, _ := list.(*corev1.PodList)
		switch o.Continue {
		case "":
			pods.Items, pods.Continue = []corev1.Pod{podOn("shop", "a", "milan")}, "old"
		case "old":
			expired := apierrors.NewResourceExpired("too old")
			expired.ErrStatus.Continue = "fresh"
			return expired
		case "fresh":
			pods.Items, pods.Continue = []corev1.Pod{podOn("shop", "b", "milan")}, ""
		}
		return nil
	}}}
	err := c.eachPod(t.Context(), func(p *corev1.Pod) { seen = append(seen, p.Name) }, client.MatchingFields{"spec.nodeName": "milan"})
	if got := strings.Join(asked, ","); err != nil || strings.Join(seen, "") != "ab" || got != "500  spec.nodeName=milan,500 old spec.nodeName=milan,500 fresh spec.nodeName=milan" {
		t.Errorf("%v, %v, %s", err, seen, got)
	}
	c.Client = lists{play: func(client.ObjectList, *client.ListOptions) error { return apierrors.NewResourceExpired("too old") }}
	if err := c.eachPod(t.Context(), func(*corev1.Pod) {}); err == nil {
		t.Error("a list that the server cannot go on with is no error")
	}
}

// TestPodsInPages holds that pods that are only counted are listed in pages, and all are counted.
func TestPodsInPages(t *testing.T) {
	o := &v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.OffloadingName},
		Spec: v1alpha1.NamespaceOffloadingSpec{PodOffloadingStrategy: v1alpha1.PodsLocal}} // so that pods that may go elsewhere are outdated
	whole := 0
	c := &Cluster{Client: lists{play: func(list client.ObjectList, o *client.ListOptions) error {
		pods, is := list.(*corev1.PodList)
		switch {
		case !is:
		case o.Limit == 0:
			whole++
			fallthrough
		case o.Continue == "more":
			pods.Items, pods.Continue = []corev1.Pod{podOn("shop", "b", "milan")}, ""
		default:
			pods.Items, pods.Continue = []corev1.Pod{podOn("shop", "a", "milan")}, "more"
		}
		return nil
	}}}
	places, err := c.whereabouts(t.Context(), o, []chain.NodeFacts{{Node: virtualNode("milan", "milan", corev1.ConditionTrue)}})
	if err != nil || places.away != 2 {
		t.Errorf("of the namespace %+v are counted, %v", places, err)
	}
	one := podOn("shop", "a", "milan")
	for name, amount := range chain.Requests(&one) {
		if sum := c.used(t.Context(), "milan")[name]; sum.AsApproximateFloat64() != 2*amount.AsApproximateFloat64() {
			t.Errorf("%s of %s is used, want twice %s", &sum, name, &amount)
		}
	}
	if found, err := c.outdated(t.Context(), o); err != nil || len(found) != 2 || places.outdated != 2 {
		t.Errorf("%d pods are outdated, found %+v, %v", places.outdated, found, err)
	}
	if whole > 0 {
		t.Errorf("%d lists of pods have no bound", whole)
	}
}

// TestReadPods holds that status reads each pod once: those on virtual nodes, and the others
// of offloaded namespaces.
func TestReadPods(t *testing.T) {
	var asked []string
	c := &Cluster{Client: lists{play: func(list client.ObjectList, o *client.ListOptions) error {
		if o.Limit == 0 {
			t.Errorf("a list without pages: %+v", o)
		}
		asked = append(asked, o.Namespace+" "+o.FieldSelector.String())
		list.(*corev1.PodList).Items = []corev1.Pod{podOn("shop", "a", "milan")}
		return nil
	}}}
	s := &snapshot{nodes: []corev1.Node{virtualNode("milan", "milan", corev1.ConditionTrue), virtualNode("oslo", "oslo", corev1.ConditionTrue)}, offloadings: offloadings()[3:]}
	want := " spec.nodeName=milan; spec.nodeName=oslo;shop spec.nodeName!=milan,spec.nodeName!=oslo"
	if err := c.readPods(t.Context(), s); err != nil || strings.Join(asked, ";") != want || len(s.pods) != 1 {
		t.Errorf("%v, %d pods, %q", err, len(s.pods), asked)
	}
}

// genoa makes the virtual node of a provider called so.
func (s *stage) genoa() {
	s.t.Helper()
	node := virtualNode("genoa", "genoa", corev1.ConditionTrue)
	status := node.Status
	s.create(&node)
	node.Status = status
	if err := s.c.Status().Update(s.t.Context(), &node); err != nil {
		s.t.Fatal(err)
	}
}

// TestStatusOfPods holds that status never says that all is well while a pod is not.
func TestStatusOfPods(t *testing.T) {
	s := newStage(t, 0)
	s.install("rome", id2)
	s.space("sick-shop", nil)
	s.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "sick-shop", Name: "default"}})
	s.genoa()
	s.create(&v1alpha1.NamespaceOffloading{ObjectMeta: metav1.ObjectMeta{Namespace: "sick-shop", Name: v1alpha1.OffloadingName}})
	for _, name := range []string{"a", "b", "c"} {
		pod := podOn("sick-shop", name, map[string]string{"a": "genoa", "b": "genoa"}[name])
		pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image = "c", "c"
		s.create(&pod)
		if name == "b" {
			pod.Status.Phase, pod.Status.Reason = corev1.PodPending, v1alpha1.ReasonNotAdmitted
			if err := s.c.Status().Update(t.Context(), &pod); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := s.run("status")
	for _, want := range []string{
		"✗ namespace sick-shop: 1 pod at genoa is refused (NotAdmitted)\n  → see why: pelago explain pod b -n sick-shop",
		"… namespace sick-shop: 1 pod at genoa is pending, 1 pod waits for a node\n  → see why: pelago explain pod a -n sick-shop",
		"PODS AT  RUNNING  NOT READY  PENDING  REFUSED  ENDING\ngenoa    0        0          1        1        0",
	} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("it lacks %q: %+v", want, got)
		}
	}
	if got := s.run("status", "-o", "json"); !strings.Contains(got.out, `"refused": 1`) || !strings.Contains(got.out, `"waiting": 1`) {
		t.Errorf("as JSON: %+v", got)
	}
}
