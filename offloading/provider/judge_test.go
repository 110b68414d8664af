package provider

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestJudge(t *testing.T) {
	asked := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	deleting := func(grace int64) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			at := metav1.NewTime(asked.Add(time.Duration(grace) * time.Second))
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &at, &grace
		}
	}
	phase := func(ph corev1.PodPhase, reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Phase, p.Status.Reason = ph, reason }
	}
	finishedAt := func(at ...time.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for _, a := range at {
				p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
					State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.NewTime(a)}}})
			}
		}
	}
	stillRuns := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}})
	}
	target := func(at time.Time) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)})
		}
	}
	policy := func(r corev1.RestartPolicy) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.RestartPolicy = r }
	}
	deadline := func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64(60)) }
	type changes []func(*corev1.Pod)
	initFailed := func(at time.Time, own *corev1.ContainerRestartPolicy) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "setup", RestartPolicy: own}}
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "setup", State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, FinishedAt: metav1.NewTime(at)},
			}}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}}}
		}
	}
	cases := map[string]struct {
		reason string
		pod    changes
		want   verdict
	}{
		"New":                 {"nothing has happened yet", nil, runs},
		"Running":             {"it runs", changes{phase(corev1.PodRunning, ""), stillRuns}, runs},
		"RunningDisrupted":    {"it is about to be evicted and still runs", changes{phase(corev1.PodRunning, ""), target(asked)}, runs},
		"Succeeded":           {"it ended by itself", changes{phase(corev1.PodSucceeded, ""), finishedAt(asked)}, ended},
		"Failed":              {"it failed by itself", changes{phase(corev1.PodFailed, ""), finishedAt(asked)}, ended},
		"Deadline":            {"its own activeDeadlineSeconds is no loss", changes{phase(corev1.PodFailed, "DeadlineExceeded")}, ended},
		"Sysctl":              {"a kubelet that does not run such pods is no loss: another try would end the same", changes{phase(corev1.PodFailed, "SysctlForbidden"), policy(corev1.RestartPolicyNever)}, ended},
		"SysctlAlways":        {"one that is always restarted is not ended by that: it is tried again, ever later", changes{phase(corev1.PodFailed, "SysctlForbidden"), policy(corev1.RestartPolicyAlways)}, lost},
		"AppArmor":            {"the same of another rejection", changes{phase(corev1.PodFailed, "AppArmor"), policy(corev1.RestartPolicyAlways)}, lost},
		"AttachLimit":         {"the node had no room for its volumes after all", changes{phase(corev1.PodFailed, "VolumeAttachmentLimitExceeded"), policy(corev1.RestartPolicyNever)}, lost},
		"Evicted":             {"the kubelet evicted it", changes{phase(corev1.PodFailed, "Evicted"), finishedAt(asked.Add(-time.Hour))}, lost},
		"Preempting":          {"the kubelet preempted it", changes{phase(corev1.PodFailed, "Preempting")}, lost},
		"NodeLost":            {"its node was lost", changes{phase(corev1.PodFailed, "NodeLost")}, lost},
		"NodeShutdown":        {"its node was shut down", changes{phase(corev1.PodFailed, "NodeShutdown")}, lost},
		"Terminated":          {"its node was shut down gracefully", changes{phase(corev1.PodFailed, "Terminated")}, lost},
		"Admission":           {"the kubelet had no room after all", changes{phase(corev1.PodFailed, "UnexpectedAdmissionError")}, lost},
		"OutOfCPU":            {"the kubelet had no room after all", changes{phase(corev1.PodFailed, "OutOfcpu")}, lost},
		"SucceededEvicted":    {"a reason counts for failed pods only", changes{phase(corev1.PodSucceeded, "Evicted"), finishedAt(asked)}, ended},
		"DisruptedThenFailed": {"killed by the eviction", changes{phase(corev1.PodFailed, ""), target(asked), finishedAt(asked.Add(time.Second))}, lost},
		"FailedThenDisrupted": {"it had ended before", changes{phase(corev1.PodFailed, ""), target(asked), finishedAt(asked.Add(-3 * time.Second))}, ended},
		"OrphanCollected":     {"the node is gone, the containers were never seen to end", changes{phase(corev1.PodFailed, ""), target(asked), stillRuns}, lost},
		"Deleting":            {"its containers may still run", changes{phase(corev1.PodRunning, ""), stillRuns, deleting(30)}, going},
		"DeletingPending":     {"its containers may be about to run", changes{phase(corev1.PodPending, ""), deleting(30)}, going},
		"DeletedNoGrace":      {"no kubelet has anything to do with it any more", changes{phase(corev1.PodRunning, ""), stillRuns, deleting(0)}, lost},
		"DeletedUnscheduled":  {"it never ran", changes{deleting(0)}, lost},
		"KilledSucceeded":     {"it handled the signal and exited with 0, which is not the end of its work", changes{phase(corev1.PodSucceeded, ""), deleting(30), finishedAt(asked.Add(2 * time.Second))}, lost},
		"KilledSameSecond":    {"times are in whole seconds, in doubt it was killed", changes{phase(corev1.PodSucceeded, ""), deleting(30), finishedAt(asked)}, lost},
		"DoneThenDeleted":     {"it had ended before it was deleted", changes{phase(corev1.PodSucceeded, ""), deleting(30), finishedAt(asked.Add(-3 * time.Second))}, ended},
		"DoneThenDeletedZero": {"the kubelet's own last deletion shortens the grace and moves the time with it", changes{phase(corev1.PodSucceeded, ""), deleting(0), finishedAt(asked.Add(-3 * time.Second))}, ended},
		"KilledThenZero":      {"the API server counts the kubelet's last deletion from another fraction of the second: in doubt it was killed", changes{phase(corev1.PodSucceeded, ""), deleting(0), finishedAt(asked.Add(-time.Second))}, lost},
		"AlwaysKilled":        {"what is restarted for ever succeeds only when it is taken away", changes{policy(corev1.RestartPolicyAlways), phase(corev1.PodSucceeded, ""), deleting(30), finishedAt(asked.Add(-time.Minute))}, lost},
		"AlwaysCrashed":       {"it would have been started again, though it had crashed when it was asked to end", changes{policy(corev1.RestartPolicyAlways), phase(corev1.PodFailed, ""), target(asked), finishedAt(asked.Add(-time.Minute))}, lost},
		"AlwaysDeadline":      {"its own activeDeadlineSeconds ends it for good", changes{policy(corev1.RestartPolicyAlways), deadline, phase(corev1.PodFailed, "DeadlineExceeded"), deleting(30), finishedAt(asked.Add(-time.Minute))}, ended},
		"HalfDone":            {"one of two containers was killed", changes{phase(corev1.PodFailed, ""), deleting(30), finishedAt(asked.Add(-time.Minute), asked.Add(time.Second))}, lost},
		"InitFailed":          {"what runs before had failed for good", changes{policy(corev1.RestartPolicyAlways), phase(corev1.PodFailed, ""), deleting(30), initFailed(asked.Add(-time.Minute), new(corev1.ContainerRestartPolicyNever))}, ended},
		"InitFailedNever":     {"as all of a pod that is not restarted", changes{phase(corev1.PodFailed, ""), deleting(30), initFailed(asked.Add(-time.Minute), nil)}, ended},
		"InitKilled":          {"or it was killed", changes{policy(corev1.RestartPolicyAlways), phase(corev1.PodFailed, ""), deleting(30), initFailed(asked.Add(time.Second), new(corev1.ContainerRestartPolicyNever))}, lost},
		"InitFailedAgain":     {"it would have been tried again", changes{policy(corev1.RestartPolicyOnFailure), phase(corev1.PodFailed, ""), deleting(30), initFailed(asked.Add(-time.Minute), nil)}, lost},
		"DeletedUnknown":      {"nothing tells that its containers had ended", changes{phase(corev1.PodFailed, ""), deleting(0)}, lost},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever}}
			for _, f := range c.pod {
				f(pod)
			}
			if got := judge(pod); got != c.want {
				t.Errorf("%s: got %s, want %s", c.reason, got, c.want)
			}
		})
	}
}

func TestLostStatus(t *testing.T) {
	now := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	before := &corev1.PodStatus{
		Phase:             corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true}},
	}
	after := lostStatus(before, now)
	if after.Phase != corev1.PodFailed || after.Reason == "" || after.ContainerStatuses[0].Ready {
		t.Errorf("the pod does not look failed: %+v", after)
	}
	targets := 0
	for _, c := range after.Conditions {
		switch {
		case c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue:
			targets++
		case c.Status == corev1.ConditionTrue:
			t.Errorf("%s is still true", c.Type)
		}
	}
	if targets != 1 {
		t.Errorf("%d conditions DisruptionTarget, want 1", targets)
	}
	if before.Phase != corev1.PodRunning || before.Conditions[0].Status != corev1.ConditionTrue {
		t.Error("the status that was given has changed")
	}
	evicted := lostStatus(&corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Conditions: []corev1.PodCondition{
		{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "TerminationByKubelet"}}}, now)
	if evicted.Reason != "Evicted" || len(evicted.Conditions) != 1 || evicted.Conditions[0].Reason != "TerminationByKubelet" {
		t.Errorf("what the cluster said itself is lost: %+v", evicted)
	}
}
