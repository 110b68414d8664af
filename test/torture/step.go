// Package torture knows what to do to two peered clusters at random, and what must be
// true of them whatever was done: plans of steps that follow from a seed, a model of what
// users have asked for, and rules that hold at every moment. It is pure; the scenario
// TestTorture does the steps and observes. It never talks to a cluster.
package torture

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Verb is what a step does.
type Verb string

// What users do. Targets are PLACE/NAME, or PLACE alone for Rotate, Offload and Unoffload.
const (
	Deploy    Verb = "deploy"    // make a Deployment of so many pods
	Stateful  Verb = "stateful"  // make a StatefulSet of so many pods
	Job       Verb = "job"       // make a Job that takes so many seconds
	Scale     Verb = "scale"     // to so many pods
	Roll      Verb = "roll"      // give the template another label, so that all pods are made anew
	Mark      Verb = "mark"      // label the pods that are there
	Configure Verb = "configure" // make the ConfigMap that pods refer to, or give it another value
	Expose    Verb = "expose"    // make a Service of an app, or give it another port
	Delete    Verb = "delete"    // delete any of these
	Rotate    Verb = "rotate"    // give the Secret that pods refer to another value
	Offload   Verb = "offload"   // offload a namespace with its place's strategy
	Unoffload Verb = "unoffload" // and bring it back
)

// What goes wrong. Targets are CLUSTER/COMPONENT for Strike, PLACE/NAME for Lose,
// CLUSTER for Pause, CLUSTER/NODE for Stop; there is one link to Cut.
const (
	Strike Verb = "strike" // delete all pods of a component of Pelago, with the grace of a second
	Lose   Verb = "lose"   // delete, at the provider, a pod of a Deployment
	Cut    Verb = "cut"    // cut the link for a while
	Pause  Verb = "pause"  // freeze an API server for a while
	Stop   Verb = "stop"   // pull a node's plug for a while
)

// shape says which fields a verb has, and whether it is a fault.
type shape struct{ number, lasts, fault bool }

var shapes = map[Verb]shape{
	Deploy: {number: true}, Stateful: {number: true}, Job: {number: true}, Scale: {number: true}, Roll: {number: true}, Mark: {number: true},
	Configure: {number: true}, Expose: {number: true}, Delete: {}, Rotate: {number: true}, Offload: {}, Unoffload: {},
	Strike: {fault: true}, Lose: {fault: true}, Cut: {lasts: true, fault: true}, Pause: {lasts: true, fault: true}, Stop: {lasts: true, fault: true},
}

// Step is one thing that is done.
type Step struct {
	// At is when it is done, from the beginning of the storm.
	At time.Duration
	// Verb says what, Target to whom.
	Verb   Verb
	Target string
	// Number is a count, a version or seconds, as the verb says.
	Number int
	// For is how long a fault lasts.
	For time.Duration
}

// Place is the first part of the target: a namespace or a cluster.
func (s Step) Place() string {
	place, _, _ := strings.Cut(s.Target, "/")
	return place
}

// Name is the second part of the target, empty if there is none.
func (s Step) Name() string {
	_, name, _ := strings.Cut(s.Target, "/")
	return name
}

// Fault says whether it is something that goes wrong.
func (s Step) Fault() bool { return shapes[s.Verb].fault }

// kind is what faults are counted by: the verb, and for Strike what is struck as well.
func (s Step) kind() string {
	if s.Verb == Strike {
		return string(s.Verb) + " " + s.Name()
	}
	return string(s.Verb)
}

// Long says whether it keeps the provider away for longer than the end of an offloading
// bears (see the design).
func (s Step) Long() bool { return s.Verb == Cut && s.For > shortOutage }

// Shortened is an outage that is not long any more.
func (s Step) Shortened() Step {
	s.For = min(s.For, shortOutage)
	return s
}

// String is the line that Parse reads.
func (s Step) String() string {
	words := []string{s.At.String(), string(s.Verb), s.Target}
	if shapes[s.Verb].number {
		words = append(words, strconv.Itoa(s.Number))
	}
	if shapes[s.Verb].lasts {
		words = append(words, s.For.String())
	}
	return strings.Join(words, " ")
}

// Parse reads what String has written.
func Parse(line string) (Step, error) {
	words := strings.Fields(line)
	bad := func(why string) (Step, error) {
		return Step{}, fmt.Errorf("step %q: %s; write TIME VERB TARGET [NUMBER] [DURATION], as in 12.5s scale keep/web 3", line, why)
	}
	if len(words) < 3 {
		return bad("too few words")
	}
	s := Step{Verb: Verb(words[1]), Target: words[2]}
	form, known := shapes[s.Verb]
	if !known {
		return bad("no such verb")
	}
	var err error
	if s.At, err = time.ParseDuration(words[0]); err != nil {
		return bad(err.Error())
	}
	rest := words[3:]
	if form.number {
		if len(rest) == 0 {
			return bad("a number is missing")
		}
		if s.Number, err = strconv.Atoi(rest[0]); err != nil {
			return bad(err.Error())
		}
		rest = rest[1:]
	}
	if form.lasts {
		if len(rest) == 0 {
			return bad("how long is missing")
		}
		if s.For, err = time.ParseDuration(rest[0]); err != nil {
			return bad(err.Error())
		}
		rest = rest[1:]
	}
	if len(rest) > 0 {
		return bad("too many words")
	}
	return s, nil
}

// ParseAll reads steps, one a line, in any order. Empty lines and what follows # are left out.
func ParseAll(text string) ([]Step, error) {
	var steps []Step
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		s, err := Parse(line)
		if err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return int(a.At - b.At) })
	return steps, nil
}
