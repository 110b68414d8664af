package shadow

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Date makes the times of a home pod's next status fit for home, whose controllers wait for
// a while after them, though they are the provider's: what is to come is now, and what home
// says of a run of a container stays, whatever is reported of that run later.
func Date(next *corev1.PodStatus, home *corev1.Pod, now time.Time) {
	now = now.Truncate(time.Second) // as the API server keeps it
	if home.Status.StartTime == nil && next.StartTime != nil {
		next.StartTime = &metav1.Time{Time: past(*next.StartTime, now).Time}
	}
	for _, l := range [][2][]corev1.ContainerStatus{
		{next.ContainerStatuses, home.Status.ContainerStatuses},
		{next.InitContainerStatuses, home.Status.InitContainerStatuses},
		{next.EphemeralContainerStatuses, home.Status.EphemeralContainerStatuses},
	} {
		for i := range l[0] {
			c, said := &l[0][i], runs{}
			if was := named(l[1], c.Name); was != nil {
				said.note(was.State, was.ContainerID, was.RestartCount)
				said.note(was.LastTerminationState, "", was.RestartCount-1)
			}
			said.date(c.State, c.ContainerID, c.RestartCount, now)
			said.date(c.LastTerminationState, "", c.RestartCount-1, now)
		}
	}
}

// run is when a container started and ended, zero if that is not known.
type run struct{ started, finished metav1.Time }

// runs are those of one container that home speaks of, by container ID and by number: IDs
// are what a report leaves out first.
type runs map[any]run

// note takes down when a state was that home speaks of.
func (r runs) note(s corev1.ContainerState, id string, number int32) {
	var one run
	switch {
	case s.Terminated != nil:
		one = run{s.Terminated.StartedAt, s.Terminated.FinishedAt}
		if s.Terminated.ContainerID != "" {
			id = s.Terminated.ContainerID
		}
	case s.Running != nil:
		one.started = s.Running.StartedAt
	default:
		return
	}
	r[number] = one
	if id != "" {
		r[id] = one
	}
}

// date changes the times of one state. A run that has ended and has another ID is still
// the same one, as there is no other of its number.
func (r runs) date(s corev1.ContainerState, id string, number int32, now time.Time) {
	byNumber := r[number]
	switch {
	case s.Terminated != nil:
		if s.Terminated.ContainerID != "" {
			id = s.Terminated.ContainerID
		}
		was, found := r[id]
		if !found {
			was = byNumber
		}
		s.Terminated.StartedAt, s.Terminated.FinishedAt = accepted(was.started, s.Terminated.StartedAt, now), accepted(was.finished, s.Terminated.FinishedAt, now)
	case s.Running != nil:
		was := r[id]
		if id == "" {
			was = byNumber
		}
		s.Running.StartedAt = accepted(was.started, s.Running.StartedAt, now)
	}
}

// accepted is what home says, or else what is reported, if that can be.
func accepted(said, reported metav1.Time, now time.Time) metav1.Time {
	if said.IsZero() {
		return past(reported, now)
	}
	return said
}

// past is a time unless it lies ahead.
func past(t metav1.Time, now time.Time) metav1.Time {
	if t.After(now) {
		return metav1.NewTime(now)
	}
	return t
}
