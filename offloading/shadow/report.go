package shadow

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of a status. Messages of containers have one budget for the whole pod, as
// there can be many containers.
const (
	maxReasonText   = 128
	maxMessageText  = 1024
	maxContainerMsg = 4096
	maxMessages     = 16384
	maxImage        = 512
	maxContainerID  = 256
	maxResources    = 32
)

// told are the conditions that a provider has a say in. PodScheduled and Ready are
// home's, and others belong to controllers at home.
var told = map[corev1.PodConditionType]bool{
	corev1.PodReadyToStartContainers: true, corev1.PodInitialized: true, corev1.ContainersReady: true, corev1.DisruptionTarget: true,
	corev1.PodResizePending: true, corev1.PodResizeInProgress: true, corev1.AllContainersRestarting: true,
}

// Report is the JSON of what a provider tells of a pod: without addresses of nodes, names
// of them and what else is its own, and bounded; names are that of the node on which the pod is
// and, where the pod went onward, those that tell where it went. Restart counts include how often
// the pod was replaced, so Status adds nothing to them.
func Report(status *corev1.PodStatus, replaced int32, names ...string) (string, error) {
	status = masked(status, names)
	r := corev1.PodStatus{
		Phase: status.Phase, Reason: cut(status.Reason, maxReasonText), Message: cut(status.Message, maxMessageText),
		PodIPs:             tellAddresses(status),
		StartTime:          status.StartTime,
		Resources:          keepResources(status.Resources),
		AllocatedResources: keepList(status.AllocatedResources),
	}
	lost := nodeLost(status)
	for _, c := range status.Conditions {
		if lost && c.Type == corev1.ContainersReady {
			c.Status, c.Reason, c.Message = corev1.ConditionFalse, reasonNodeNotReady, "the node on which the pod runs does not answer, so whether the containers are ready is not known"
		}
		if told[c.Type] && condition(r.Conditions, c.Type) == nil {
			r.Conditions = append(r.Conditions, keepCondition(c))
		}
	}
	budget := maxMessages
	r.ContainerStatuses = reportContainers(status.ContainerStatuses, replaced, &budget)
	r.InitContainerStatuses = reportContainers(status.InitContainerStatuses, replaced, &budget)
	r.EphemeralContainerStatuses = reportContainers(status.EphemeralContainerStatuses, 0, &budget)
	for _, leave := range append([]func(*corev1.PodStatus){nil}, lean...) {
		if leave != nil {
			leave(&r)
		}
		text, err := statusText(r)
		if err != nil {
			return "", fmt.Errorf("writing the pod's status: %w", err)
		}
		if len(text) <= maxStatusText {
			return text, nil
		}
	}
	return "", fmt.Errorf("writing the pod's status: larger than %d bytes", maxStatusText)
}

// reasonNodeNotReady is why a pod is not ready of whose containers that is not known.
const reasonNodeNotReady = "NodeNotReady"

// nodeLost says whether the pod's node does not answer: the node controller takes Ready away,
// without a word, and leaves the rest as the kubelet has said it last.
func nodeLost(status *corev1.PodStatus) bool {
	c := condition(status.Conditions, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionFalse && c.Reason == "" && isTrue(status.Conditions, corev1.ContainersReady)
}

// nothing are the ways in which the JSON of a status says that there is nothing. None of
// them can be a part of a text: its quotes would have backslashes.
var nothing = strings.NewReplacer(`,"lastProbeTime":null`, "", `,"lastTransitionTime":null`, "", `,"lastState":{}`, "")

// statusText is a status in JSON, as short as it can be: it crosses the link several times.
// When a condition changed is left out, as home goes by its own clock.
func statusText(s corev1.PodStatus) (string, error) {
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		s.Conditions[i].LastProbeTime, s.Conditions[i].LastTransitionTime = metav1.Time{}, metav1.Time{}
	}
	text, err := json.Marshal(s)
	return nothing.Replace(string(text)), err
}

// Told says whether a report tells what text does, which may be of an earlier build, with
// more words: that is no reason to write it anew.
func Told(text, report string) bool {
	if text == report {
		return true
	}
	status := corev1.PodStatus{}
	if json.Unmarshal([]byte(text), &status) != nil {
		return false
	}
	short, err := statusText(status)
	return err == nil && short == report
}

// masked is a status in which the cluster says nothing of itself. What a container says at
// its end is its own.
func masked(status *corev1.PodStatus, names []string) *corev1.PodStatus {
	isNode := func(name string) bool { return slices.Contains(names, name) }
	s := status.DeepCopy()
	s.Message = Telling(s.Reason, s.Message, isNode)
	for i := range s.Conditions {
		s.Conditions[i].Message = mask(s.Conditions[i].Message, isNode)
	}
	everyContainer(func(c *corev1.ContainerStatus) {
		if w := c.State.Waiting; w != nil {
			w.Message = mask(w.Message, isNode)
		}
	})(s)
	return s
}

// lean are what a report leaves out in turn as long as it is too large.
var lean = []func(*corev1.PodStatus){
	everyContainer(func(c *corev1.ContainerStatus) { c.Resources, c.AllocatedResources = nil, nil }),
	everyContainer(func(c *corev1.ContainerStatus) { c.LastTerminationState = corev1.ContainerState{} }),
	everyContainer(func(c *corev1.ContainerStatus) { c.Image, c.ImageID, c.ContainerID = "", "", "" }),
	everyContainer(func(c *corev1.ContainerStatus) {
		if t := c.State.Terminated; t != nil {
			t.Message, t.ContainerID = "", ""
		}
		if w := c.State.Waiting; w != nil {
			w.Message = ""
		}
	}),
}

func everyContainer(do func(*corev1.ContainerStatus)) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		for _, list := range [][]corev1.ContainerStatus{s.ContainerStatuses, s.InitContainerStatuses, s.EphemeralContainerStatuses} {
			for i := range list {
				do(&list[i])
			}
		}
	}
}

func reportContainers(list []corev1.ContainerStatus, replaced int32, budget *int) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, c := range list {
		if len(out) == maxContainers {
			break
		}
		k := keepContainer(c, budget)
		k.RestartCount = int32(min(int64(k.RestartCount)+int64(max(replaced, 0)), math.MaxInt32))
		out = append(out, k)
	}
	return out
}

// keepContainer copies what is known and bounded of a container's status. Both sides
// use it: the provider for what it tells, home for what it believes.
func keepContainer(c corev1.ContainerStatus, budget *int) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name:  c.Name,
		State: keepState(c.State, budget), LastTerminationState: keepState(c.LastTerminationState, budget),
		Ready: c.Ready, Started: c.Started, RestartCount: max(c.RestartCount, 0),
		Image: keepText(c.Image, maxImage), ImageID: keepText(c.ImageID, maxImage), ContainerID: keepText(c.ContainerID, maxContainerID),
		AllocatedResources: keepList(c.AllocatedResources), Resources: keepResources(c.Resources),
	}
}

// keepState leaves one state of a container, the last one there is.
func keepState(s corev1.ContainerState, budget *int) corev1.ContainerState {
	switch {
	case s.Terminated != nil:
		t := s.Terminated
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: t.ExitCode, Signal: t.Signal, Reason: keepText(t.Reason, maxReasonText), Message: spend(t.Message, maxContainerMsg, budget),
			StartedAt: t.StartedAt, FinishedAt: t.FinishedAt, ContainerID: keepText(t.ContainerID, maxContainerID),
		}}
	case s.Running != nil:
		return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: s.Running.StartedAt}}
	case s.Waiting != nil:
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
			Reason: keepText(s.Waiting.Reason, maxReasonText), Message: spend(s.Waiting.Message, maxMessageText, budget),
		}}
	}
	return corev1.ContainerState{}
}

func keepCondition(c corev1.PodCondition) corev1.PodCondition {
	return corev1.PodCondition{
		Type: c.Type, Status: c.Status, LastTransitionTime: c.LastTransitionTime,
		Reason: keepText(c.Reason, maxReasonText), Message: cut(c.Message, maxMessageText),
	}
}

func keepResources(r *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if r == nil {
		return nil
	}
	return &corev1.ResourceRequirements{Requests: keepList(r.Requests), Limits: keepList(r.Limits)}
}

func keepList(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 || len(list) > maxResources {
		return nil
	}
	next := corev1.ResourceList{}
	for name, q := range list {
		if len(name) <= 317 && q.Sign() >= 0 {
			next[name] = q
		}
	}
	return next
}

// keepText leaves out texts that are too long to be what they should be, and what does
// not print.
func keepText(text string, n int) string {
	if len(text) > n {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, text)
}

// spend cuts a message to what it may have and what is left for all.
func spend(text string, n int, budget *int) string {
	text = cut(text, min(n, *budget))
	*budget -= len(text)
	return text
}

// Urgent says whether a change of a pod's status has to go home at once: phase,
// readiness, or a container's start, end or restart.
func Urgent(before, now *corev1.PodStatus) bool {
	if before == nil {
		before = &corev1.PodStatus{}
	}
	if now == nil {
		return false
	}
	if before.Phase != now.Phase && !(before.Phase == "" && now.Phase == corev1.PodPending) {
		return true
	}
	if isTrue(before.Conditions, corev1.PodReady) != isTrue(now.Conditions, corev1.PodReady) {
		return true
	}
	return urgentContainers(before.ContainerStatuses, now.ContainerStatuses) ||
		urgentContainers(before.InitContainerStatuses, now.InitContainerStatuses) ||
		urgentContainers(before.EphemeralContainerStatuses, now.EphemeralContainerStatuses)
}

// Starting says whether all that can be said of a pod is that it gets a node and then its containers:
// nothing is in the way, and the next thing to hear of is that it runs.
func Starting(now *corev1.PodStatus) bool {
	if now == nil || now.Phase != "" && now.Phase != corev1.PodPending || now.Reason != "" {
		return false
	}
	if c := condition(now.Conditions, corev1.PodScheduled); c != nil && c.Status != corev1.ConditionTrue {
		return false
	}
	return starting(now.InitContainerStatuses) && starting(now.ContainerStatuses) && len(now.EphemeralContainerStatuses) == 0
}

func starting(all []corev1.ContainerStatus) bool {
	for _, c := range all {
		w := c.State.Waiting
		if w == nil || c.RestartCount > 0 || w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return false
		}
	}
	return true
}

func urgentContainers(before, now []corev1.ContainerStatus) bool {
	was := map[string]corev1.ContainerStatus{}
	for _, c := range before {
		was[c.Name] = c
	}
	for _, c := range now {
		b := was[c.Name]
		if c.Ready != b.Ready || c.RestartCount != b.RestartCount ||
			(c.State.Running == nil) != (b.State.Running == nil) || (c.State.Terminated == nil) != (b.State.Terminated == nil) {
			return true
		}
	}
	return false
}

func condition(list []corev1.PodCondition, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range list {
		if list[i].Type == kind {
			return &list[i]
		}
	}
	return nil
}

func isTrue(list []corev1.PodCondition, kind corev1.PodConditionType) bool {
	c := condition(list, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}
