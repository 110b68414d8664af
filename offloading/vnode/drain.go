package vnode

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/fleet"
)

const (
	// annotationDraining on a virtual node says since when it is being drained. It is not
	// taken back: the node goes.
	annotationDraining = "pelago.dev/draining"
	// budgetsFor is how long disruption budgets may hold up a drain.
	budgetsFor = 60 * time.Second
	// awayFor is how long a provider may be away before its pods are given up.
	awayFor = 60 * time.Second
	// overdue is how long after its own grace a pod may be there.
	overdue = 60 * time.Second
	// stuckForced is how long after being given up a pod is waited for with force: another
	// one's finalizer holds it.
	stuckForced = 5 * time.Second
	// maxPerPass bounds how many pods one look at a node acts on.
	maxPerPass = 100
)

func draining(node *corev1.Node) bool {
	return node != nil && node.Annotations[annotationDraining] != ""
}

// drainingSince is when the drain began; now if that cannot be read or lies ahead.
func drainingSince(node *corev1.Node, now time.Time) time.Time {
	since, err := time.Parse(time.RFC3339, node.Annotations[annotationDraining])
	if err != nil || since.After(now) {
		return now
	}
	return since
}

// drainFacts are what the next step of a drain depends on.
type drainFacts struct {
	now, since time.Time
	forced     bool
	state      *fleet.State // nil if there is no connection
	pods       []metav1.PartialObjectMetadata
}

// away says whether the provider is given up.
func (f drainFacts) away() bool {
	switch {
	case f.forced:
		return true
	case f.state == nil:
		return f.now.Sub(f.since) >= awayFor
	case f.state.Reachable && f.state.Reason != v1alpha1.ReasonForbidden:
		return false
	}
	return f.now.Sub(f.state.Since) >= awayFor
}

// drainStep is what to do with the pods of a node.
type drainStep struct {
	evict, remove, kill []metav1.PartialObjectMetadata
	left                int  // pods that are waited for
	more                bool // there are others to act on at once
}

// drain decides what happens to each pod. Those of DaemonSets go with the node.
func drain(f drainFacts) drainStep {
	var s drainStep
	away := f.away()
	for _, pod := range f.pods {
		if ofDaemonSet(&pod) {
			continue
		}
		if len(s.evict)+len(s.remove)+len(s.kill) >= maxPerPass {
			s.left++
			s.more = true
			continue
		}
		dead := pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
		switch {
		case pod.DeletionTimestamp != nil && dead:
			waited := f.now.Sub(pod.DeletionTimestamp.Time)
			if waited >= overdue || f.forced && waited >= stuckForced {
				continue
			}
		case f.forced, pod.DeletionTimestamp != nil && (away || f.now.Sub(pod.DeletionTimestamp.Time) >= overdue):
			s.kill = append(s.kill, pod)
		case pod.DeletionTimestamp != nil:
		case f.now.Sub(f.since) >= budgetsFor:
			s.remove = append(s.remove, pod)
		default:
			s.evict = append(s.evict, pod)
		}
		s.left++
	}
	return s
}

// ofDaemonSet says whether an object's controller is a DaemonSet.
func ofDaemonSet(obj metav1.Object) bool { return daemonSetOf(obj) != nil }

func daemonSetOf(obj metav1.Object) *metav1.OwnerReference {
	owners := obj.GetOwnerReferences()
	i := slices.IndexFunc(owners, func(o metav1.OwnerReference) bool { return o.Controller != nil && *o.Controller })
	if i < 0 || owners[i].Kind != "DaemonSet" || owners[i].APIVersion != "apps/v1" {
		return nil
	}
	return &owners[i]
}
