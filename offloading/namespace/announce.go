package namespace

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// announce makes events of what has changed for people.
func (r *offloader) announce(before, after *v1alpha1.NamespaceOffloading, p *plan) {
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady)
	// No event of an end: what ends is often the namespace, which takes none any more.
	if is != nil && (was == nil || was.Reason != is.Reason) && is.Reason != v1alpha1.ReasonPending && is.Reason != v1alpha1.ReasonTerminating {
		kind := corev1.EventTypeWarning
		if is.Status == metav1.ConditionTrue {
			kind = corev1.EventTypeNormal
		}
		message := is.Message
		if message == "" {
			message = "the namespace is there at every cluster selected"
		}
		r.events.Eventf(after, nil, kind, is.Reason, "Offload", "%s", message)
	}
	for i := range after.Status.Clusters {
		c := &after.Status.Clusters[i]
		if kept(c) != nil && !keptBefore(before, c.Name) {
			r.events.Eventf(after, nil, corev1.EventTypeWarning, v1alpha1.ReasonVolumesKept, "Unoffload", "%s: %s", c.Name, kept(c).Message)
		}
	}
	if p.done && len(p.left) > 0 && after.DeletionTimestamp != nil {
		r.events.Eventf(after, nil, corev1.EventTypeWarning, "LeftBehind", "Unoffload",
			"%s did not remove the namespace in time, and will when the clusters reach each other", strings.Join(p.left, ", "))
	}
}

func kept(c *v1alpha1.ClusterOffloading) *metav1.Condition {
	said := meta.FindStatusCondition(c.Conditions, v1alpha1.ConditionReady)
	if said == nil || said.Reason != v1alpha1.ReasonVolumesKept {
		return nil
	}
	return said
}

func keptBefore(o *v1alpha1.NamespaceOffloading, cluster string) bool {
	for i := range o.Status.Clusters {
		if c := &o.Status.Clusters[i]; c.Name == cluster {
			return kept(c) != nil
		}
	}
	return false
}
