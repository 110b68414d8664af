package chain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Room is what the nodes of a cluster have free for pods that move there. It counts as the
// scheduler does: by requests.
type Room struct {
	nodes []corev1.Node
	free  []v1alpha1.ResourceList
	index map[string]int
}

// NewRoom takes the nodes that take new pods, virtual ones aside.
func NewRoom(nodes []corev1.Node) *Room {
	r := &Room{index: map[string]int{}}
	for _, n := range nodes {
		c := nodeReady(&n)
		if n.Labels[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode || n.Spec.Unschedulable || c == nil || c.Status != corev1.ConditionTrue {
			continue
		}
		free := v1alpha1.ResourceList{}
		for name, quantity := range n.Status.Allocatable {
			free[string(name)] = quantity.DeepCopy()
		}
		r.index[n.Name] = len(r.nodes)
		r.nodes, r.free = append(r.nodes, n), append(r.free, free)
	}
	return r
}

// Take counts a pod that is on one of the nodes.
func (r *Room) Take(pod *corev1.Pod) {
	if i, has := r.index[pod.Spec.NodeName]; has && !ended(pod) {
		subtract(r.free[i], Requests(pod))
	}
}

// Fit is whether pods that move find room.
type Fit struct {
	// Pods that move, and how many of them find no place.
	Pods, Homeless int
	// Asked is what they request together, Each the most of each resource that one does.
	Asked, Each v1alpha1.ResourceList
	// Free is what is free on all nodes, Most the most of each resource on one.
	Free, Most v1alpha1.ResourceList
}

// Fit tries to place pods, the largest first. Terms says that their node affinity stays as it
// is; otherwise only their nodeSelector counts. What the scheduler weighs beside is not looked
// at, so that a pod may stay pending that has a place here.
func (r *Room) Fit(pods []corev1.Pod, terms bool) Fit {
	f := Fit{Pods: len(pods), Asked: v1alpha1.ResourceList{}, Each: v1alpha1.ResourceList{}, Free: v1alpha1.ResourceList{}, Most: v1alpha1.ResourceList{}}
	free := make([]v1alpha1.ResourceList, len(r.free))
	for i := range r.free {
		free[i] = maps.Clone(r.free[i])
		gather(f.Free, f.Most, r.free[i])
	}
	pods = slices.Clone(pods)
	slices.SortStableFunc(pods, func(a, b corev1.Pod) int {
		x, y := Requests(&a), Requests(&b)
		for _, name := range first {
			p, q := x[name], y[name]
			if c := q.Cmp(p); c != 0 {
				return c
			}
		}
		return cmp.Compare(a.Name, b.Name)
	})
	for i := range pods {
		asked := Requests(&pods[i])
		gather(f.Asked, f.Each, asked)
		at := slices.IndexFunc(r.nodes, func(n corev1.Node) bool {
			return len(lacks(asked, free[r.index[n.Name]])) == 0 && allows(&pods[i], &n, terms)
		})
		if at < 0 {
			f.Homeless++
			continue
		}
		subtract(free[at], asked)
	}
	return f
}

// Words says how it is, in sentences.
func (f Fit) Words() string {
	if len(f.Free) == 0 {
		return "No node of this cluster takes pods now: all of them may stay Pending."
	}
	asked := "nothing"
	if text := amounts(f.Asked, f.Asked); text != "" {
		asked = fmt.Sprintf("%s, one of them at most %s", text, amounts(f.Each, f.Asked))
	}
	text := fmt.Sprintf("They request %s; free on the nodes of this cluster is %s, on one of them at most %s: ", asked, amounts(f.Free, f.Asked), amounts(f.Most, f.Asked))
	if asked == "nothing" {
		text = "They request nothing: "
	}
	switch {
	case f.Homeless == 0:
		return text + "there should be room for all."
	case f.Homeless == f.Pods:
		return text + "there is room for none; all may stay Pending."
	}
	return text + fmt.Sprintf("there is room for %d of %d; the others may stay Pending.", f.Pods-f.Homeless, f.Pods)
}

// amounts writes the resources that are asked for, but for the count of pods.
func amounts(list, asked v1alpha1.ResourceList) string {
	shown := v1alpha1.ResourceList{}
	for name := range asked {
		if quantity := list[name]; name != "pods" {
			if quantity.Sign() < 0 {
				quantity.Set(0)
			}
			shown[name] = quantity
		}
	}
	return Amounts(shown)
}

// allows reports whether a pod may run on a node of this cluster, apart from its size.
func allows(pod *corev1.Pod, n *corev1.Node, terms bool) bool {
	if !terms {
		pod = &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: pod.Spec.NodeSelector, Tolerations: pod.Spec.Tolerations}}
	}
	matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n)
	return err == nil && matches && tolerates(pod, n.Spec.Taints)
}

// gather adds a list to a sum, and to the most of each resource.
func gather(sum, most, list v1alpha1.ResourceList) {
	for name, quantity := range list {
		total, least := sum[name], most[name]
		total.Add(quantity)
		sum[name] = total
		if quantity.Cmp(least) > 0 {
			most[name] = quantity
		}
	}
}

func subtract(from, list v1alpha1.ResourceList) {
	for name, quantity := range list {
		rest := from[name].DeepCopy()
		rest.Sub(quantity)
		from[name] = rest
	}
}
