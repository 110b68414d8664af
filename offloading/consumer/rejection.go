package consumer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// rejection is why what runs does not follow a change of its home pod.
type rejection struct {
	// of is what was asked for: a provider that changes its words is not heard again.
	of      string
	message string
	// remedy is what to do.
	remedy string
}

const (
	remedyChange    = "change what it names, or delete the pod so that it is made anew"
	remedyEphemeral = "add another one without that, by another name, or delete the pod so that it is made anew"
)

// rejected finds out whether the pod that runs follows the home pod as it is now: nil if
// it does. It is not known while an answer is due. What was left out here is told again only
// with what the provider does not follow.
func rejected(f facts, want *v1alpha1.ShadowPod, leftOut []string, err error) (no *rejection, known bool) {
	var refusal *shadow.Refusal
	switch {
	case !f.shadow.DeletionTimestamp.IsZero() || !kube.Tolerates(f.pod):
		return nil, false
	case errors.As(err, &refusal):
		return reject("", err.Error()), true
	case err != nil || !f.asked(want) || f.shadow.Status.ObservedGeneration < f.shadow.Generation:
		return nil, false
	}
	here, there := strings.Join(leftOut, "; "), shadow.Unfollowed(f.shadow)
	switch {
	case there != "" && here != "":
		return reject(askedBy(want)+here, here+"; "+there), true
	case there != "":
		return reject(askedBy(want), there), true
	case here != "":
		no = reject("", here)
		no.remedy = remedyEphemeral
		return no, true
	}
	return nil, true
}

// reject is a rejection of what was asked for; home's own is of what it says.
func reject(of, message string) *rejection {
	message = clean(message, 512)
	if of == "" {
		of = message
	}
	return &rejection{of: of, message: message, remedy: remedyChange}
}

// mark says in a status that what runs does not follow, or, without a rejection, says
// it no more.
func mark(status *corev1.PodStatus, no *rejection, now time.Time) {
	if no == nil {
		status.Conditions = slices.DeleteFunc(slices.Clone(status.Conditions), func(c corev1.PodCondition) bool {
			return c.Type == v1alpha1.ConditionChangeRefused
		})
		return
	}
	set(status, v1alpha1.ConditionChangeRefused, corev1.ConditionTrue, v1alpha1.ReasonChangeRefused, no.message, now)
}

// marked is what a status says of a rejection.
func marked(status *corev1.PodStatus) string {
	for _, c := range status.Conditions {
		if c.Type == v1alpha1.ConditionChangeRefused {
			return c.Message
		}
	}
	return ""
}

// reject tells of a change that the provider's API server does not take.
func (r *reconciler) reject(ctx context.Context, f *facts, want *v1alpha1.ShadowPod, err error) error {
	no := reject(askedBy(want), err.Error())
	next := *f.pod.Status.DeepCopy()
	mark(&next, no, f.now)
	return r.status(ctx, f, plan{status: changed(*f, next), rejected: no})
}
