package verify

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Bounds of an explanation.
const (
	maxPods   = 8
	maxEvents = 10
)

// explain adds the state of the check's pods and its last events to an error.
func (e *env) explain(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var lines []string
	if pods, listErr := e.own(ctx); listErr == nil {
		lines = describePods(pods)
	}
	if events, listErr := e.client.CoreV1().Events(e.namespace).List(ctx, metav1.ListOptions{}); listErr == nil {
		lines = append(lines, describeEvents(events.Items, e.slug)...)
	}
	if len(lines) == 0 {
		return err
	}
	return fmt.Errorf("%w\n%s", err, strings.Join(lines, "\n"))
}

// describePods gives each pod a line: where it is, its phase and what is amiss.
func describePods(pods []corev1.Pod) []string {
	var lines []string
	for i, p := range pods {
		if i == maxPods {
			lines = append(lines, fmt.Sprintf("and %d pods more", len(pods)-i))
			break
		}
		line := fmt.Sprintf("pod %s on %s: %s", p.Name, cmp.Or(p.Spec.NodeName, "no node"), p.Status.Phase)
		if p.DeletionTimestamp != nil {
			line += ", being deleted"
		}
		for _, c := range p.Status.Conditions {
			if c.Status != corev1.ConditionTrue && c.Message != "" {
				line += fmt.Sprintf("; %s: %s", c.Type, shorten(c.Message, 200))
			}
		}
		for _, c := range p.Status.ContainerStatuses {
			line += describeState(c)
		}
		lines = append(lines, line)
	}
	return lines
}

func describeState(c corev1.ContainerStatus) string {
	var s string
	if w := c.State.Waiting; w != nil {
		s += fmt.Sprintf("; waits: %s %s", w.Reason, shorten(w.Message, 200))
	}
	for _, t := range []*corev1.ContainerStateTerminated{c.State.Terminated, c.LastTerminationState.Terminated} {
		if t != nil {
			s += fmt.Sprintf("; ended: code %d %s %s", t.ExitCode, t.Reason, shorten(t.Message, 200))
		}
	}
	return s
}

// describeEvents gives the last events of objects of a check a line each.
func describeEvents(events []corev1.Event, slug string) []string {
	mine := slices.DeleteFunc(slices.Clone(events), func(v corev1.Event) bool {
		name := v.InvolvedObject.Name
		return name != slug && !strings.HasPrefix(name, slug+"-") && !strings.HasPrefix(name, "data-"+slug+"-")
	})
	slices.SortStableFunc(mine, func(a, b corev1.Event) int { return moment(a).Compare(moment(b)) })
	var lines []string
	for _, v := range mine[max(0, len(mine)-maxEvents):] {
		lines = append(lines, fmt.Sprintf("event %s %s %s: %s", strings.ToLower(v.InvolvedObject.Kind), v.InvolvedObject.Name, v.Reason, shorten(v.Message, 200)))
	}
	return lines
}

// moment is when an event was last seen; its senders fill different fields.
func moment(v corev1.Event) time.Time {
	if v.LastTimestamp.IsZero() {
		return v.EventTime.Time
	}
	return v.LastTimestamp.Time
}
