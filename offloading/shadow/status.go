package shadow

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Status is the home pod's next status, of what its provider reports: only containers
// that the pod has, known phases and conditions, bounded texts. What is home's own
// stays: PodScheduled and the conditions of others, qosClass, claims; hostIP becomes
// address. The pod's addresses are the views of those that it has there; without any it
// has none, and neither has one that has ended, as others get its addresses. Amounts of
// resources are what the spec and a resize of home's allow. Ready is home's: the
// containers and home's readiness gates. A terminal phase stays whatever is reported
// later.
//
// There is no clock here, and the provider's is not ours: a condition whose status
// changed has no lastTransitionTime, which Stamp sets, and what is reported of other times
// is left to Date.
func Status(home *corev1.Pod, s *v1alpha1.ShadowPod, address string, view View) (corev1.PodStatus, error) {
	if s.Name != string(home.UID) {
		return corev1.PodStatus{}, fmt.Errorf("reading status.pod: it is of another pod than %s/%s", home.Namespace, home.Name)
	}
	reported := &corev1.PodStatus{}
	if s.Status.Pod != "" {
		var err error
		if reported, err = decodeStatus(s.Status.Pod); err != nil {
			return corev1.PodStatus{}, err
		}
	}
	next := *home.Status.DeepCopy()
	next.HostIP, next.HostIPs = hostAddress(address, home.Status)
	phase, err := nextPhase(home.Status.Phase, s.Status.Phase, reported.Phase)
	if err != nil {
		return corev1.PodStatus{}, err
	}
	next.Phase = phase
	if terminal(phase) {
		reported.PodIPs = nil
	}
	SetAddresses(&next, seen(reported.PodIPs, view))
	next.Reason, next.Message = keepText(reported.Reason, maxReasonText), cut(reported.Message, maxMessageText)
	if next.StartTime == nil {
		next.StartTime = reported.StartTime
	}
	sizePod(&next, reported, home)
	b := believer{pod: home, budget: maxMessages, over: terminal(phase), pending: condition(reported.Conditions, corev1.PodResizePending) != nil}
	next.ContainerStatuses = b.containers(home.Spec.Containers, home.Status.ContainerStatuses, reported.ContainerStatuses)
	next.InitContainerStatuses = b.containers(home.Spec.InitContainers, home.Status.InitContainerStatuses, reported.InitContainerStatuses)
	next.EphemeralContainerStatuses = b.ephemeral(home.Status.EphemeralContainerStatuses, reported.EphemeralContainerStatuses)
	if b.pending && !resizing(home, &next) {
		reported.Conditions = without(reported.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodResizePending })
	}
	next.Conditions = conditions(home, phase, reported.Conditions)
	if home.Status.ObservedGeneration != home.Generation && observed(home, s, address) {
		next.ObservedGeneration = home.Generation
	}
	for i := range next.Conditions {
		if told[next.Conditions[i].Type] || next.Conditions[i].Type == corev1.PodReady {
			next.Conditions[i].ObservedGeneration = next.ObservedGeneration
		}
	}
	return next, nil
}

// Unreachable is the status of a home pod whose provider does not answer: it is not
// known to be ready. As in Status, Stamp sets the times of what changed.
func Unreachable(home *corev1.Pod) corev1.PodStatus {
	next := *home.Status.DeepCopy()
	for _, kind := range []corev1.PodConditionType{corev1.ContainersReady, corev1.PodReady} {
		next.Conditions = set(next.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: v1alpha1.ReasonPeerUnreachable,
			Message: "the provider does not answer, so whether the containers are ready is not known", ObservedGeneration: next.ObservedGeneration,
		})
	}
	return next
}

// Restored is the status of a home pod that was made not ready for another reason than its
// provider's word: it is as ready again as its containers were last, and its gates are now.
func Restored(home *corev1.Pod) corev1.PodStatus {
	next := *home.Status.DeepCopy()
	containers := corev1.PodCondition{Status: corev1.ConditionUnknown}
	if c := condition(next.Conditions, corev1.ContainersReady); c != nil {
		containers = *c
	}
	c := ready(home, containers)
	c.ObservedGeneration = next.ObservedGeneration
	next.Conditions = set(next.Conditions, c)
	return next
}

// Stamp gives the conditions that changed the time at which they did.
func Stamp(status *corev1.PodStatus, now metav1.Time) {
	for i := range status.Conditions {
		if status.Conditions[i].LastTransitionTime.IsZero() {
			status.Conditions[i].LastTransitionTime = now
		}
	}
}

func terminal(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// nextPhase is what home says once it said was; the provider's word is in the ShadowPod's
// status, or, if there is none, in the report.
func nextPhase(was corev1.PodPhase, said string, reported corev1.PodPhase) (corev1.PodPhase, error) {
	next := corev1.PodPhase(said)
	if next == "" {
		next = reported
	}
	switch {
	case terminal(was):
		return was, nil
	case next == "", next == corev1.PodUnknown:
		if was == "" {
			return corev1.PodPending, nil
		}
		return was, nil
	case next == corev1.PodPending, next == corev1.PodRunning, terminal(next):
		return next, nil
	}
	return "", fmt.Errorf("reading status.phase: %.32q is not a phase of a pod", next)
}

func hostAddress(address string, home corev1.PodStatus) (string, []corev1.HostIP) {
	if _, err := netip.ParseAddr(address); err != nil {
		return home.HostIP, home.HostIPs
	}
	return address, []corev1.HostIP{{IP: address}}
}

// observed says whether the provider has what home's pod is now, and has not refused a
// part of it.
func observed(home *corev1.Pod, s *v1alpha1.ShadowPod, address string) bool {
	if s.Status.ObservedGeneration < s.Generation || Unfollowed(s) != "" {
		return false
	}
	want, leftOut, err := Forge(home, Place{Node: home.Spec.NodeName, Request: s.Spec.Request, Address: address, Tokens: HasTokens(s)})
	return err == nil && len(leftOut) == 0 && Hash(want.Spec) == Hash(s.Spec)
}

// Unfollowed says what the provider's pod does not follow of its ShadowPod as that is
// now: the provider's word, of any length. It is empty if nothing is known.
func Unfollowed(s *v1alpha1.ShadowPod) string {
	for _, c := range s.Status.Conditions {
		if c.Type == v1alpha1.ConditionAccepted && c.Status == metav1.ConditionTrue && c.ObservedGeneration == s.Generation {
			return c.Message
		}
	}
	return ""
}

// believer takes over what a provider reports of containers.
type believer struct {
	pod    *corev1.Pod
	budget int
	// over: the pod has ended, so none of its containers is ready.
	over bool
	// pending: the provider says that a resize is.
	pending bool
}

// containers goes by the pod's own list: nothing else is believed to exist.
func (b *believer) containers(spec []corev1.Container, home, reported []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range spec {
		r, was := named(reported, spec[i].Name), named(home, spec[i].Name)
		ended := was != nil && was.State.Terminated != nil && !mayRestart(b.pod, &spec[i], was.State.Terminated.ExitCode)
		out = b.next(out, was, r, spec[i].Resources, ended)
	}
	return out
}

// ephemeral is the same of ephemeral containers, none of which begins again.
func (b *believer) ephemeral(home, reported []corev1.ContainerStatus) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for i := range b.pod.Spec.EphemeralContainers {
		name := b.pod.Spec.EphemeralContainers[i].Name
		was := named(home, name)
		out = b.next(out, was, named(reported, name), corev1.ResourceRequirements{}, was != nil && was.State.Terminated != nil)
	}
	return out
}

// next adds to a list what one container is next, if anything: what has ended for good stays so, as
// the API server refuses the whole status otherwise.
func (b *believer) next(list []corev1.ContainerStatus, was, reported *corev1.ContainerStatus, size corev1.ResourceRequirements, ended bool) []corev1.ContainerStatus {
	var c corev1.ContainerStatus
	switch {
	case ended && (reported == nil || reported.State.Terminated == nil):
		c = *was.DeepCopy()
	case reported != nil:
		c = keepContainer(*reported, &b.budget)
		c.Ready = c.Ready && !b.over
	default:
		return list
	}
	b.size(&c, size, was)
	return append(list, c)
}

func named(list []corev1.ContainerStatus, name string) *corev1.ContainerStatus {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// mayRestart says whether a container that ended with an exit code may begin again, by what
// the API server goes by: its first rule that is of this code, then its own policy, then the
// pod's. One that restarts all containers at its end has any of them begin again.
func mayRestart(pod *corev1.Pod, c *corev1.Container, exit int32) bool {
	if slices.ContainsFunc(pod.Spec.InitContainers, restartsAll) || slices.ContainsFunc(pod.Spec.Containers, restartsAll) {
		return true
	}
	policy := pod.Spec.RestartPolicy
	if c.RestartPolicy != nil {
		i := slices.IndexFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool { return ruleIsOf(r, exit) })
		if i >= 0 && c.RestartPolicyRules[i].Action == corev1.ContainerRestartRuleActionRestart {
			return true
		}
		policy = corev1.RestartPolicy(*c.RestartPolicy)
	}
	switch policy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return exit != 0
	}
	return true
}

func restartsAll(c corev1.Container) bool {
	return slices.ContainsFunc(c.RestartPolicyRules, func(r corev1.ContainerRestartRule) bool {
		return r.Action == corev1.ContainerRestartRuleActionRestartAllContainers
	})
}

// ruleIsOf says whether a rule is about an exit code.
func ruleIsOf(r corev1.ContainerRestartRule, exit int32) bool {
	if r.ExitCodes == nil {
		return false
	}
	switch among := slices.Contains(r.ExitCodes.Values, exit); r.ExitCodes.Operator {
	case corev1.ContainerRestartRuleOnExitCodesOpIn:
		return among
	case corev1.ContainerRestartRuleOnExitCodesOpNotIn:
		return !among
	}
	return false
}

// conditions are home's with those that the provider has a say in.
func conditions(home *corev1.Pod, phase corev1.PodPhase, reported []corev1.PodCondition) []corev1.PodCondition {
	var next []corev1.PodCondition
	for _, c := range home.Status.Conditions {
		if !told[c.Type] || condition(reported, c.Type) != nil || c.Type == corev1.DisruptionTarget {
			next = append(next, c)
		}
	}
	containers := corev1.PodCondition{Type: corev1.ContainersReady, Status: corev1.ConditionFalse, Reason: "ContainersNotReady", Message: "the provider has not reported ready containers"}
	for _, c := range reported {
		if !told[c.Type] || !known(c.Status) || c.Type == corev1.DisruptionTarget && !terminal(phase) {
			continue // one that is replaced there is not disrupted here
		}
		c = keepCondition(c)
		if c.Type == corev1.ContainersReady {
			if c.Status == corev1.ConditionTrue && terminal(phase) {
				c.Status, c.Reason, c.Message = corev1.ConditionFalse, "Pod"+string(phase), "the pod has ended"
			}
			containers = c
			continue
		}
		next = set(next, c)
	}
	next = set(next, containers)
	return set(next, ready(home, containers))
}

func known(s corev1.ConditionStatus) bool {
	return s == corev1.ConditionTrue || s == corev1.ConditionFalse || s == corev1.ConditionUnknown
}

// ready is the pod's readiness: of its containers, and of the gates that home judges.
func ready(home *corev1.Pod, containers corev1.PodCondition) corev1.PodCondition {
	c := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue}
	if containers.Status != corev1.ConditionTrue {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, containers.Reason, containers.Message
		return c
	}
	var shut []string
	for _, gate := range home.Spec.ReadinessGates {
		if !isTrue(home.Status.Conditions, gate.ConditionType) {
			shut = append(shut, string(gate.ConditionType))
		}
	}
	if len(shut) > 0 {
		c.Status, c.Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
		c.Message = cut("waiting for the conditions of readiness gates: "+strings.Join(shut, ", "), maxMessageText)
	}
	return c
}

// set replaces a condition. Its time is the old one if its status did not change, else
// none.
func set(list []corev1.PodCondition, c corev1.PodCondition) []corev1.PodCondition {
	c.LastTransitionTime = metav1.Time{}
	if old := condition(list, c.Type); old != nil {
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
			c.LastProbeTime = old.LastProbeTime
		}
		*old = c
		return list
	}
	return append(list, c)
}
