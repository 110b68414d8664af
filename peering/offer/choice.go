package offer

import (
	"time"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// expired is said of an offer that has ended.
const expired = "the provider has not renewed its offer"

// choice is what a consumer says about an offer, and why in words of conditions.
type choice struct {
	decision v1alpha1.Decision
	accepted bool
	reason   string
	message  string
}

// decideChoice decides on an offer, nil if there is none. An offer is accepted when it has
// something in it, and stays accepted when it has nothing for a while. Before is
// what was decided last.
func decideChoice(spec v1alpha1.ResourceRequestSpec, offer *received, before v1alpha1.Decision, now time.Time) choice {
	wanted := spec.Acceptance != v1alpha1.AcceptanceManual || spec.Decision == v1alpha1.DecisionAccepted
	switch {
	case spec.Decision == v1alpha1.DecisionDeclined:
		return choice{v1alpha1.DecisionDeclined, false, v1alpha1.ReasonDeclined, "spec.decision is Declined"}
	case offer == nil:
		return choice{"", false, v1alpha1.ReasonWaiting, "waiting for an offer"}
	case !offer.expires.After(now):
		return choice{"", false, v1alpha1.ReasonExpired, expired}
	case !wanted:
		return choice{"", false, v1alpha1.ReasonUndecided, "set spec.decision to Accepted or Declined"}
	case !offer.usable() && before != v1alpha1.DecisionAccepted:
		return choice{"", false, v1alpha1.ReasonNothingFree, "the offer has not cpu, memory and pods in it"}
	}
	return choice{v1alpha1.DecisionAccepted, true, v1alpha1.ReasonAccepted, ""}
}
