package chain

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestRoom(t *testing.T) {
	node := func(name, cpu string, change func(*corev1.Node)) corev1.Node {
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("4Gi"), "pods": resource.MustParse("3")}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if change != nil {
			change(&n)
		}
		return n
	}
	asks := func(p *corev1.Pod, cpu string) corev1.Pod {
		p = p.DeepCopy()
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{}
		if cpu != "" {
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(cpu)
		}
		return *p
	}
	two := []corev1.Node{node("a", "2", nil), node("b", "3", nil)}
	anywhere, remote := admitted(all{virtual}, all{local}), admitted(all{virtual})
	north := with(anywhere.DeepCopy(), func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"region": "north"} })
	cases := []struct {
		reason   string
		nodes    []corev1.Node
		here     []corev1.Pod // on node a
		moving   []corev1.Pod
		terms    bool
		homeless int
		says     string
	}{
		{"there is room", two, nil, []corev1.Pod{asks(anywhere, "2"), asks(anywhere, "3")}, true, 0,
			"They request 5 cpu, one of them at most 3 cpu; free on the nodes of this cluster is 5 cpu, on one of them at most 3 cpu: there should be room for all."},
		{"what is here counts", two, []corev1.Pod{asks(plain(), "1500m")}, []corev1.Pod{asks(anywhere, "1"), asks(anywhere, "3")}, true, 1,
			"free on the nodes of this cluster is 3500m cpu, on one of them at most 3 cpu: there is room for 1 of 2; the others may stay Pending."},
		{"what has ended does not", two, []corev1.Pod{*with(plain(), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })}, []corev1.Pod{asks(anywhere, "2"), asks(anywhere, "3")}, true, 0, ""},
		{"the sum would fit, one does not", two, nil, []corev1.Pod{asks(anywhere, "4")}, true, 1, "there is room for none; all may stay Pending."},
		{"a node is full of pods", two[:1], nil, []corev1.Pod{asks(anywhere, ""), asks(anywhere, ""), asks(anywhere, ""), asks(anywhere, "")}, true, 1, "They request nothing: there is room for 3 of 4"},
		{"more is taken than there is", two[:1], []corev1.Pod{asks(plain(), "3")}, []corev1.Pod{asks(anywhere, "1")}, true, 1, "free on the nodes of this cluster is 0 cpu, on one of them at most 0 cpu"},
		{"pods that may run elsewhere only", two, nil, []corev1.Pod{asks(remote, "1")}, true, 1, "for none"},
		{"of which the terms go", two, nil, []corev1.Pod{asks(remote, "1")}, false, 0, "for all"},
		{"a nodeSelector stays", two, nil, []corev1.Pod{asks(north, "1")}, false, 1, "for none"},
		{"a taint", []corev1.Node{node("a", "2", func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: "control-plane", Effect: corev1.TaintEffectNoSchedule}}
		})}, nil, []corev1.Pod{asks(anywhere, "1")}, true, 1, "for none"},
		{"no node that takes pods", []corev1.Node{node("a", "2", func(n *corev1.Node) { n.Spec.Unschedulable = true }), node("b", "2", func(n *corev1.Node) { n.Status.Conditions = nil }),
			node("c", "2", func(n *corev1.Node) { n.Labels = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode} })}, nil, []corev1.Pod{asks(anywhere, "1")}, true, 1,
			"No node of this cluster takes pods now: all of them may stay Pending."},
	}
	for _, c := range cases {
		r := NewRoom(c.nodes)
		for i := range c.here {
			c.here[i].Spec.NodeName = "a"
			r.Take(&c.here[i])
		}
		for range 2 { // trying changes nothing
			f := r.Fit(c.moving, c.terms)
			if text := f.Words(); f.Homeless != c.homeless || !strings.Contains(text, c.says) {
				t.Errorf("%s: %d homeless, %q; want %d, %q", c.reason, f.Homeless, text, c.homeless, c.says)
			}
		}
	}
}
