// Package chain explains: it walks from the first thing that has to be so to the last
// one, says of each whether it is, and of the first that is not, why and what to do.
// Everything here is a function of objects somebody else has read.
package chain

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// State is how far a step has come.
type State string

// The states of a step.
const (
	// Done: it is so.
	Done State = "Done"
	// Waiting: it is not so yet, and nobody has to act.
	Waiting State = "Waiting"
	// Broken: it is not so, and stays so until somebody acts or something heals.
	Broken State = "Broken"
	// Unknown: an earlier step has to be done first.
	Unknown State = "Unknown"
	// Aside: it is not so and need not be, or nobody may see whether it is; it explains what is.
	Aside State = "Aside"
)

// Step is one fact in a chain.
type Step struct {
	// Fact is what has to be so.
	Fact string `json:"fact"`
	// State says whether it is.
	State State `json:"state"`
	// Evidence is how that is known.
	Evidence string `json:"evidence,omitempty"`
	// Remedy is what to do, if it is not so.
	Remedy string `json:"remedy,omitempty"`
}

// Chain is the steps of one thing, the first ones first.
type Chain struct {
	// Title says of what.
	Title string `json:"title"`
	// Steps in the order in which they depend on each other.
	Steps []Step `json:"steps"`
}

// First returns the first step that is not done, nil if all are.
func (c Chain) First() *Step {
	for i := range c.Steps {
		if c.Steps[i].State != Done && c.Steps[i].State != Aside {
			return &c.Steps[i]
		}
	}
	return nil
}

// Stops returns the steps at which the chain and its branches stop, none if all is done.
func (c Chain) Stops() []Step {
	var stops []Step
	for _, s := range c.Steps {
		if s.State == Waiting || s.State == Broken {
			stops = append(stops, s)
		}
	}
	return stops
}

// branch appends steps that depend on those before, and on each other, but on which nothing
// outside depends.
func (c *Chain) branch(grow func(*Chain), whole bool) {
	var b Chain
	grow(&b)
	for _, s := range b.Steps {
		if !whole {
			s = Step{Fact: s.Fact, State: Unknown}
		}
		c.Steps = append(c.Steps, s)
	}
}

// note appends a step that is known whatever is before it.
func (c *Chain) note(s Step) { c.Steps = append(c.Steps, s) }

// add appends a step; after the first one that is not done the rest is unknown.
func (c *Chain) add(s Step) {
	if c.First() != nil {
		s = Step{Fact: s.Fact, State: Unknown}
	}
	c.Steps = append(c.Steps, s)
}

// step makes a step of a condition. Evidence is what to show when it is True.
func step(fact, name string, conditions []metav1.Condition, generation int64, kind, evidence string) Step {
	c := meta.FindStatusCondition(conditions, kind)
	switch {
	case c == nil:
		return Step{Fact: fact, State: Waiting, Evidence: "not looked at yet", Remedy: managerRemedy}
	case c.Status == metav1.ConditionTrue:
		return Step{Fact: fact, State: Done, Evidence: evidence}
	}
	s := Step{Fact: fact, State: Broken, Evidence: evidenceOf(c), Remedy: Remedy(c.Reason, name)}
	if passing(c.Reason) {
		s.State = Waiting
	}
	if c.ObservedGeneration < generation && c.ObservedGeneration != 0 {
		s.State, s.Remedy = Waiting, managerRemedy
		s.Evidence += " (as it was before the last change)"
	}
	return s
}

// managerRemedy is for objects that nobody has looked at.
const managerRemedy = "this takes a moment; if it stays so, see whether pelago-manager runs: pelago status"

// evidenceOf puts reason and message of a condition into one line.
func evidenceOf(c *metav1.Condition) string {
	if c.Message == "" {
		return c.Reason
	}
	return c.Reason + ": " + Plain(c.Reason, c.Message)
}

// passing reports whether a reason goes away by itself.
func passing(reason string) bool {
	switch reason {
	case v1alpha1.ReasonPending, v1alpha1.ReasonWaiting, v1alpha1.ReasonRenewing, v1alpha1.ReasonTerminating,
		v1alpha1.ReasonUndecided, v1alpha1.ReasonNothingFree:
		return true
	}
	return false
}
