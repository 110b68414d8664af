package hollow

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// pod is a pod in a phase that started at noon, changed by changes.
func pod(phase corev1.PodPhase, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-0", UID: "u-1"}}
	p.Spec.Containers = []corev1.Container{{Name: "web", Image: "nginx"}}
	p.Status.Phase = phase
	if phase != corev1.PodPending {
		p.Status.StartTime = &metav1.Time{Time: noon}
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func endsAfter(text string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Annotations = map[string]string{EndsAfter: text} }
}

func deleted(grace int64) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: noon}, &grace
	}
}

func finalized(p *corev1.Pod) { p.Finalizers = []string{"batch.kubernetes.io/job-tracking"} }

func TestDecide(t *testing.T) {
	for _, c := range []struct {
		reason string
		pod    *corev1.Pod
		age    time.Duration // since it was seen, at noon
		want   deed
		wait   time.Duration
	}{
		{"one just seen starts later", pod(corev1.PodPending), 0, nothing, 2 * time.Second},
		{"and later still", pod(corev1.PodPending), 1500 * time.Millisecond, nothing, 500 * time.Millisecond},
		{"in time it runs", pod(corev1.PodPending), 2 * time.Second, run, 0},
		{"a phase nobody wrote is Pending", pod(""), time.Minute, run, 0},
		{"one that runs is left alone", pod(corev1.PodRunning), time.Hour, nothing, 0},
		{"one with a life of its own ends later", pod(corev1.PodRunning, endsAfter("30s")), 10 * time.Second, nothing, 20 * time.Second},
		{"and then well", pod(corev1.PodRunning, endsAfter("30s")), 30 * time.Second, succeed, 0},
		{"a life that is none lasts", pod(corev1.PodRunning, endsAfter("long")), time.Hour, nothing, 0},
		{"what has ended has ended", pod(corev1.PodSucceeded, endsAfter("30s")), time.Hour, nothing, 0},
		{"so has what failed", pod(corev1.PodFailed), time.Hour, nothing, 0},
		{"a deletion does not wait for its grace", pod(corev1.PodRunning, deleted(30)), 0, remove, 0},
		{"nor for the start", pod(corev1.PodPending, deleted(30)), 0, remove, 0},
		{"a Job first sees how it ended", pod(corev1.PodRunning, deleted(30), finalized), 0, fail, 0},
		{"then it goes", pod(corev1.PodFailed, deleted(30), finalized), 0, remove, 0},
		{"what is left is the finalizer's", pod(corev1.PodFailed, deleted(0), finalized), 0, nothing, 0},
	} {
		got, wait := decide(c.pod, noon, noon.Add(c.age), 2*time.Second)
		if got != c.want || wait != c.wait {
			t.Errorf("%s: %s after %s, want %s after %s", c.reason, got, wait, c.want, c.wait)
		}
	}
}
