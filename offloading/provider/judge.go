package provider

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/internal/kube"
)

// verdict is what a pod's state means for its ShadowPod.
type verdict string

const (
	// runs: it waits, starts or runs.
	runs verdict = "runs"
	// going: it is being deleted and its containers may still run.
	going verdict = "going"
	// ended: it ended by itself, whatever its exit codes.
	ended verdict = "ended"
	// lost: this cluster took it away or killed it.
	lost verdict = "lost"
)

// clusterReasons are reasons of failed pods that are this cluster's doing.
var clusterReasons = []string{
	"Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "UnexpectedAdmissionError",
	"NodeAffinity", "NodePorts", "TopologyAffinityError", "InvalidNodeInfo",
	"EmptyPodSharedPoolError", "NodeName", "NodeUnschedulable", "SMTAlignmentError", "TaintToleration", "UnexpectedPredicateFailureType",
	"UnknownReason", "VolumeAttachmentLimitExceeded",
}

// rejections are reasons of pods that a kubelet does not run as they are. One that is always restarted is made again,
// ever later, as another node may run it: if it ended, its owner at home would make the next one at once. Others have
// failed, as in any cluster: it is for their owner to count that.
var rejections = []string{
	"AppArmor", "InitContainerRestartPolicyForbidden", "PodFeatureUnsupported", "PodLevelResourcesNotSupported", "PodOSNotSupported",
	"PodOSSelectorNodeLabelDoesNotMatch", "SupplementalGroupsPolicyNotSupported", "SysctlForbidden",
}

// judge says what a pod's state means. A pod that is being deleted or disrupted is
// lost, unless all its containers had finished before that was asked for.
func judge(pod *corev1.Pod) verdict {
	terminal := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	moment, disrupted := disruption(pod)
	switch {
	case pod.DeletionTimestamp == nil && !terminal:
		return runs
	case !terminal && !finished(pod):
		return going
	case !terminal || takenAway(pod):
		return lost
	case disrupted && always(&pod.Spec) && (pod.Status.Phase == corev1.PodSucceeded || kube.Endless(pod)):
		return lost // by itself it would have started again
	case !disrupted || finishedBefore(pod, moment):
		return ended
	}
	return lost
}

// finished says that a kubelet has nothing more to do with a pod that is being deleted.
func finished(pod *corev1.Pod) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return true
	}
	return pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

// takenAway says that a failed pod states a reason which is this cluster's doing.
func takenAway(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodFailed {
		return false
	}
	return slices.Contains(clusterReasons, pod.Status.Reason) || always(&pod.Spec) && slices.Contains(rejections, pod.Status.Reason) || strings.HasPrefix(pod.Status.Reason, "OutOf")
}

// disruption is when this cluster first asked a pod to end, and whether it did.
func disruption(pod *corev1.Pod) (moment time.Time, disrupted bool) {
	if pod.DeletionTimestamp != nil {
		moment, disrupted = askedToEnd(pod), true
	}
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.DisruptionTarget || c.Status != corev1.ConditionTrue {
			continue
		}
		if at := c.LastTransitionTime.Time; !disrupted || at.Before(moment) {
			moment, disrupted = at, true
		}
	}
	return moment, disrupted
}

// askedToEnd is when the deletion of a pod was asked for: shortening the grace moves both.
func askedToEnd(pod *corev1.Pod) time.Time {
	at := pod.DeletionTimestamp.Time
	if grace := pod.DeletionGracePeriodSeconds; grace != nil {
		at = at.Add(-time.Duration(*grace) * time.Second)
	}
	return at
}

// inDoubt is by how much the time of a deletion may be off: times are in whole seconds,
// and when a kubelet ends the grace, the API server counts it from another fraction.
const inDoubt = 2 * time.Second

// finishedBefore says whether every container that has to end had ended before a
// moment. In doubt it had not, as work that was cut short must not count as done.
func finishedBefore(pod *corev1.Pod, moment time.Time) bool {
	ended := func(end *corev1.ContainerStateTerminated) bool {
		return end != nil && end.FinishedAt.Add(inDoubt).Before(moment)
	}
	if pod.Status.Phase == corev1.PodFailed && !slices.ContainsFunc(pod.Status.ContainerStatuses, began) &&
		slices.ContainsFunc(pod.Status.InitContainerStatuses, func(c corev1.ContainerStatus) bool {
			return ended(c.State.Terminated) && c.State.Terminated.ExitCode != 0 && onlyOnce(&pod.Spec, c.Name)
		}) {
		return true // one that runs before the others had failed for good
	}
	if len(pod.Status.ContainerStatuses) == 0 {
		return false
	}
	return !slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return !ended(c.State.Terminated)
	})
}

// onlyOnce says whether an init container is never started again, whatever it ends with.
func onlyOnce(spec *corev1.PodSpec, name string) bool {
	i := slices.IndexFunc(spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 || len(spec.InitContainers[i].RestartPolicyRules) > 0 {
		return false
	}
	if own := spec.InitContainers[i].RestartPolicy; own != nil {
		return *own == corev1.ContainerRestartPolicyNever
	}
	return spec.RestartPolicy == corev1.RestartPolicyNever
}

// began says whether a container was ever started.
func began(c corev1.ContainerStatus) bool {
	return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil || c.RestartCount > 0
}

// lostStatus is the status of a pod that is not made again although it was lost.
func lostStatus(status *corev1.PodStatus, now time.Time) *corev1.PodStatus {
	s := status.DeepCopy()
	s.Phase = corev1.PodFailed
	if s.Reason == "" {
		s.Reason, s.Message = "PodLost", "the provider has removed the pod"
	}
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status != corev1.ConditionTrue
	})
	if !slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }) {
		c := corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: "LostByProvider", Message: "the provider has removed the pod"}
		c.LastTransitionTime.Time = now
		s.Conditions = append(s.Conditions, c)
	}
	for i := range s.Conditions {
		if c := &s.Conditions[i]; (c.Type == corev1.PodReady || c.Type == corev1.ContainersReady) && c.Status != corev1.ConditionFalse {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, "PodFailed", ""
			c.LastTransitionTime.Time = now
		}
	}
	for i := range s.ContainerStatuses {
		s.ContainerStatuses[i].Ready = false
	}
	return s
}
