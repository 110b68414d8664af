package admission

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// maxAvoided bounds how many nodes a pod's terms name.
	maxAvoided = 64
	// usualTimeout is what providers offer that add no nodes by themselves.
	usualTimeout = 10 * time.Second
)

// avoid is the virtual nodes of the sides that a pod is to be kept off: first those that
// have refused its like most often, then those without room for it, by name.
func avoid(f facts, sides []side) []string {
	wanted := scheduling.PodRequests(f.pod, scheduling.PodResourcesOptions{})
	var avoided []virtualNode
	for _, n := range f.nodes {
		if picked(n, sides) && (n.refused > 0 || n.tooSmall(wanted)) {
			avoided = append(avoided, n)
		}
	}
	slices.SortFunc(avoided, func(a, b virtualNode) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(a.name, b.name))
	})
	var names []string
	for _, n := range avoided[:min(len(avoided), maxAvoided)] {
		names = append(names, n.name)
	}
	return names
}

// picked says whether one of the sides allows a virtual node.
func picked(n virtualNode, sides []side) bool {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: n.labels}}
	selector := &corev1.NodeSelector{}
	for _, s := range sides {
		if s.virtual {
			selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: s.all})
		}
	}
	matches, _ := nodeaffinity.NewLazyErrorNodeSelector(selector).Match(node)
	return matches
}

// tooSmall says whether a pod would be bound to the node and then find no node behind it
// with room. A pod for which the offer as a whole has no room now is left to the
// scheduler: it waits until there is some, while terms are for ever. The same goes for
// providers that add nodes, whose largest node may be yet to come, and for what is not known.
func (n virtualNode) tooSmall(wanted corev1.ResourceList) bool {
	if n.offer == nil || len(n.offer.Shapes) == 0 {
		return false
	}
	if t := n.offer.SchedulingTimeout; t != nil && t.Duration > usualTimeout {
		return false
	}
	if !covers(n.offer.Resources, wanted) {
		return false
	}
	for _, shape := range n.offer.Shapes {
		for _, largest := range shape.Largest {
			if covers(largest, wanted) {
				return false
			}
		}
	}
	return true
}

// covers says whether there is as much of everything as is wanted. What is not listed is
// not there.
func covers(there v1alpha1.ResourceList, wanted corev1.ResourceList) bool {
	for name, want := range wanted {
		if amount(want) > amount(there[string(name)]) {
			return false
		}
	}
	return true
}

// Bounds of quantities that are looked at: beyond them arithmetic could take for ever.
const (
	maxScale = 30
	maxBits  = 256
	most     = int64(1) << 62
)

// amount is a quantity in thousandths. What is out of bounds counts as endless.
func amount(q resource.Quantity) int64 {
	decimal := q.DeepCopy()
	d := decimal.AsDec() // costs nothing, whatever the exponent
	if d.Scale() > maxScale || d.Scale() < -maxScale || d.UnscaledBig().BitLen() > maxBits {
		return most
	}
	if q.CmpInt64(most/1000) >= 0 {
		return most
	}
	return q.MilliValue()
}
