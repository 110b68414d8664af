package consumer

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTimesOfContainers holds that a provider's clock delays nothing at home, where Jobs wait for a
// while after their pods' ends, and that a status does not change with each look at it.
func TestTimesOfContainers(t *testing.T) {
	ahead := metav1.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	runs, ends := running(), ended(corev1.PodRunning, 1)
	runs.StartTime, runs.ContainerStatuses[0].State.Running.StartedAt = &ahead, ahead
	end := ends.ContainerStatuses[0].State.Terminated
	end.StartedAt, end.FinishedAt = ahead, ahead
	f := given(once, carried, said(runs))
	for _, c := range []struct {
		after             time.Duration
		status            *corev1.PodStatus
		started, finished time.Duration // since noon
	}{{0, runs, 0, 0}, {time.Minute, runs, 0, 0}, {2 * time.Minute, ends, 0, 2 * time.Minute}, {3 * time.Minute, ends, 0, 2 * time.Minute}} {
		f.now = noon.Add(c.after)
		said(c.status)(&f)
		p := decide(f)
		if p.status != nil {
			f.pod.Status = *p.status
		}
		if again := decide(f); again.status != nil {
			t.Errorf("after %s the same report changes the status", c.after)
		}
		s := f.pod.Status.ContainerStatuses[0].State
		var started, finished time.Time
		if s.Running != nil {
			started, finished = s.Running.StartedAt.Time, noon
		} else {
			started, finished = s.Terminated.StartedAt.Time, s.Terminated.FinishedAt.Time
		}
		if !f.pod.Status.StartTime.Time.Equal(noon) || !started.Equal(noon.Add(c.started)) || !finished.Equal(noon.Add(c.finished)) {
			t.Errorf("after %s: it began at %s, started at %s, ended at %s", c.after, f.pod.Status.StartTime, started, finished)
		}
	}
}
