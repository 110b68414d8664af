package admission

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

const (
	// maxAvoided bounds how many nodes a pod's terms name.
	maxAvoided = 64
	// usualTimeout is what providers offer that add no nodes by themselves.
	usualTimeout = 10 * time.Second
)

// tooSmall says whether a pod would be bound to the node and then find no node behind it
// with room. A pod for which the offer as a whole has no room now is left to the
// scheduler: it waits until there is some, without being made again. The same goes for
// providers that add nodes, whose largest node may be yet to come, and for what is not
// known.
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
