package consumer

import (
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/offloading/admission"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

const (
	// behind is how long the mirror may not show what was written, before it is written
	// again.
	behind = 10 * time.Second
	// buryAgain is the same of the removal of a home pod.
	buryAgain = 2 * time.Second
	// patience is how long an end waits for a provider that is away.
	patience = time.Minute
	// lingers is how long after it was told to end a pod is there that is not gone at once.
	lingers = 2 * time.Second
	// trial is for how long a pod runs before its owner's pods are as welcome as ever: one that
	// its provider takes and removes again at once would come back to it without end.
	trial = time.Minute
)

// plan is what is to be done, in this order.
type plan struct {
	// gone: first make sure that there is no ShadowPod at the provider.
	gone bool
	// status of the home pod.
	status *corev1.PodStatus
	// create the ShadowPod, or change it, or only its grace period.
	create, change, grace *v1alpha1.ShadowPod
	// end the ShadowPod; if there is none, the home pod.
	end bool
	// bury removes the home pod at once.
	bury bool
	// home sends the pod home: its owner's next pods avoid the node, and it is evicted.
	home *sending
	// refused is told in an event when status first says so, and so is rejected.
	refused  *sending
	rejected *rejection
	// warnings are what the provider warns of that no event says yet.
	warnings []warning
	// left: it is removed though the provider has not ended it, which is told.
	left bool
	// begins: the pod begins to run. welcome, once it has run for a while, forgets that pods of
	// this owner were sent home.
	begins, welcome bool
	// waits is what the pod waits for to be ready, beside its provider; nil is nothing.
	waits *wait
	// again is when to look again though nothing happened; 0 is never.
	again time.Duration
}

// sending is why a pod is sent home.
type sending struct {
	reason, message string
	// remember it, so that the owner's next pods avoid the node.
	remember bool
}

// decide says what to do about a home pod on a virtual node.
func decide(f facts) plan {
	switch {
	case !f.pod.DeletionTimestamp.IsZero():
		return ending(f)
	case terminal(f.pod.Status.Phase):
		return plan{home: stillSent(f)} // the ShadowPod goes when the pod does
	case f.link == away && f.pod.Status.Phase == corev1.PodRunning:
		return plan{status: changed(f, shadow.Unreachable(f.pod))}
	case f.link != up && f.link != refusing: // one that refuses may do so for another kind
		return severed(f)
	case f.shadow == nil:
		return absent(f)
	}
	return present(f)
}

// absent is a pod that the provider does not have.
func absent(f facts) plan {
	switch {
	case kube.Idle(f.pod, f.offloaded):
		return plan{} // the room of virtual nodes answers for these
	case f.memory.seen || started(f.pod):
		// The provider removed it for good. It is not made again: it may have done its work.
		// Nor is it if it was ended here, because its namespace has no place there any more.
		return plan{gone: true, status: removed(f)}
	case !f.offloaded:
		return stays(f, v1alpha1.ReasonRefused, fmt.Sprintf("namespace %s is not offloaded: label it %s=true, or keep the pod off node %s",
			f.pod.Namespace, v1alpha1.LabelOffload, f.at.Node))
	case !kube.Tolerates(f.pod):
		return stays(f, v1alpha1.ReasonRefused, fmt.Sprintf("spec.tolerations: none for %s, so this pod was not admitted to virtual nodes; delete it so that it is made anew",
			v1alpha1.TaintVirtualNode))
	case !f.mapped:
		return unmapped(f)
	case f.now.Sub(f.memory.created) < behind:
		return plan{again: behind}
	case f.unsettled != "":
		return unsettled(f)
	}
	want, _, err := shadow.Forge(f.pod, f.at)
	var refusal *shadow.Refusal
	switch {
	case errors.As(err, &refusal):
		return refuse(f, f.pod.Status, v1alpha1.ReasonRefused, err.Error())
	case err != nil:
		return stays(f, v1alpha1.ReasonInvalid, err.Error())
	}
	return plan{create: want, again: behind}
}

// unmapped is a pod whose namespace has no place at the provider. A new one may be ahead
// of that place, whose coming brings it back; later it goes where its owner's next ones
// go, as one that is refused.
func unmapped(f facts) plan {
	why := fmt.Sprintf("namespace %s is not offloaded to %s: let spec.clusterSelector of its NamespaceOffloading match, or keep the pod off node %s",
		f.pod.Namespace, f.peering, f.at.Node)
	if wait := f.pod.CreationTimestamp.Add(patience).Sub(f.now); wait > 0 {
		return plan{status: changed(f, explained(f, f.pod.Status, v1alpha1.ReasonNamespaceMissing, why)), again: min(wait, patience)}
	}
	return refuse(f, f.pod.Status, v1alpha1.ReasonNamespaceMissing, why)
}

// unsettled is a pod that could be reached there before a NetworkPolicy of its namespace is, or run with
// what a Secret was before. That takes as long as its provider takes to answer, who has to for the pod as well.
func unsettled(f facts) plan {
	p := plan{again: f.askAgain}
	if f.now.Sub(f.pod.CreationTimestamp.Time) > behind {
		p.status = changed(f, explained(f, f.pod.Status, v1alpha1.ReasonWaiting, fmt.Sprintf("%s of namespace %s has to be at %s before the pod is", f.unsettled, f.pod.Namespace, f.peering)))
	}
	return p
}

// present is a pod that the provider has.
func present(f facts) plan {
	next := told(f)
	if terminal(next.Phase) {
		return plan{status: changed(f, next)} // a change comes too late
	}
	want, leftOut, err := shadow.Forge(f.pod, f.at)
	p := plan{change: change(f, want, err)}
	refused := refused(f.shadow)
	if refused == nil {
		runs, ran := next.Phase == corev1.PodRunning, f.pod.Status.Phase == corev1.PodRunning
		p.begins = runs && !ran
		if no, known := rejected(f, want, leftOut, err); known {
			mark(&next, no, f.now)
			p.rejected = no
		}
		settle := settled(f, &next)
		if !isReady(&next) {
			p.warnings, p.again = due(f.memory.warned, warnings(f.shadow, f.now), f.now)
		}
		var soon time.Duration
		p.waits, soon = await(f, &next)
		if p.waits != nil && p.waits.heralds { // all that is new of it is written once
			return plan{change: p.change, waits: p.waits, again: soon}
		}
		settle = soonest(soonest(settle, soon), cut(f, &next))
		if runs && ran && !f.memory.tried.IsZero() {
			left := f.memory.tried.Add(trial).Sub(f.now)
			p.welcome, settle = left <= 0, soonest(settle, min(max(left, 0), trial))
		}
		p.status, p.again = changed(f, next), soonest(p.again, settle)
		return p
	}
	old := refused.ObservedGeneration != 0 && refused.ObservedGeneration < f.shadow.Generation
	if p.change != nil || old || !f.shadow.DeletionTimestamp.IsZero() {
		return p // the answer is about to be another one
	}
	mark(&next, nil, f.now) // nothing runs that could follow
	if slices.Contains(waiting, refused.Reason) {
		p.status = changed(f, explained(f, next, refused.Reason, refused.Message))
		return p
	}
	return refuse(f, next, refused.Reason, refused.Message)
}

// refused is the condition by which the provider refuses a pod, nil if it does not.
func refused(s *v1alpha1.ShadowPod) *metav1.Condition {
	c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionAccepted)
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	return c
}

// told is the status that the provider tells; what home has if it tells none, or
// nonsense.
func told(f facts) corev1.PodStatus {
	s := *f.shadow
	if s.Status.Pod == "" && s.Status.Phase == "" {
		next := *f.pod.Status.DeepCopy()
		if condition := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionAccepted); condition != nil {
			next.Reason, next.Message = "", "" // of an earlier answer
		}
		return next
	}
	if want, _, err := shadow.Forge(f.pod, f.at); err == nil && f.asked(want) {
		s.Spec.Labels, s.Spec.Annotations, s.Spec.Pod = want.Spec.Labels, want.Spec.Annotations, want.Spec.Pod // the mirror keeps no pod
	}
	next, err := shadow.Status(f.pod, &s, f.at.Address, f.view)
	if err != nil {
		return f.pod.Status
	}
	shadow.Date(&next, f.pod, f.now)
	return next
}

// asked says whether the ShadowPod that is there asks for what want does.
func (f facts) asked(want *v1alpha1.ShadowPod) bool {
	return shadow.Asked(askedBy(f.shadow), want, f.pod, f.at)
}

// askedBy is the hash of what a ShadowPod asks for; the mirror keeps it instead of the pod.
func askedBy(s *v1alpha1.ShadowPod) string {
	if s.Spec.Pod != "" {
		return shadow.Hash(s.Spec)
	}
	return s.Annotations[annotationAsked]
}

// waiting are the reasons for which a provider runs a pod later.
var waiting = []string{
	v1alpha1.ReasonPending, v1alpha1.ReasonWaiting, v1alpha1.ReasonNamespaceMissing, v1alpha1.ReasonNameTaken, v1alpha1.ReasonTerminating,
}

// change is the ShadowPod as it should be, nil if it is so, or if the pod was changed
// into one that the provider cannot run: then what runs goes on.
func change(f facts, want *v1alpha1.ShadowPod, err error) *v1alpha1.ShadowPod {
	if !f.shadow.DeletionTimestamp.IsZero() || !kube.Tolerates(f.pod) || err != nil || f.asked(want) {
		return nil
	}
	return want
}

// refuse sends a pod home if it has an owner that makes another one which could go
// elsewhere; else it stays, and says why, and the provider may take it yet. What makes
// another place of a node brings it back.
func refuse(f facts, next corev1.PodStatus, reason, message string) plan {
	p := stays(f, reason, message)
	p.status = changed(f, explained(f, next, reason, message))
	switch {
	case !replaceable(f.pod, f.tenant):
	case f.elsewhere:
		p.home = p.refused
	default:
		p.again = until(f.until, f.now)
	}
	return p
}

// stays leaves a pod where it is, with the reason.
func stays(f facts, reason, message string) plan {
	return plan{
		status:  changed(f, explained(f, f.pod.Status, reason, message)),
		refused: &sending{reason: clean(reason, 64), message: clean(message, 512), remember: true},
	}
}

// replaceable says whether a pod's owner would make another one elsewhere. A DaemonSet
// makes it on the same node. Of Jobs, apply asks more. A tenant's pod is made anew only if
// it is always restarted; of others the tenant would be told that they failed.
func replaceable(pod *corev1.Pod, tenant string) bool {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return owner.Kind != "DaemonSet"
	}
	return pod.Spec.RestartPolicy == corev1.RestartPolicyAlways && admission.Owner(pod, tenant) != ""
}

// stillSent is for a pod that was marked as removed by the provider, and whose eviction
// is due. What the provider removed is as good as refused; what ended here is not. Refused is also
// what cannot end by itself and has: its owner makes the next one at once, without end.
func stillSent(f facts) *sending {
	owner, reason := metav1.GetControllerOf(f.pod), f.pod.Status.Reason
	switch {
	case owner == nil || owner.Kind == "Job" || owner.Kind == "DaemonSet":
		return nil
	case reason == reasonRemoved, reason == reasonUnmapped:
		return &sending{reason: reason, message: f.pod.Status.Message, remember: reason == reasonRemoved}
	case f.shadow != nil && terminal(corev1.PodPhase(f.shadow.Status.Phase)) && kube.Endless(f.pod) && !disrupted(f.pod):
		return &sending{reason: reasonEnded, remember: true}
	}
	return nil
}

// disrupted says that a pod's provider has taken it away: an earlier build tells so of one that kept crashing, too.
func disrupted(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
	})
}

// ending is a pod that is being deleted: the provider's goes first.
func ending(f facts) plan {
	p := plan{}
	if f.link != up && f.leaving {
		since := f.since
		// Nobody knows since when a provider is not known, or what it has.
		if asked := askedAt(f.pod); (f.link == unknown || f.link == blind) && asked.After(since) {
			since = asked
		}
		if p.again = since.Add(patience).Sub(f.now); p.again <= 0 {
			return bury(f, plan{})
		}
	}
	switch {
	case f.link == away && f.pod.Status.Phase == corev1.PodRunning: // whoever counts ready pods counts those that end, too
		p.status = changed(f, shadow.Unreachable(f.pod))
		return p
	case f.link == unknown, f.link == away:
		return p
	case f.link == blind:
		return plan{end: true, again: behind}
	}
	if f.shadow == nil {
		if f.memory.seen || never(f) {
			return bury(f, p)
		}
		return plan{end: true, again: behind}
	}
	if f.pod.Spec.RestartPolicy != corev1.RestartPolicyAlways && !terminal(f.pod.Status.Phase) {
		if next := told(f); terminal(next.Phase) {
			p.status = changed(f, next) // who counts how pods end is to know
		}
	}
	p.grace = grace(f)
	if p.end = f.shadow.DeletionTimestamp.IsZero(); p.end {
		return p
	}
	return held(f, lastly(f, p))
}

// lastly tells of a pod that ends that it is not ready any more: until then it is called where no other is. One that
// is gone within lingers need not be told of.
func lastly(f facts, p plan) plan {
	if p.status != nil || f.pod.Status.Phase != corev1.PodRunning || !isReady(&f.pod.Status) {
		return p
	}
	next := told(f)
	p.again = soonest(p.again, cut(f, &next))
	if next.Phase != corev1.PodRunning || isReady(&next) {
		return p
	}
	if left := f.memory.told.Add(lingers).Sub(f.now); left > 0 && left <= lingers {
		p.again = soonest(p.again, left)
		return p
	}
	p.status = changed(f, next)
	return p
}

// held is a pod that its provider was told to end and has not ended, though it answers: nothing may look after
// ShadowPods there. Where nobody makes the pod again, as its namespace goes as well, it is not waited for for
// ever; elsewhere there could be two of it.
func held(f facts, p plan) plan {
	since, patience := latest(f.memory.told, f.since), patience
	if g := f.pod.DeletionGracePeriodSeconds; g != nil {
		patience += min(time.Duration(*g)*time.Second, shadow.LongestGrace)
	}
	left := since.Add(patience).Sub(f.now)
	if left > 0 {
		p.again = soonest(p.again, min(left, patience))
		return p
	}
	if p.status == nil {
		p.status = changed(f, explained(f, f.pod.Status, v1alpha1.ReasonTerminating,
			fmt.Sprintf("%s was told to end this pod and has not; see whether the manager of Pelago runs there", f.peering)))
	}
	if f.closing == nil {
		return p
	}
	if left += shadow.LongestGrace; left > 0 {
		p.again = soonest(p.again, left)
		return p
	}
	return bury(f, plan{left: true})
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// never says that there cannot have been a ShadowPod: nothing like the pod is forged.
func never(f facts) bool {
	if started(f.pod) || !f.memory.created.IsZero() || !kube.Tolerates(f.pod) {
		return false
	}
	_, _, err := shadow.Forge(f.pod, f.at)
	var refusal *shadow.Refusal
	return errors.As(err, &refusal)
}

// bury removes the home pod. What counts ends of pods waits for a terminal phase.
func bury(f facts, p plan) plan {
	if f.pod.Spec.RestartPolicy != corev1.RestartPolicyAlways && !terminal(f.pod.Status.Phase) {
		next := *f.pod.Status.DeepCopy()
		next.Phase, next.Reason, next.Message = corev1.PodFailed, "", ""
		unready(&next, "PodFailed", "", f.now)
		p.status = changed(f, next)
	}
	// With a grace of 0 it has been buried, and waits for finalizers of others. Without any
	// it was half done: API servers write the 0 first, and a request that is cut off there
	// leaves the pod to whoever asks again.
	g := f.pod.DeletionGracePeriodSeconds
	p.bury = g == nil || *g > 0 || len(f.pod.Finalizers) == 0
	// The 0 comes by while the request still runs.
	if left := f.memory.buried.Add(buryAgain).Sub(f.now); p.bury && left > 0 && left <= buryAgain {
		p.bury, p.again = false, left
	}
	return p
}

// grace is the ShadowPod with the grace period of the home pod's deletion, nil if it
// has that.
func grace(f facts) *v1alpha1.ShadowPod {
	want, has := f.pod.DeletionGracePeriodSeconds, f.shadow.Spec.GracePeriodSeconds
	if has == nil {
		has = f.pod.Spec.TerminationGracePeriodSeconds
	}
	if want == nil || has != nil && *want == *has {
		return nil
	}
	s := f.shadow.DeepCopy()
	s.Spec.GracePeriodSeconds = want
	return s
}

// askedAt is when a pod's deletion was asked for.
func askedAt(pod *corev1.Pod) time.Time {
	asked := pod.DeletionTimestamp.Time
	if g := pod.DeletionGracePeriodSeconds; g != nil {
		asked = asked.Add(-time.Duration(*g) * time.Second)
	}
	return asked
}

// changed returns the status to write, nil if the pod has it. The time of a condition
// moves only with its value. What this cluster's API server drops is no reason to write.
func changed(f facts, next corev1.PodStatus) *corev1.PodStatus {
	pod := f.pod
	next.Conditions = likewise(pod.Status.Conditions, next.Conditions)
	shadow.Stamp(&next, metav1.NewTime(f.now.Truncate(time.Second)))
	kept := next
	if f.sizeless {
		kept.Resources, kept.AllocatedResources = pod.Status.Resources, pod.Status.AllocatedResources
	}
	if equality.Semantic.DeepEqual(pod.Status, kept) {
		return nil
	}
	return &next
}

// likewise returns conditions in the order of old ones, and with their times where the
// value is the same.
func likewise(old, next []corev1.PodCondition) []corev1.PodCondition {
	next = slices.Clone(next)
	place := func(c corev1.PodCondition) int {
		i := slices.IndexFunc(old, func(o corev1.PodCondition) bool { return o.Type == c.Type })
		if i < 0 {
			return len(old)
		}
		return i
	}
	for i, c := range next {
		if at := place(c); at < len(old) && old[at].Status == c.Status && !old[at].LastTransitionTime.IsZero() {
			next[i].LastTransitionTime = old[at].LastTransitionTime
		}
	}
	slices.SortStableFunc(next, func(a, b corev1.PodCondition) int { return place(a) - place(b) })
	return next
}

// started says whether a pod's status can only have come from a provider.
func started(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning || len(pod.Status.ContainerStatuses) > 0 || len(pod.Status.InitContainerStatuses) > 0
}

func terminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
