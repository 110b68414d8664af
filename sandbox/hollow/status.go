package hollow

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Exit codes of containers, as after a success and after SIGKILL.
const (
	exitFine   = 0
	exitKilled = 137
)

// patch is a strategic merge patch of a pod's status, good for one life of it.
type patch struct {
	Metadata struct {
		UID types.UID `json:"uid"`
	} `json:"metadata"`
	Status corev1.PodStatus `json:"status"`
}

func (p patch) text(uid types.UID) ([]byte, error) {
	p.Metadata.UID = uid
	text, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("writing a status: %w", err)
	}
	return text, nil
}

// running is the status of a pod that has just started, with its addresses and
// those of its node.
func running(pod *corev1.Pod, own, host []netip.Addr, now time.Time) patch {
	var p patch
	at := metav1.NewTime(now)
	p.Status = corev1.PodStatus{
		ObservedGeneration: pod.Generation, Phase: corev1.PodRunning, StartTime: &at,
		Conditions: conditions(pod, now, corev1.ConditionTrue, ""),
	}
	if pod.Spec.HostNetwork {
		own = host
	}
	for i, a := range own {
		if i == 0 {
			p.Status.PodIP = a.String()
		}
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
	}
	for i, a := range host {
		if i == 0 {
			p.Status.HostIP = a.String()
		}
		p.Status.HostIPs = append(p.Status.HostIPs, corev1.HostIP{IP: a.String()})
	}
	up := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: at}}
	p.Status.ContainerStatuses = containers(pod.UID, pod.Spec.Containers, up)
	p.Status.InitContainerStatuses = initContainers(pod, up, terminated(at, at, exitFine))
	return p
}

// endedAs is the status of a pod whose containers have ended with a code.
func endedAs(pod *corev1.Pod, code int32, now time.Time) patch {
	var p patch
	at := metav1.NewTime(now)
	began := at
	if pod.Status.StartTime != nil {
		began = *pod.Status.StartTime
	}
	phase, reason := corev1.PodSucceeded, "PodCompleted"
	if code != exitFine {
		phase, reason = corev1.PodFailed, "PodFailed"
	}
	down := terminated(began, at, code)
	p.Status = corev1.PodStatus{
		ObservedGeneration: pod.Generation, Phase: phase, Conditions: conditions(pod, now, corev1.ConditionFalse, reason),
		ContainerStatuses:     containers(pod.UID, pod.Spec.Containers, down),
		InitContainerStatuses: initContainers(pod, down, terminated(began, began, exitFine)),
	}
	return p
}

func terminated(began, ended metav1.Time, code int32) corev1.ContainerState {
	reason := "Completed"
	if code != exitFine {
		reason = "Error"
	}
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason, StartedAt: began, FinishedAt: ended}}
}

// conditions are those a kubelet writes; the scheduler's stays as it is.
func conditions(pod *corev1.Pod, now time.Time, ready corev1.ConditionStatus, reason string) []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady} {
		c := corev1.PodCondition{Type: kind, Status: ready, Reason: reason, LastTransitionTime: metav1.NewTime(now), ObservedGeneration: pod.Generation}
		if kind == corev1.PodInitialized {
			c.Status = corev1.ConditionTrue
		}
		out = append(out, c)
	}
	return out
}

// containers are the statuses of containers that are all in one state.
func containers(pod types.UID, all []corev1.Container, state corev1.ContainerState) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, c := range all {
		up := state.Running != nil
		out = append(out, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: "hollow", ContainerID: "hollow://" + string(pod) + "/" + c.Name,
			State: state, Ready: up, Started: &up,
		})
	}
	return out
}

// initContainers are in the state of the others if they run beside them, and
// done otherwise; done ones count as ready.
func initContainers(pod *corev1.Pod, others, done corev1.ContainerState) []corev1.ContainerStatus {
	var out []corev1.ContainerStatus
	for _, c := range pod.Spec.InitContainers {
		state := done
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			state = others
		}
		status := containers(pod.UID, []corev1.Container{c}, state)[0]
		status.Ready = status.Ready || state.Terminated != nil && state.Terminated.ExitCode == exitFine
		out = append(out, status)
	}
	return out
}
