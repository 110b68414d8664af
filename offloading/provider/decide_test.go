package provider

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

var noon = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// outcome is what a plan comes to, in words.
type outcome struct {
	Do       string
	Accepted string // status and reason
	Phase    string
	Replaced int32
	Ref      string
	First    bool
	Again    time.Duration
	Message  string // contained
}

// said turns a plan into words.
func said(p plan) outcome {
	var do []string
	add := func(is bool, what string) {
		if is {
			do = append(do, what)
		}
	}
	add(p.adopt, "adopt")
	for _, pod := range p.release {
		add(true, "release "+pod.Name)
	}
	for _, d := range p.remove {
		what := "remove " + d.pod.Name
		if d.grace != nil {
			what += " grace " + (time.Duration(*d.grace) * time.Second).String()
		}
		if d.pinned {
			what += " pinned"
		}
		add(true, what)
	}
	add(p.create, "create")
	add(p.update, "update")
	add(p.done, "done")
	o := outcome{Do: strings.Join(do, ", "), Phase: p.status.Phase, Replaced: p.status.Replaced, First: p.first, Again: p.again}
	if p.status.Ref != nil {
		o.Ref = p.status.Ref.UID
	}
	if c := condition(p.status.Conditions); c != nil {
		o.Accepted, o.Message = string(c.Status)+" "+c.Reason, c.Message
	}
	return o
}

// scene is facts to change.
type scene = func(*facts)

// newScene is a ShadowPod that is ours, in a place that is ready, without a pod.
func newScene(changes ...scene) facts {
	f := facts{
		now: noon, tenant: "rome", hash: "h1",
		shadow: &v1alpha1.ShadowPod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "pelago-tenant-rome", Name: "u", Generation: 3, Finalizers: []string{v1alpha1.FinalizerShadowPod}},
			Spec:       v1alpha1.ShadowPodSpec{Home: v1alpha1.HomePod{Namespace: "shop", Name: "web-0"}, Pod: podText(corev1.RestartPolicyAlways)},
		},
		terms:    &v1alpha1.Tenant{},
		place:    place{name: "shop-rome", ready: true},
		made:     &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways}},
		patience: 10 * time.Second,
	}
	for _, change := range changes {
		change(&f)
	}
	return f
}

func policy(p corev1.RestartPolicy) scene {
	return func(f *facts) {
		f.shadow.Spec.Pod = podText(p)
		if f.made != nil {
			f.made.Spec.RestartPolicy = p
		}
		if f.pod != nil {
			f.pod.Spec.RestartPolicy = p
			f.pod.Finalizers = nil
			if p != corev1.RestartPolicyAlways {
				f.pod.Finalizers = []string{v1alpha1.FinalizerShadowPod}
			}
		}
	}
}

// told is a status that was written before.
func told(ref, phase string, replaced int32) scene {
	return func(f *facts) {
		f.shadow.Status.Phase, f.shadow.Status.Replaced = phase, replaced
		if ref != "" {
			f.shadow.Status.Ref = &v1alpha1.PodRef{Namespace: "shop-rome", Name: "web-0", UID: ref}
		}
	}
}

func accepted(status metav1.ConditionStatus, reason, message string, generation int64, age time.Duration) scene {
	return func(f *facts) {
		f.shadow.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: status, Reason: reason, Message: message,
			ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(noon.Add(-age))}}
	}
}

// held is another pod of the tenant's that has the name.
func held(uid string) scene {
	return func(f *facts) {
		f.holder = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "web-0",
			Labels: map[string]string{v1alpha1.LabelTenant: "rome", v1alpha1.LabelHomeUID: uid}}}
	}
}

// withPod is a pod that is there, bound, and as wanted.
func withPod(uid string, changes ...func(*corev1.Pod)) scene {
	return func(f *facts) {
		f.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: "web-0", UID: types.UID(uid),
			Annotations: map[string]string{v1alpha1.AnnotationApplied: "h1"}, CreationTimestamp: metav1.NewTime(noon.Add(-time.Minute))},
			Spec:   corev1.PodSpec{NodeName: "n1", RestartPolicy: corev1.RestartPolicyAlways},
			Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		for _, change := range changes {
			change(f.pod)
		}
	}
}

func unbound(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "", corev1.PodPending }
func inPhase(ph corev1.PodPhase) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Phase = ph }
}
func because(reason string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Status.Reason = reason }
}

// beingDeleted is a deletion whose grace ended some time ago.
func beingDeleted(grace int64, ago time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		at := metav1.NewTime(noon.Add(-ago))
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
	}
}

func ofStatefulSet(p *corev1.Pod) {
	p.Labels = map[string]string{"statefulset.kubernetes.io/pod-name": "web-0"}
}

func unschedulable(age time.Duration) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		unbound(p)
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse,
			Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.NewTime(noon.Add(-age))}}
	}
}

func deletingShadow(f *facts) { at := metav1.NewTime(noon); f.shadow.DeletionTimestamp = &at }

var everyCase = map[string]struct {
	reason string
	facts  []scene
	want   outcome
}{
	"New": {"a new one gets its pod", nil, outcome{Do: "create"}},
	"NotOurs": {"without our finalizer the ShadowPod could go before its pod",
		[]scene{func(f *facts) { f.shadow.Finalizers = []string{"else.example/x"} }}, outcome{Do: "adopt"}},
	"NotOursDeleting": {"a ShadowPod that is being deleted gets no finalizer any more",
		[]scene{deletingShadow, func(f *facts) { f.shadow.Finalizers = []string{"else.example/x"} }}, outcome{}},
	"NamespaceMissing": {"it waits for its namespace", []scene{func(f *facts) { f.place = place{why: "not ready"} }},
		outcome{Accepted: "False NamespaceMissing", Message: "not ready"}},
	"Refused": {"the table refuses it", []scene{func(f *facts) { f.made, f.refusal = nil, errors.New("spec.hostNetwork: no") }},
		outcome{Accepted: "False Refused", Message: "spec.hostNetwork"}},
	"Cordoned":      {"nothing new", []scene{withState(v1alpha1.TenantCordoned)}, outcome{Accepted: "False Cordoned"}},
	"CordonedRuns":  {"what runs goes on", []scene{withState(v1alpha1.TenantCordoned), withPod("a")}, outcome{Accepted: "True Running", Phase: "Running", Ref: "a"}},
	"CordonedLost":  {"what ran is not new", []scene{withState(v1alpha1.TenantCordoned), told("a", "Running", 0)}, outcome{Do: "create", Phase: "Pending", Ref: "a"}},
	"Drained":       {"nothing", []scene{withState(v1alpha1.TenantDrained)}, outcome{Accepted: "False Drained"}},
	"NoTenant":      {"nobody's", []scene{func(f *facts) { f.terms = nil }}, outcome{Accepted: "False Drained", Message: "ends the peering"}},
	"DrainedRuns":   {"what runs is told, then removed", []scene{withState(v1alpha1.TenantDrained), withPod("a")}, outcome{Do: "remove web-0", Accepted: "False Drained", Phase: "Running", Ref: "a", First: true, Again: stuckLook}},
	"DrainedGoing":  {"it ends", []scene{withState(v1alpha1.TenantDrained), withPod("a", beingDeleted(30, 0))}, outcome{Accepted: "False Drained", Phase: "Running", Ref: "a", Again: stuckLook}},
	"DrainedGone":   {"it may be made again later as if new", []scene{withState(v1alpha1.TenantDrained), told("a", "Running", 0)}, outcome{Accepted: "False Drained", Phase: "Pending"}},
	"DrainedJobEnd": {"work that was cut short has failed, with the reason", []scene{withState(v1alpha1.TenantDrained), withPod("a", beingDeleted(0, 0)), policy(corev1.RestartPolicyNever), accepted("False", v1alpha1.ReasonDrained, "", 3, 0)}, outcome{Do: "release web-0", Accepted: "False Drained", Phase: "Failed", Ref: "a", First: true, Again: stuckLook}},
	"DrainedEnded":  {"what has ended is told as ended", []scene{withState(v1alpha1.TenantDrained), withPod("a", inPhase(corev1.PodSucceeded)), policy(corev1.RestartPolicyNever)}, outcome{Do: "release web-0", Accepted: "True Running", Phase: "Succeeded", Ref: "a", First: true}},

	"Runs":     {"the usual", []scene{withPod("a"), told("a", "Running", 1)}, outcome{Accepted: "True Running", Phase: "Running", Ref: "a", Replaced: 1}},
	"Replaced": {"another pod than last time", []scene{withPod("b"), told("a", "Running", 1)}, outcome{Accepted: "True Running", Phase: "Running", Ref: "b", Replaced: 2}},
	"Again":    {"after a refusal", []scene{withPod("b"), accepted("False", v1alpha1.ReasonLimitExceeded, "x", 3, time.Hour)}, outcome{Accepted: "True Running", Phase: "Running", Ref: "b"}},

	"Unscheduled":        {"it has time", []scene{withPod("a", unschedulable(4*time.Second))}, outcome{Accepted: "True Running", Phase: "Pending", Ref: "a", Again: 6 * time.Second}},
	"NotLookedAt":        {"no scheduler has looked at it: that is no refusal", []scene{withPod("a", unbound)}, outcome{Accepted: "True Running", Phase: "Pending", Ref: "a"}},
	"Unschedulable":      {"its time is over: told first, removed only if nothing has changed", []scene{withPod("a", unschedulable(10*time.Second)), told("a", "Pending", 0)}, outcome{Do: "remove web-0 pinned", Accepted: "False Unschedulable", Phase: "Pending", Ref: "a", First: true}},
	"UnschedulableLong":  {"a provider that makes nodes gives it longer", []scene{withPod("a", unschedulable(10*time.Second)), func(f *facts) { f.patience = 5 * time.Minute }}, outcome{Accepted: "True Running", Phase: "Pending", Ref: "a", Again: 290 * time.Second}},
	"UnschedulableAhead": {"a clock that is ahead, of a pod that was made here", []scene{withPod("a", unschedulable(-time.Hour)), func(f *facts) { f.note.born = noon.Add(-7 * time.Second) }}, outcome{Accepted: "True Running", Phase: "Pending", Ref: "a", Again: 3 * time.Second}},
	"UnschedulableThere": {"the same after a restart", []scene{withPod("a", unschedulable(-time.Hour))}, outcome{Accepted: "True Running", Phase: "Pending", Ref: "a", Again: 10 * time.Second}},
	"UnschedulableTime":  {"said by a clock that was ahead", []scene{accepted("False", v1alpha1.ReasonUnschedulable, "no", 3, -time.Hour)}, outcome{Do: "create", Accepted: "False Unschedulable"}},
	"UnschedulableTold":  {"a restart between telling and removing", []scene{withPod("a", unbound), told("a", "Pending", 0), accepted("False", v1alpha1.ReasonUnschedulable, "no", 3, time.Second)}, outcome{Do: "remove web-0 pinned", Accepted: "False Unschedulable", Phase: "Pending", Ref: "a"}},
	"UnschedulableBind":  {"it was bound in that moment", []scene{withPod("a", inPhase(corev1.PodPending)), told("a", "Pending", 0), accepted("False", v1alpha1.ReasonUnschedulable, "no", 3, time.Second)}, outcome{Accepted: "True Running", Phase: "Pending", Ref: "a"}},
	"UnschedulableWait":  {"not again before five minutes are over", []scene{accepted("False", v1alpha1.ReasonUnschedulable, "no", 3, 2*time.Minute)}, outcome{Accepted: "False Unschedulable", Again: 3 * time.Minute}},
	"UnschedulableOver":  {"five minutes are over", []scene{accepted("False", v1alpha1.ReasonUnschedulable, "no", 3, 5*time.Minute)}, outcome{Do: "create", Accepted: "False Unschedulable"}},
	"UnschedulableEdit":  {"another spec is another question", []scene{accepted("False", v1alpha1.ReasonUnschedulable, "no", 2, time.Minute)}, outcome{Do: "create", Accepted: "False Unschedulable"}},
	"UnschedulableGone":  {"a pod that was given up is neither lost nor replaced", []scene{told("a", "Pending", 1), policy(corev1.RestartPolicyNever), accepted("False", v1alpha1.ReasonUnschedulable, "no", 3, time.Minute)}, outcome{Accepted: "False Unschedulable", Phase: "Pending", Replaced: 1, Again: 4 * time.Minute}},
	"UnschedulableNext":  {"its successor is no replacement", []scene{withPod("b"), told("a", "Pending", 1), accepted("False", v1alpha1.ReasonUnschedulable, "no", 2, time.Minute)}, outcome{Accepted: "True Running", Phase: "Running", Ref: "b", Replaced: 1}},
	"UnschedulableNew":   {"the second try has its time as well", []scene{withPod("b", unschedulable(time.Second)), accepted("False", v1alpha1.ReasonUnschedulable, "no", 3, 5*time.Minute)}, outcome{Accepted: "True Running", Phase: "Pending", Ref: "b", Again: 9 * time.Second}},

	"NotAdmittedWait": {"tried lately", []scene{accepted("False", v1alpha1.ReasonNotAdmitted, "no", 3, 10*time.Second), tried(10*time.Second, 3)}, outcome{Accepted: "False NotAdmitted", Again: 20 * time.Second}},
	"NotAdmittedLong": {"tried for long: seldom", []scene{accepted("False", v1alpha1.ReasonNotAdmitted, "no", 3, time.Hour), tried(time.Minute, 3)}, outcome{Accepted: "False NotAdmitted", Again: 4 * time.Minute}},
	"NotAdmittedEdit": {"another spec is another question", []scene{accepted("False", v1alpha1.ReasonNotAdmitted, "no", 2, 10*time.Second), tried(10*time.Second, 2)}, outcome{Do: "create", Accepted: "False NotAdmitted"}},
	"NotAdmittedMad":  {"a consumer that changes it all the time does not make us try all the time", []scene{accepted("False", v1alpha1.ReasonNotAdmitted, "no", 2, time.Minute), tried(400*time.Millisecond, 2)}, outcome{Accepted: "False NotAdmitted", Again: 600 * time.Millisecond}},
	"RestartTries":    {"nothing is remembered of the last try", []scene{accepted("False", v1alpha1.ReasonNotAdmitted, "no", 3, 10*time.Second)}, outcome{Do: "create", Accepted: "False NotAdmitted"}},
	"LimitTried":      {"whether there is room costs nothing to find out", []scene{accepted("False", v1alpha1.ReasonLimitExceeded, "no", 3, 10*time.Second), tried(5*time.Second, 3)}, outcome{Do: "create", Accepted: "False LimitExceeded"}},
	"NameTried":       {"whether the name is free as well", []scene{accepted("False", v1alpha1.ReasonNameTaken, "no", 3, 10*time.Second), tried(5*time.Second, 3)}, outcome{Do: "create", Accepted: "False NameTaken"}},

	"NameHeld":        {"as long as the cache has another pod of the name, nobody is asked", []scene{held("b")}, outcome{Accepted: "False NameTaken", Message: "earlier pod"}},
	"NameHeldDrained": {"that comes first", []scene{held("b"), withState(v1alpha1.TenantDrained)}, outcome{Accepted: "False Drained"}},

	"Succeeded":     {"told first, then let go", []scene{withPod("a", inPhase(corev1.PodSucceeded)), policy(corev1.RestartPolicyNever)}, outcome{Do: "release web-0", Accepted: "True Running", Phase: "Succeeded", Ref: "a", First: true}},
	"Failed":        {"told first, then let go", []scene{withPod("a", inPhase(corev1.PodFailed)), policy(corev1.RestartPolicyOnFailure)}, outcome{Do: "release web-0", Accepted: "True Running", Phase: "Failed", Ref: "a", First: true}},
	"Deadline":      {"a pod that is always restarted can end too", []scene{withPod("a", inPhase(corev1.PodFailed), because("DeadlineExceeded"))}, outcome{Accepted: "True Running", Phase: "Failed", Ref: "a", First: true}},
	"FinalAgain":    {"a restart between telling and letting go", []scene{withPod("a", inPhase(corev1.PodSucceeded)), policy(corev1.RestartPolicyNever), told("a", "Succeeded", 0)}, outcome{Do: "release web-0", Phase: "Succeeded", Ref: "a"}},
	"FinalGone":     {"never made again", []scene{told("a", "Succeeded", 0), policy(corev1.RestartPolicyNever)}, outcome{Phase: "Succeeded", Ref: "a"}},
	"FinalFailed":   {"never made again", []scene{told("a", "Failed", 0)}, outcome{Phase: "Failed", Ref: "a"}},
	"FinalDrained":  {"the end stands", []scene{told("a", "Succeeded", 0), withState(v1alpha1.TenantDrained)}, outcome{Phase: "Succeeded", Ref: "a"}},
	"FinalRuns":     {"two truths: the end that was told stands", []scene{withPod("b"), told("a", "Succeeded", 0)}, outcome{Do: "remove web-0", Phase: "Succeeded", Ref: "a", Again: stuckLook}},
	"FinalDeleting": {"its pod is removed by hand", []scene{withPod("a", inPhase(corev1.PodSucceeded), beingDeleted(0, 0)), policy(corev1.RestartPolicyNever), told("a", "Succeeded", 0)}, outcome{Do: "release web-0", Phase: "Succeeded", Ref: "a", Again: stuckLook}},

	"Going":          {"deleted by hand: it is told as long as it is there", []scene{withPod("a", beingDeleted(30, 0))}, outcome{Phase: "Running", Ref: "a", Again: stuckLook}},
	"Gone":           {"deleted by hand: made again", []scene{told("a", "Running", 4)}, outcome{Do: "create", Phase: "Pending", Ref: "a", Replaced: 4}},
	"GoneJob":        {"somebody took our finalizer off: the work is lost", []scene{told("a", "Running", 0), policy(corev1.RestartPolicyNever)}, outcome{Accepted: "True Running", Phase: "Failed", Ref: "a", First: true}},
	"GoneRefused":    {"the same if what is wanted now is refused", []scene{told("a", "Running", 0), policy(corev1.RestartPolicyNever), func(f *facts) { f.made, f.refusal = nil, errors.New("no") }}, outcome{Accepted: "True Running", Phase: "Failed", Ref: "a", First: true}},
	"GoneNoPlace":    {"the namespace was deleted with it: it waits for another", []scene{told("a", "Running", 0), func(f *facts) { f.place = place{why: "missing"} }}, outcome{Accepted: "False NamespaceMissing", Phase: "Pending", Ref: "a"}},
	"GoneTooFast":    {"lost again and again: later", []scene{told("a", "Running", 0), func(f *facts) { f.note.next = noon.Add(4 * time.Second) }}, outcome{Phase: "Pending", Ref: "a", Again: 4 * time.Second}},
	"Evicted":        {"what is left of it is in the way of its successor", []scene{withPod("a", inPhase(corev1.PodFailed), because("Evicted")), told("a", "Running", 0)}, outcome{Do: "remove web-0", Phase: "Pending", Ref: "a", Again: stuckLook}},
	"EvictedJob":     {"not made again: home decides", []scene{withPod("a", inPhase(corev1.PodFailed), because("Evicted")), policy(corev1.RestartPolicyNever)}, outcome{Do: "release web-0", Accepted: "True Running", Phase: "Failed", Ref: "a", First: true}},
	"DeletedJob":     {"deleted by hand while it worked", []scene{withPod("a", beingDeleted(0, 0)), policy(corev1.RestartPolicyNever)}, outcome{Do: "release web-0", Accepted: "True Running", Phase: "Failed", Ref: "a", First: true, Again: stuckLook}},
	"DeletedPending": {"deleted before it ran: nothing is lost", []scene{withPod("a", unbound, beingDeleted(0, 0)), policy(corev1.RestartPolicyNever), told("a", "Pending", 0)}, outcome{Do: "release web-0", Phase: "Pending", First: true, Again: stuckLook}},
	"GoingJob":       {"it may still end by itself", []scene{withPod("a", beingDeleted(30, 0)), policy(corev1.RestartPolicyNever)}, outcome{Phase: "Running", Ref: "a", Again: stuckLook}},

	"NodeNotReady": {"its kubelet may come back", []scene{withPod("a", beingDeleted(30, 4*time.Minute)), func(f *facts) { f.dead = map[string]bool{"n1": false} }}, outcome{Phase: "Running", Ref: "a", Again: stuckLook}},
	"NodeDead":     {"its kubelet does not come back", []scene{withPod("a", beingDeleted(30, 5*time.Minute)), func(f *facts) { f.dead = map[string]bool{"n1": false} }}, outcome{Do: "remove web-0 grace 0s", Phase: "Running", Ref: "a", Again: stuckLook}},
	"NodeUnique":   {"two of a StatefulSet's pod must not run, so it waits for the node to be gone", []scene{withPod("a", beingDeleted(30, 5*time.Minute), ofStatefulSet), func(f *facts) { f.dead = map[string]bool{"n1": false} }}, outcome{Phase: "Running", Ref: "a", Again: stuckLook}},
	"NodeGone":     {"there is no kubelet", []scene{withPod("a", beingDeleted(30, 0)), func(f *facts) { f.dead = map[string]bool{"n1": true} }}, outcome{Do: "remove web-0 grace 0s", Phase: "Running", Ref: "a", Again: stuckLook}},
	"NodeSlow":     {"a node that is ready is waited for", []scene{withPod("a", beingDeleted(30, time.Hour))}, outcome{Phase: "Running", Ref: "a", Again: stuckLook}},

	"End":          {"its own grace", []scene{deletingShadow, withPod("a")}, outcome{Do: "remove web-0", Again: stuckLook}},
	"EndGrace":     {"home's grace", []scene{deletingShadow, withPod("a"), grace(7)}, outcome{Do: "remove web-0 grace 7s", Again: stuckLook}},
	"EndGraceLong": {"the provider has its nodes to drain", []scene{deletingShadow, withPod("a"), grace(3600)}, outcome{Do: "remove web-0 grace 10m0s", Again: stuckLook}},
	"EndNow":       {"with none its containers would outlive it", []scene{deletingShadow, withPod("a"), grace(0)}, outcome{Do: "remove web-0 grace 1s", Again: stuckLook}},
	"EndSooner":    {"home has become impatient", []scene{deletingShadow, withPod("a", beingDeleted(30, 0)), grace(1)}, outcome{Do: "remove web-0 grace 1s", Phase: "Running", Ref: "a", Again: stuckLook}},
	"EndLater":     {"a grace does not become longer", []scene{deletingShadow, withPod("a", beingDeleted(5, 0)), grace(60)}, outcome{Phase: "Running", Ref: "a", Again: stuckLook}},
	"EndJobWaits":  {"its end is told", []scene{deletingShadow, withPod("a", beingDeleted(30, 0)), policy(corev1.RestartPolicyNever)}, outcome{Phase: "Running", Ref: "a", Again: stuckLook}},
	"EndJob":       {"its end is told first", []scene{deletingShadow, withPod("a", inPhase(corev1.PodSucceeded), beingDeleted(0, 0)), policy(corev1.RestartPolicyNever)}, outcome{Do: "release web-0", Phase: "Succeeded", Ref: "a", First: true, Again: stuckLook}},
	"EndNodeGone":  {"there is no kubelet", []scene{deletingShadow, withPod("a", beingDeleted(30, 0)), func(f *facts) { f.dead = map[string]bool{"n1": true} }}, outcome{Do: "remove web-0 grace 0s", Phase: "Running", Ref: "a", Again: stuckLook}},
	"EndGone":      {"the pod is gone", []scene{deletingShadow, told("a", "Running", 0)}, outcome{Do: "done", Phase: "Running", Ref: "a"}},
	"EndNever":     {"there never was one", []scene{deletingShadow}, outcome{Do: "done"}},
	"EndStrays":    {"another one is still there", []scene{deletingShadow, stray("b", beingDeleted(30, 0))}, outcome{Again: stuckLook}},
	"EndNoTenant":  {"also without a tenant", []scene{deletingShadow, func(f *facts) { f.terms, f.place = nil, place{} }}, outcome{Do: "done"}},
	"StrayFirst":   {"never two at once", []scene{stray("b")}, outcome{Do: "remove stray", Again: stuckLook}},
	"StrayBeside":  {"the one that counts goes on", []scene{withPod("a"), stray("b")}, outcome{Do: "remove stray", Accepted: "True Running", Phase: "Running", Ref: "a", Again: stuckLook}},
	"Changed":      {"the pod follows", []scene{withPod("a"), hash("h2"), accepted("True", v1alpha1.ReasonRunning, "", 2, time.Hour)}, outcome{Do: "update", Accepted: "True Running", Phase: "Running", Ref: "a"}},
	"ChangedMad":   {"not more often than once a second", []scene{withPod("a"), hash("h2"), func(f *facts) { f.note.changed = noon.Add(-300 * time.Millisecond) }}, outcome{Accepted: "True Running", Phase: "Running", Ref: "a", Again: 700 * time.Millisecond}},
	"ChangedNo":    {"what is refused is not followed", []scene{withPod("a"), hash("h2"), func(f *facts) { f.made, f.refusal = nil, errors.New("spec.hostPID: no") }}, outcome{Accepted: "True Running", Phase: "Running", Ref: "a", Message: "stays as it is: spec.hostPID"}},
	"ChangedTried": {"what cannot be followed is not tried again", []scene{withPod("a"), hash("h2"), told("a", "Running", 0), accepted("True", v1alpha1.ReasonRunning, "in part", 3, time.Hour)}, outcome{Accepted: "True Running", Phase: "Running", Ref: "a", Message: "in part"}},
	"ChangedAnew":  {"but the next change is", []scene{withPod("a"), hash("h2"), told("a", "Running", 0), accepted("True", v1alpha1.ReasonRunning, "in part", 2, time.Hour)}, outcome{Do: "update", Accepted: "True Running", Phase: "Running", Ref: "a", Message: "in part"}},
	"ChangedBack":  {"the message goes when all is as wanted", []scene{withPod("a"), told("a", "Running", 0), accepted("True", v1alpha1.ReasonRunning, "in part", 2, time.Hour)}, outcome{Accepted: "True Running", Phase: "Running", Ref: "a"}},
}

func tried(ago time.Duration, generation int64) scene {
	return func(f *facts) { f.note.tried, f.note.triedOf = noon.Add(-ago), generation }
}
func grace(s int64) scene { return func(f *facts) { f.shadow.Spec.GracePeriodSeconds = &s } }
func hash(h string) scene { return func(f *facts) { f.hash = h } }
func stray(uid string, changes ...func(*corev1.Pod)) scene {
	return func(f *facts) {
		other := facts{}
		withPod(uid, changes...)(&other)
		other.pod.Name = "stray"
		f.strays = append(f.strays, other.pod)
	}
}

func TestDecide(t *testing.T) {
	for name, c := range everyCase {
		t.Run(name, func(t *testing.T) {
			f := newScene(c.facts...)
			before := f.shadow.DeepCopy()
			got := said(decide(f))
			if c.want.Message == "" || !strings.Contains(got.Message, c.want.Message) {
				if c.want.Message != "" || strings.HasPrefix(got.Accepted, "True") && got.Message != "" {
					t.Errorf("%s: message %q, want %q in it", c.reason, got.Message, c.want.Message)
				}
			}
			got.Message = c.want.Message
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(before, f.shadow); diff != "" {
				t.Errorf("the facts have changed: %s", diff)
			}
		})
	}
}

// Whatever the state, two things must never be planned: a pod beside another, and one
// for a ShadowPod that has ended or is being deleted.
func TestDecideNeverMakesTooMany(t *testing.T) {
	for name, c := range everyCase {
		f := newScene(c.facts...)
		if p := decide(f); p.create && (f.pod != nil || len(f.strays) > 0 || final(f.shadow) || f.shadow.DeletionTimestamp != nil) {
			t.Errorf("%s: a pod would be made", name)
		}
		for _, f := range []facts{newScene(append(c.facts, deletingShadow)...), newScene(append(c.facts, told("x", "Succeeded", 0))...),
			newScene(append(c.facts, withState(v1alpha1.TenantDrained))...)} {
			if decide(f).create {
				t.Errorf("%s: a pod would be made for a ShadowPod that is ending or has ended, or a drained tenant", name)
			}
		}
	}
}

func withState(s v1alpha1.TenantState) scene {
	return func(f *facts) {
		if f.terms != nil {
			f.terms.Spec.State = s
		}
	}
}

// The addresses of pods are told only where they mean something to the consumer; those of
// nodes never.
func TestAddressesAreTold(t *testing.T) {
	for told, want := range map[bool]string{false: "", true: "10.42.0.7"} {
		f := newScene(withPod("a", func(p *corev1.Pod) {
			p.Status.PodIP, p.Status.PodIPs = "10.42.0.7", []corev1.PodIP{{IP: "10.42.0.7"}}
			p.Status.HostIP, p.Status.HostIPs = "192.0.2.1", []corev1.HostIP{{IP: "192.0.2.1"}}
		}))
		f.addresses = told
		p := decide(f)
		got := ""
		if s := lastStatus(&v1alpha1.ShadowPod{Status: p.status}); len(s.PodIPs) > 0 {
			got = s.PodIPs[0].IP
		}
		if got != want || strings.Contains(p.status.Pod, "192.0.2.1") {
			t.Errorf("addresses are told: %t, and the provider tells %s", told, p.status.Pod)
		}
		if f.pod.Status.PodIP != "10.42.0.7" {
			t.Error("the cached pod was changed")
		}
	}
}
