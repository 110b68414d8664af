package provider

import (
	"encoding/json"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

const (
	// deadline is how long after its grace a pod on a node that is not ready is taken for
	// dead and removed without its kubelet. One of a StatefulSet is not: it waits, as in
	// any cluster, until the node is gone.
	deadline = 5 * time.Minute
	// stuckLook is how often a pod that does not end is looked at.
	stuckLook = 30 * time.Second
	// unscheduledAgain is when a pod that no node had room for is tried again.
	unscheduledAgain = 5 * time.Minute
	// refusedAgain is when a pod is tried again that limits or the API server refused, and
	// refusedLatest the most it grows to.
	refusedAgain  = 30 * time.Second
	refusedLatest = 5 * time.Minute
	// triedEvery is how often making a pod is tried at most.
	triedEvery = time.Second
	// changeEvery is how often a pod is changed after its ShadowPod.
	changeEvery = time.Second
)

// plan is what is to be done for a ShadowPod. Without adopt the order is: status, then
// release and remove, then create or update, then done.
type plan struct {
	// adopt adds our finalizer to the ShadowPod; all else waits for that.
	adopt bool
	// status is the ShadowPod's next one; first says that nothing else may be done before
	// it is written.
	status v1alpha1.ShadowPodStatus
	pod    *corev1.PodStatus // what status.pod tells of, nil if nothing new
	first  bool
	// release are the pods that lose our finalizer, remove those that are deleted.
	release []*corev1.Pod
	remove  []removal
	create  bool
	update  bool
	// done takes our finalizer off the ShadowPod.
	done bool
	// again is when to look again, 0 for when something changes.
	again time.Duration
}

// removal is a deletion of a pod: with its own grace if nil. A pinned one holds only as
// long as nothing has changed.
type removal struct {
	pod    *corev1.Pod
	grace  *int64
	pinned bool
}

// in looks again after d, or sooner if that was planned.
func (p *plan) in(d time.Duration) {
	if d = max(d, time.Millisecond); p.again == 0 || d < p.again {
		p.again = d
	}
}

// final says that a ShadowPod has run to its end: nothing is made for it any more.
func final(s *v1alpha1.ShadowPod) bool {
	return s.Status.Phase == string(corev1.PodSucceeded) || s.Status.Phase == string(corev1.PodFailed)
}

// decide says what to do for a ShadowPod that is there.
func decide(f facts) plan {
	p := plan{status: *f.shadow.Status.DeepCopy()}
	ours := controllerutil.ContainsFinalizer(f.shadow, v1alpha1.FinalizerShadowPod)
	deleting := f.shadow.DeletionTimestamp != nil
	for _, stray := range f.strays {
		p.end(f, stray, nil)
	}
	for _, pod := range f.taken { // whoever has its namespace now ends it
		p.free(pod)
	}
	switch {
	case deleting:
		decideEnd(f, &p, ours)
	case final(f.shadow):
		decideFinal(f, &p)
	case !ours:
		p.adopt = true
	case f.pod != nil:
		decidePresent(f, &p)
	case len(f.strays) == 0:
		decideAbsent(f, &p)
	}
	return p
}

// end takes a pod away, whatever state it is in; grace, if set, is at most what it gets.
func (p *plan) end(f facts, pod *corev1.Pod, grace *int64) {
	now := pod.DeletionGracePeriodSeconds
	gone, dead := f.dead[pod.Spec.NodeName]
	switch {
	case pod.DeletionTimestamp == nil, grace != nil && now != nil && *grace < *now:
		p.remove = append(p.remove, removal{pod: pod, grace: grace})
	case finished(pod):
		p.free(pod)
	case dead && (gone || !unique(pod) && !f.now.Before(pod.DeletionTimestamp.Add(deadline))):
		p.remove = append(p.remove, removal{pod: pod, grace: new(int64)})
	}
	p.in(stuckLook)
}

// unique says that there must never be two of a pod, not even one on a node that nobody
// can reach.
func unique(pod *corev1.Pod) bool { return pod.Labels[appsv1.StatefulSetPodNameLabel] != "" }

// free takes our finalizer off a pod, if it has it.
func (p *plan) free(pod *corev1.Pod) {
	if pinnedByUs(pod) && !slices.Contains(p.release, pod) {
		p.release = append(p.release, pod)
	}
}

func pinnedByUs(pod *corev1.Pod) bool {
	return controllerutil.ContainsFinalizer(pod, v1alpha1.FinalizerShadowPod)
}

// decideEnd ends the pod of a ShadowPod that is being deleted, and then lets that go. An
// end of a pod that can end by itself is told before the pod goes.
func decideEnd(f facts, p *plan, ours bool) {
	if f.pod == nil {
		p.done = ours && len(f.strays) == 0
		return
	}
	if !final(f.shadow) && f.pod.DeletionTimestamp != nil {
		p.tell(f, &f.pod.Status)
		p.first = pinnedByUs(f.pod) && finished(f.pod)
	}
	grace := f.shadow.Spec.GracePeriodSeconds
	if grace != nil {
		// With none at all the pod would be gone from the API before its containers are.
		grace = ptr.To(min(max(*grace, 1), int64(shadow.LongestGrace/time.Second)))
	}
	p.end(f, f.pod, grace)
}

// decideFinal lets the pod of a ShadowPod go that has run to its end. It stays as long
// as nobody deletes it, for its logs.
func decideFinal(f facts, p *plan) {
	switch {
	case f.pod == nil:
	case f.pod.DeletionTimestamp != nil:
		p.end(f, f.pod, nil)
	case judge(f.pod) == runs: // it must not: its end has been told
		p.end(f, f.pod, nil)
	default:
		p.free(f.pod)
	}
}

// always says that a pod is made again whenever it is lost.
func always(spec *corev1.PodSpec) bool {
	return spec.RestartPolicy == corev1.RestartPolicyAlways || spec.RestartPolicy == ""
}

// decidePresent follows a pod that is there.
func decidePresent(f facts, p *plan) {
	drained := f.terms == nil || f.terms.Spec.State == v1alpha1.TenantDrained
	ran := f.pod.Spec.NodeName != ""
	switch v := judge(f.pod); {
	case v == ended:
		p.finish(f, &f.pod.Status)
	case v == lost && ran && !always(&f.pod.Spec):
		p.finish(f, lostStatus(&f.pod.Status, f.now))
		if f.pod.DeletionTimestamp != nil {
			p.end(f, f.pod, nil)
		}
	case v == lost && !ran: // it has done nothing yet: the next one is as good as the first
		p.status.Ref, p.first = nil, pinnedByUs(f.pod)
		p.refuseIf(f, drained, v1alpha1.ReasonDrained, drainedMessage(f))
		p.end(f, f.pod, nil)
	case v == lost:
		p.pending()
		p.refuseIf(f, drained, v1alpha1.ReasonDrained, drainedMessage(f))
		p.end(f, f.pod, nil)
	case v == going:
		p.tell(f, &f.pod.Status)
		p.refuseIf(f, drained, v1alpha1.ReasonDrained, drainedMessage(f))
		p.end(f, f.pod, nil)
	case len(f.lost) > 0: // it is told of once it goes, and not before: what is told of is whole
		p.refuse(f, v1alpha1.ReasonNotAdmitted, lostMessage(f.lost))
		p.end(f, f.pod, nil)
	case drained:
		p.tell(f, &f.pod.Status)
		p.refuse(f, v1alpha1.ReasonDrained, drainedMessage(f))
		p.first = true
		p.end(f, f.pod, nil)
	case !ran && !schedulable(f, p):
	case f.beyond != nil && !taken(f, p):
	default:
		p.tell(f, &f.pod.Status)
		decideChange(f, p)
		p.warn(f)
	}
}

func drainedMessage(f facts) string {
	if f.terms == nil {
		return "the provider ends the peering"
	}
	return "the provider has drained the tenant"
}

// schedulable gives up on a pod that no node has room for, in time.
func schedulable(f facts, p *plan) bool {
	if ref := f.shadow.Status.Ref; gaveUp(f.shadow) && ref != nil && ref.UID == string(f.pod.UID) {
		// Said, and interrupted before it was done.
		p.remove = append(p.remove, removal{pod: f.pod, pinned: true})
		return false
	}
	for _, c := range f.pod.Status.Conditions {
		if c.Type != corev1.PodScheduled || c.Status != corev1.ConditionFalse || c.Reason != corev1.PodReasonUnschedulable {
			continue
		}
		if left := f.since(c.LastTransitionTime.Time).Add(f.patience).Sub(f.now); left > 0 {
			p.in(min(left, f.patience))
			return true
		}
		p.tell(f, &f.pod.Status)
		p.refuse(f, v1alpha1.ReasonUnschedulable, "no node of the provider had room within "+f.patience.String())
		p.first = true
		p.remove = append(p.remove, removal{pod: f.pod, pinned: true})
		return false
	}
	return true
}

// since is since when something is so of the pod, by a clock that may be ahead of this one: then since
// the pod was made here, if that is known.
func (f facts) since(at time.Time) time.Time {
	if at.After(f.now) && !f.note.born.IsZero() {
		return f.note.born
	}
	return at
}

// gaveUp says that the pod in status.ref, which never ran, was given up.
func gaveUp(s *v1alpha1.ShadowPod) bool {
	c := condition(s.Status.Conditions)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonUnschedulable
}

// decideChange lets a running pod follow its ShadowPod.
func decideChange(f facts, p *plan) {
	generation := f.shadow.Generation
	before := condition(f.shadow.Status.Conditions)
	message := ""
	// What could not be followed stays in the message, and is not tried again.
	settled := before != nil && before.Status == metav1.ConditionTrue && before.Message != "" && before.ObservedGeneration == generation &&
		f.shadow.Status.Ref != nil && f.shadow.Status.Ref.UID == string(f.pod.UID)
	switch {
	case f.pod.Annotations[v1alpha1.AnnotationApplied] == f.hash:
		p.status.ObservedGeneration = generation
	case settled:
		message = before.Message
	case f.refusal != nil:
		message = "the pod stays as it is: " + f.refusal.Error()
		p.status.ObservedGeneration = generation
	default:
		if wait := f.note.changed.Add(changeEvery).Sub(f.now); wait > 0 && wait <= changeEvery {
			p.in(wait)
		} else {
			p.update = true
		}
		if before != nil && before.Status == metav1.ConditionTrue { // nothing is known of the new generation yet
			return
		}
	}
	accept(&p.status, f, metav1.ConditionTrue, v1alpha1.ReasonRunning, message)
}

// decideAbsent makes the pod of a ShadowPod that has none, if it may be.
func decideAbsent(f facts, p *plan) {
	was := f.shadow.Status.Ref != nil
	if gaveUp(f.shadow) {
		was, p.status.Ref = false, nil
	}
	if was && !always(f.wanted()) {
		p.finish(f, lostStatus(lastStatus(f.shadow), f.now))
		return
	}
	if was {
		p.pending()
	}
	state := v1alpha1.TenantDrained
	if f.terms != nil {
		state = f.terms.Spec.State
	}
	switch {
	case state == v1alpha1.TenantDrained:
		p.status.Ref = nil
		p.refuse(f, v1alpha1.ReasonDrained, drainedMessage(f))
	case state == v1alpha1.TenantCordoned && !was:
		p.refuse(f, v1alpha1.ReasonCordoned, "the provider accepts nothing new from the tenant")
	case !f.place.ready:
		p.refuse(f, v1alpha1.ReasonNamespaceMissing, f.place.why)
	case f.refusal != nil:
		p.refuse(f, v1alpha1.ReasonRefused, f.refusal.Error())
	case f.made == nil:
		p.in(time.Second)
	case f.holder != nil:
		p.refuse(f, v1alpha1.ReasonNameTaken, takenBy(f.holder, f.tenant)) // its end comes by
	case p.tooEarly(f):
	default:
		p.create = true
	}
}

// tooEarly waits before a pod is made that was refused or lost before. Whether a name or
// a limit is still in the way is found out cheaply, so that is not waited for.
func (p *plan) tooEarly(f facts) bool {
	wait := f.note.next.Sub(f.now) // after losses in a row
	if last := f.note.tried.Add(triedEvery).Sub(f.now); last <= triedEvery {
		wait = max(wait, last)
	}
	if c := condition(f.shadow.Status.Conditions); c != nil && c.Status == metav1.ConditionFalse && c.ObservedGeneration == f.shadow.Generation {
		since := c.LastTransitionTime.Time
		switch {
		case c.Reason == v1alpha1.ReasonUnschedulable:
			if left := since.Add(unscheduledAgain).Sub(f.now); left <= unscheduledAgain { // else by a clock that was ahead
				wait = max(wait, left)
			}
		case c.Reason == v1alpha1.ReasonNotAdmitted && f.note.triedOf == f.shadow.Generation:
			wait = max(wait, f.note.tried.Add(between(refusedAgain, f.note.tried.Sub(since), refusedLatest)).Sub(f.now))
		}
	}
	if wait <= 0 {
		return false
	}
	p.in(min(wait, unscheduledAgain))
	return true
}

// wanted is the pod as it is wanted, as far as it can be told.
func (f facts) wanted() *corev1.PodSpec {
	if f.made != nil {
		return &f.made.Spec
	}
	// What is wanted is refused, or the tenant is ending: only this field matters.
	var spec struct {
		RestartPolicy corev1.RestartPolicy `json:"restartPolicy"`
	}
	if err := json.Unmarshal([]byte(f.shadow.Spec.Pod), &spec); err != nil {
		return &corev1.PodSpec{}
	}
	return &corev1.PodSpec{RestartPolicy: spec.RestartPolicy}
}
