package provider

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

const (
	// writeEvery is how often the status of one ShadowPod is written at most.
	writeEvery = 200 * time.Millisecond
	// writeLater is how long a change waits for others that is not urgent.
	writeLater = time.Second
	// writeStarting is the same of a pod that starts: on a busy node that takes longer than a second,
	// and the next thing to say is that it runs.
	writeStarting = 3 * time.Second
	// maxMessage is the most bytes of a condition's message.
	maxMessage = 1024
)

// condition finds the condition Accepted.
func condition(all []metav1.Condition) *metav1.Condition {
	for i := range all {
		if all[i].Type == v1alpha1.ConditionAccepted {
			return &all[i]
		}
	}
	return nil
}

// accept sets the condition Accepted. Its time is that of the last change of status or
// reason: what is waited for begins with the reason.
func accept(s *v1alpha1.ShadowPodStatus, f facts, status metav1.ConditionStatus, reason, message string) {
	c := metav1.Condition{
		Type: v1alpha1.ConditionAccepted, Status: status, Reason: reason, Message: bounded(message, maxMessage),
		ObservedGeneration: f.shadow.Generation, LastTransitionTime: metav1.NewTime(f.now.Truncate(time.Second)),
	}
	if have := condition(s.Conditions); have != nil {
		same := have.Status == status && have.Reason == reason
		if same && (reason != v1alpha1.ReasonUnschedulable || have.ObservedGeneration == c.ObservedGeneration) {
			c.LastTransitionTime = have.LastTransitionTime
		}
		*have = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}

// bounded makes a text from elsewhere fit for a message of at most limit bytes.
func bounded(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) <= limit {
		return text
	}
	const dots = "..."
	return strings.ToValidUTF8(text[:limit-len(dots)], "") + dots
}

// refuse says that the pod does not run, and why.
func (p *plan) refuse(f facts, reason, message string) {
	accept(&p.status, f, metav1.ConditionFalse, reason, message)
	p.status.ObservedGeneration = f.shadow.Generation
}

func (p *plan) refuseIf(f facts, is bool, reason, message string) {
	if is {
		p.refuse(f, reason, message)
	}
}

// tell reports the pod there is. Another one than last time has replaced that, and
// nothing is known against it.
func (p *plan) tell(f facts, status *corev1.PodStatus) {
	if f.pod != nil {
		ref := v1alpha1.PodRef{Namespace: f.pod.Namespace, Name: f.pod.Name, UID: string(f.pod.UID)}
		if p.status.Ref != nil && p.status.Ref.UID != ref.UID && !gaveUp(f.shadow) && p.status.Replaced < math.MaxInt32 {
			p.status.Replaced++
		}
		if p.status.Ref == nil || p.status.Ref.UID != ref.UID {
			p.status.Warnings = nil
		}
		p.status.Ref = &ref
	}
	var names []string
	if f.pod != nil {
		names = append(f.beyond.hidden(), f.pod.Spec.NodeName)
	}
	if f.beyond != nil {
		status = afar(status)
		told, known := f.beyond.addresses(status.PodIPs)
		if shadow.SetAddresses(status, told); !known {
			p.in(viewsPause)
		}
	}
	if !f.addresses && len(status.PodIPs) > 0 {
		bare := *status
		bare.PodIP, bare.PodIPs = "", nil
		status = &bare
	}
	p.show(status, names...)
	p.addressed(f)
}

// addressed says since when the pod has the addresses that are told. That is no reason by itself to
// write a status, so of those that an earlier build has told it says nothing before they change.
func (p *plan) addressed(f facts) {
	if p.status.Pod == f.shadow.Status.Pod && sameRef(p.status.Ref, f.shadow.Status.Ref) {
		return
	}
	before, now := lastStatus(f.shadow).PodIPs, lastStatus(&v1alpha1.ShadowPod{Status: p.status}).PodIPs
	switch {
	case len(now) == 0 || f.pod == nil:
		p.status.AddressVersion = 0
	case p.status.AddressVersion == 0 || !slices.Equal(before, now) || !sameRef(p.status.Ref, f.shadow.Status.Ref):
		p.status.AddressVersion, _ = strconv.ParseInt(f.pod.ResourceVersion, 10, 64) // 0, which is not known, if it is no number
	}
}

func sameRef(a, b *v1alpha1.PodRef) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }

// show puts the status of a pod into the ShadowPod's, without names that are not told.
func (p *plan) show(status *corev1.PodStatus, names ...string) {
	text, err := shadow.Report(status, p.status.Replaced, names...)
	if err != nil {
		return // what was told last stays
	}
	if p.pod = status; !shadow.Told(p.status.Pod, text) {
		p.status.Pod = text
	}
	p.status.Phase = phase(string(status.Phase))
}

// pending reports a pod that is lost and will be made again.
func (p *plan) pending() {
	p.show(&corev1.PodStatus{Phase: corev1.PodPending, Reason: "Replacing", Message: "the provider has lost the pod and makes it again"})
	p.status.AddressVersion = 0
}

// finish reports the end of a pod, and then lets it go: it is never made again.
func (p *plan) finish(f facts, status *corev1.PodStatus) {
	p.tell(f, status)
	p.status.Phase = string(status.Phase)
	if c := condition(p.status.Conditions); c == nil || c.Reason != v1alpha1.ReasonDrained {
		message := ""
		if c != nil && c.Status == metav1.ConditionTrue {
			message = c.Message
		}
		accept(&p.status, f, metav1.ConditionTrue, v1alpha1.ReasonRunning, message)
	}
	p.status.ObservedGeneration = f.shadow.Generation
	p.first = true
	if f.pod != nil {
		p.free(f.pod)
	}
}

// lastStatus is what was last told of the pod.
func lastStatus(s *v1alpha1.ShadowPod) *corev1.PodStatus {
	status := &corev1.PodStatus{}
	if err := json.Unmarshal([]byte(s.Status.Pod), status); err != nil {
		return &corev1.PodStatus{}
	}
	return status
}

// urgent says whether the consumer has to know of a change at once.
func urgent(before *v1alpha1.ShadowPod, p plan) bool {
	was, is := condition(before.Status.Conditions), condition(p.status.Conditions)
	refused, wasRefused := is != nil && is.Status == metav1.ConditionFalse, was != nil && was.Status == metav1.ConditionFalse
	switch {
	case p.first:
		return true
	case refused && !waiting(is.Reason) && (!wasRefused || was.Reason != is.Reason):
		return true
	case wasRefused && !refused:
		return true
	case phase(before.Status.Phase) != phase(p.status.Phase):
		return true
	case p.pod == nil:
		return false
	}
	last := lastStatus(before)
	if last.Phase == "" {
		last.Phase = corev1.PodPending
	}
	return shadow.Urgent(last, p.pod)
}

// waiting says that a reason changes nothing at home.
func waiting(reason string) bool {
	return reason == v1alpha1.ReasonNamespaceMissing || reason == v1alpha1.ReasonNameTaken || reason == v1alpha1.ReasonWaiting
}

// phase is what a phase means: a pod that is not told of yet is pending.
func phase(told string) string {
	if told == "" {
		return string(corev1.PodPending)
	}
	return told
}

// writeIn says whether the status is to be written, and how long that has to wait.
func writeIn(f facts, p plan, n *note) (differs bool, wait time.Duration) {
	if reflect.DeepEqual(f.shadow.Status, p.status) {
		n.dirty = time.Time{}
		return false, 0
	}
	if n.dirty.IsZero() || n.dirty.After(f.now) {
		n.dirty = f.now
	}
	if !urgent(f.shadow, p) {
		later := writeLater
		if c := condition(p.status.Conditions); shadow.Starting(p.pod) && len(p.status.Warnings) == 0 && c != nil && c.Status == metav1.ConditionTrue && c.Message == "" {
			later = writeStarting
		}
		wait = n.dirty.Add(later).Sub(f.now)
	}
	if pause := n.wrote.Add(writeEvery).Sub(f.now); pause <= writeEvery {
		wait = max(wait, pause)
	}
	return true, max(0, wait)
}
