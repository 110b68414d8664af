package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// avoidMin doubles with each refusal in a row, up to avoidMax.
	avoidMin = 30 * time.Second
	avoidMax = time.Hour
)

// AvoidFor is how long pods avoid a node after so many refusals in a row: a minute after the first one,
// an hour at most.
func AvoidFor(count int32) time.Duration {
	if count > 10 {
		return avoidMax
	}
	return min(avoidMin<<max(count, 0), avoidMax)
}

// Holds says whether a refusal is to be heeded: pods avoid its node until then, unless the node was made after
// the refusal. A provider that drains its tenant has the node go, and a new one means that it takes
// pods again.
func (r *Refusal) Holds(made metav1.Time, now time.Time) bool {
	return now.Before(r.Until.Time) && !r.Before(made)
}

// Before says whether a refusal was before its node was made.
func (r *Refusal) Before(made metav1.Time) bool {
	return made.After(r.Until.Add(-AvoidFor(r.Count)))
}
