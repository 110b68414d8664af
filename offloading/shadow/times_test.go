package shadow

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestDate holds that home's controllers wait for nothing that a provider says of the time: what is
// to come is now, and what home says of a run of a container stays.
func TestDate(t *testing.T) {
	now := time.Unix(1700000100, 5)
	ahead, at := metav1.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), func(n int) metav1.Time {
		return metav1.NewTime(now.Truncate(time.Second).Add(time.Duration(n) * time.Second))
	}
	runs := func(id string, count int32, started metav1.Time) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "web", ContainerID: id, RestartCount: count, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}}
	}
	over := func(id string, started, finished metav1.Time) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: id, StartedAt: started, FinishedAt: finished}}
	}
	ends := func(id string, count int32, started, finished metav1.Time) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: "web", ContainerID: id, RestartCount: count, State: over(id, started, finished)}
	}
	again := func(c corev1.ContainerStatus, last corev1.ContainerState) corev1.ContainerStatus {
		c.LastTerminationState = last
		return c
	}
	for _, c := range []struct {
		reason         string
		home           []corev1.ContainerStatus
		reported, want corev1.ContainerStatus
	}{
		{"it has been", nil, ends("a", 0, at(-9), at(-3)), ends("a", 0, at(-9), at(-3))},
		{"started at a time to come", nil, runs("a", 0, ahead), runs("a", 0, at(0))},
		{"ended at a time to come", nil, ends("a", 0, at(-9), ahead), ends("a", 0, at(-9), at(0))},
		{"ended before at a time to come", nil, again(runs("b", 1, at(1)), over("a", ahead, ahead)), again(runs("b", 1, at(0)), over("a", at(0), at(0)))},
		{"home says since when it runs", []corev1.ContainerStatus{runs("a", 0, at(-50))}, runs("a", 0, ahead), runs("a", 0, at(-50))},
		{"and what started ends", []corev1.ContainerStatus{runs("a", 0, at(-50))}, ends("a", 0, ahead, ahead), ends("a", 0, at(-50), at(0))},
		{"home says when it ended", []corev1.ContainerStatus{ends("a", 0, at(-50), at(-40))}, ends("a", 0, at(-1), at(-1)), ends("a", 0, at(-50), at(-40))},
		{"under another name", []corev1.ContainerStatus{ends("a", 0, at(-50), at(-40))}, ends("b", 0, at(-1), at(-1)), ends("b", 0, at(-50), at(-40))},
		{"without a name any more", []corev1.ContainerStatus{ends("a", 0, at(-50), at(-40))}, ends("", 0, at(-1), at(-1)), ends("", 0, at(-50), at(-40))},
		{"it began again", []corev1.ContainerStatus{ends("a", 0, at(-50), at(-40))}, again(runs("b", 1, at(-5)), over("a", ahead, ahead)), again(runs("b", 1, at(-5)), over("a", at(-50), at(-40)))},
		{"and ended again", []corev1.ContainerStatus{again(runs("b", 1, at(-5)), over("a", at(-50), at(-40)))}, again(ends("b", 1, at(-4), at(-1)), over("a", at(-1), at(-1))),
			again(ends("b", 1, at(-5), at(-1)), over("a", at(-50), at(-40)))},
		{"another one runs", []corev1.ContainerStatus{runs("a", 0, at(-50))}, runs("b", 1, at(-5)), runs("b", 1, at(-5))},
	} {
		home, later := atHome(), atHome()
		home.Status.ContainerStatuses, home.Status.InitContainerStatuses, home.Status.EphemeralContainerStatuses = c.home, c.home, c.home
		for i, next := range []*corev1.PodStatus{{StartTime: ptr.To(ahead)}, {StartTime: ptr.To(ahead)}} {
			next.ContainerStatuses = []corev1.ContainerStatus{*c.reported.DeepCopy()}
			next.InitContainerStatuses, next.EphemeralContainerStatuses = []corev1.ContainerStatus{*c.reported.DeepCopy()}, []corev1.ContainerStatus{*c.reported.DeepCopy()}
			want := []corev1.ContainerStatus{c.want}
			if i == 0 {
				Date(next, home, now)
				later.Status = *next.DeepCopy()
			} else {
				next.StartTime = later.Status.StartTime
				Date(next, later, now.Add(time.Minute)) // it says the same from then on
			}
			if !next.StartTime.Equal(ptr.To(at(0))) {
				t.Errorf("%s: the pod started at %s", c.reason, next.StartTime)
			}
			for _, got := range [][]corev1.ContainerStatus{next.ContainerStatuses, next.InitContainerStatuses, next.EphemeralContainerStatuses} {
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s, look %d (-want +got):\n%s", c.reason, i, diff)
				}
			}
		}
	}
}
