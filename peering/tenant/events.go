package tenant

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// announced are the conditions whose changes become events, with whether True is good.
var announced = []struct {
	condition string
	good      bool
}{
	{v1alpha1.ConditionReady, true},
	{v1alpha1.ConditionConsumerAlive, true},
	{v1alpha1.ConditionStalled, false},
}

// announce makes events of what has changed for people. Waiting is not worth one, nor
// is being well from the start.
func (r *reconciler) announce(before, after *v1alpha1.Tenant) {
	for _, a := range announced {
		was := meta.FindStatusCondition(before.Status.Conditions, a.condition)
		is := meta.FindStatusCondition(after.Status.Conditions, a.condition)
		if is == nil || (was != nil && was.Status == is.Status && was.Reason == is.Reason) {
			continue
		}
		good := (is.Status == metav1.ConditionTrue) == a.good
		switch {
		case is.Reason == v1alpha1.ReasonPending || is.Reason == v1alpha1.ReasonWaiting || is.Reason == v1alpha1.ReasonTerminating:
		case a.condition == v1alpha1.ConditionReady && !good:
			// The condition that is to blame has its own event.
		case a.condition == v1alpha1.ConditionConsumerAlive && good && was == nil:
		case good:
			r.note(after, is.Reason, a.condition, cmp.Or(is.Message, a.condition+" is "+string(is.Status)))
		default:
			r.warn(after, is.Reason, a.condition, cmp.Or(is.Message, a.condition+" is "+string(is.Status)))
		}
	}
}

// note makes an event of something that is as it should be.
func (r *reconciler) note(t *v1alpha1.Tenant, reason, action, message string) {
	r.events.Eventf(t, nil, corev1.EventTypeNormal, reason, action, "%s", message)
}

// warn makes an event of something that somebody should know.
func (r *reconciler) warn(t *v1alpha1.Tenant, reason, action, message string) {
	r.events.Eventf(t, nil, corev1.EventTypeWarning, reason, action, "%s", message)
}
