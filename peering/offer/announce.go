package offer

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// transition is a change of a condition that people hear of.
type transition struct {
	kind, reason, eventType, note string
}

// announcements are the events, by the condition and the reason it came to have.
var announcements = []transition{
	{v1alpha1.ConditionOffered, v1alpha1.ReasonOffered, corev1.EventTypeNormal, "there is an offer"},
	{v1alpha1.ConditionOffered, v1alpha1.ReasonWithdrawn, corev1.EventTypeWarning, "the provider has taken the offer back"},
	{v1alpha1.ConditionOffered, v1alpha1.ReasonDrained, corev1.EventTypeWarning, "the provider has drained this consumer"},
	{v1alpha1.ConditionOffered, v1alpha1.ReasonInvalid, corev1.EventTypeWarning, "the request or the offer breaks a rule"},
	{v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, corev1.EventTypeNormal, "the offer is accepted"},
	{v1alpha1.ConditionAccepted, v1alpha1.ReasonDeclined, corev1.EventTypeNormal, "the offer is declined"},
	{v1alpha1.ConditionAccepted, v1alpha1.ReasonExpired, corev1.EventTypeWarning, "the offer has ended without being renewed"},
}

// transitions returns which announcements follow from a change of conditions.
func transitions(before, after []metav1.Condition) []transition {
	var out []transition
	for _, t := range announcements {
		now := meta.FindStatusCondition(after, t.kind)
		was := meta.FindStatusCondition(before, t.kind)
		if now != nil && now.Reason == t.reason && (was == nil || was.Reason != t.reason) {
			out = append(out, t)
		}
	}
	return out
}

func announce(r events.EventRecorder, before, after *v1alpha1.ResourceRequest) {
	for _, t := range transitions(before.Status.Conditions, after.Status.Conditions) {
		r.Eventf(after, nil, t.eventType, t.reason, "Negotiate", t.note)
	}
}

func (p *provider) announce(before, after *v1alpha1.ResourceRequest) {
	announce(p.events, before, after)
}
