package setup

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/internal/kube"
)

// NotReadyError says why a program does not start.
type NotReadyError struct {
	// Program is the name of its Deployment or DaemonSet.
	Program string
	// Why it is not ready, and what to do.
	Why string
	// Cause is how the wait ended.
	Cause error
}

// Error is a sentence.
func (e *NotReadyError) Error() string {
	return fmt.Sprintf("%s is not ready: %s", e.Program, e.Why)
}

// Unwrap returns how the wait ended.
func (e *NotReadyError) Unwrap() error { return e.Cause }

// Ready waits until the Deployments and DaemonSets among the objects run in the version
// applied. All are looked at each time, first the one of the name given: others may not be
// ready without it, also when it was and is not any more, and cannot say what is wrong with it.
func (s Site) Ready(ctx context.Context, objects []*unstructured.Unstructured, first string) error {
	var programs []*unstructured.Unstructured
	for _, object := range objects {
		if kind := object.GetKind(); kind != deploymentKind.Kind && kind != daemonSetKind.Kind {
			continue
		}
		if object.GetName() == first {
			programs = slices.Insert(programs, 0, object)
		} else {
			programs = append(programs, object)
		}
	}
	behind := NotReadyError{}
	err := s.until(ctx, func() (bool, error) {
		for _, program := range programs {
			look := s.started
			if program.GetKind() == daemonSetKind.Kind {
				look = s.spread
			}
			over, why, err := look(ctx, client.ObjectKeyFromObject(program))
			switch {
			case err != nil || ctx.Err() != nil: // who is interrupted has seen nothing
				return false, err
			case over:
				continue
			case why != "":
				s.Say("Waiting for %s: %s", program.GetName(), why)
			case behind.Program == program.GetName():
				return false, nil
			}
			behind.Program, behind.Why = program.GetName(), cmp.Or(why, "nothing is known of it yet")
			return false, nil
		}
		return true, nil
	})
	if err != nil && behind.Program != "" {
		behind.Cause = err
		return &behind
	}
	return err
}

// started looks at one Deployment. Errors of reading do not end the wait.
func (s Site) started(ctx context.Context, key client.ObjectKey) (bool, string, error) {
	var d appsv1.Deployment
	if err := s.Client.Get(ctx, key, &d); err != nil {
		return false, unread(err), nil
	}
	if RolledOut(&d) {
		return true, "", nil
	}
	var pods corev1.PodList
	var events corev1.EventList
	if s.Client.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)) != nil ||
		s.Client.List(ctx, &events, client.InNamespace(key.Namespace)) != nil {
		return false, "", nil
	}
	return false, Diagnose(&d, pods.Items, events.Items), nil
}

// unread says why a program could not be read.
func unread(err error) string {
	if client.IgnoreNotFound(err) == nil {
		return "somebody has removed it; run pelago install again"
	}
	return "the API server does not answer"
}

// RolledOut reports whether a Deployment runs as it was asked to.
func RolledOut(d *appsv1.Deployment) bool {
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	return d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas >= wanted &&
		d.Status.AvailableReplicas >= wanted && d.Status.Replicas == d.Status.UpdatedReplicas
}

// remedyOf is what to do about what an API server said when it refused a pod, otherwise if that is not known.
func remedyOf(said, otherwise string) string {
	if d := kube.DenialIn(said); d != nil {
		return d.Remedy()
	}
	return otherwise
}

// Diagnose says why a Deployment is not ready, and what to do about it.
func Diagnose(d *appsv1.Deployment, pods []corev1.Pod, events []corev1.Event) string {
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return fmt.Sprintf("its pods are refused: %s; %s", oneLine(c.Message), remedyOf(c.Message, "see the quotas and policies of namespace "+d.Namespace))
		}
	}
	if len(pods) == 0 {
		return "it has no pod yet; if that stays, see whether the cluster's controller-manager runs"
	}
	return cmp.Or(firstTrouble(pods, events), "its pods are starting")
}

// firstTrouble says what is wrong with the newest pod of which that can be said, empty if
// nothing is: it is of the version that was applied last.
func firstTrouble(pods []corev1.Pod, events []corev1.Event) string {
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range pods {
		if reason := trouble(pod, events); reason != "" {
			return reason
		}
	}
	return ""
}

// trouble says what is wrong with a pod, empty if nothing is.
func trouble(pod corev1.Pod, events []corev1.Event) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return fmt.Sprintf("no node takes pod %s: %s; make room, or set nodeSelector and tolerations (--set manager.…, auth.…, agent.…)", pod.Name, oneLine(c.Message))
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		if w := s.State.Waiting; w != nil {
			switch w.Reason {
			case "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "ErrImageNeverPull":
				return fmt.Sprintf("the nodes cannot pull image %s (%s); push it where they can, or choose another: --image", s.Image, w.Reason)
			case "CrashLoopBackOff":
				return fmt.Sprintf("pod %s keeps ending%s; see: kubectl -n %s logs %s --previous", pod.Name, last(s), pod.Namespace, pod.Name)
			case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
				return fmt.Sprintf("pod %s cannot start: %s", pod.Name, oneLine(w.Message))
			}
		}
		if s.State.Running != nil && !s.Ready {
			return fmt.Sprintf("pod %s runs but is not ready%s; see: kubectl -n %s logs %s", pod.Name, warning(pod, events), pod.Namespace, pod.Name)
		}
	}
	if pod.Status.Phase == corev1.PodPending {
		if text := warning(pod, events); text != "" {
			return "pod " + pod.Name + " does not start" + text
		}
	}
	return ""
}

// last says how a container ended last.
func last(s corev1.ContainerStatus) string {
	if t := s.LastTerminationState.Terminated; t != nil {
		return fmt.Sprintf(" with status %d", t.ExitCode)
	}
	return ""
}

// warning is the latest warning about a pod.
func warning(pod corev1.Pod, events []corev1.Event) string {
	var latest *corev1.Event
	for i, e := range events {
		if e.Type != corev1.EventTypeWarning || e.InvolvedObject.Name != pod.Name {
			continue
		}
		if latest == nil || latest.LastTimestamp.Before(&e.LastTimestamp) {
			latest = &events[i]
		}
	}
	if latest == nil {
		return ""
	}
	return ": " + oneLine(latest.Message)
}

// oneLine makes a message of others fit into a sentence.
func oneLine(text string) string {
	text = strings.TrimSuffix(strings.Join(strings.Fields(text), " "), ".")
	if runes := []rune(text); len(runes) > 240 {
		text = string(runes[:239]) + "…"
	}
	return text
}
