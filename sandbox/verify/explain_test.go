package verify

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/google/go-cmp/cmp"
)

func TestPrint(t *testing.T) {
	results := []Result{
		{Name: "a pod on every node", Duration: 1234 * time.Millisecond},
		{Name: "port-forward", Duration: time.Minute, Err: errors.New("waiting\npod x")},
		{Name: "names", Skipped: "the cluster has no coredns"},
	}
	var b strings.Builder
	for _, r := range results {
		Print(&b, r)
	}
	PrintTotal(&b, results)
	want := `pass    1.2s  a pod on every node
FAIL   60.0s  port-forward
                waiting
                pod x
skip          names (the cluster has no coredns)
1 passed, 1 failed, 1 skipped
`
	if d := cmp.Diff(want, b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestDescribePods(t *testing.T) {
	lost := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	lost.Status.Phase = corev1.PodPending
	lost.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "no node fits"}}
	crashed := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "b", DeletionTimestamp: &metav1.Time{}}, Spec: corev1.PodSpec{NodeName: "n1"}}
	crashed.Status.Phase = corev1.PodRunning
	crashed.Status.ContainerStatuses = []corev1.ContainerStatus{{
		State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: strings.Repeat("x", 1000)}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}},
	}}
	got := describePods([]corev1.Pod{lost, crashed})
	want := []string{
		"pod a on no node: Pending; PodScheduled: no node fits",
		"pod b on n1: Running, being deleted; waits: CrashLoopBackOff " + strings.Repeat("x", 200) + "…; ended: code 3 Error ",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if n := len(describePods(make([]corev1.Pod, 100))); n != maxPods+1 {
		t.Errorf("100 pods make %d lines", n)
	}
}

func TestDescribeEvents(t *testing.T) {
	var events []corev1.Event
	add := func(name string, second int, modern bool) {
		v := corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: name}, Reason: fmt.Sprint("at ", second), Message: "m"}
		if at := time.Unix(int64(second), 0); modern {
			v.EventTime = metav1.NewMicroTime(at)
		} else {
			v.LastTimestamp = metav1.NewTime(at)
		}
		events = append(events, v)
	}
	add("job-x", 2, false)
	add("job", 1, true)
	add("jobs", 3, false)
	add("data-job-0", 4, false)
	want := []string{"event pod job at 1: m", "event pod job-x at 2: m", "event pod data-job-0 at 4: m"}
	if d := cmp.Diff(want, describeEvents(events, "job")); d != "" {
		t.Errorf("only those of the check, oldest first (-want +got):\n%s", d)
	}
	for i := range 100 {
		add("job", 100+i, false)
	}
	got := describeEvents(events, "job")
	if len(got) != maxEvents || !strings.Contains(got[maxEvents-1], "at 199") {
		t.Errorf("want the last %d, got %v", maxEvents, got)
	}
}

func TestDisturbed(t *testing.T) {
	pod := func(uid types.UID, restarts int32) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: uid}}
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{RestartCount: restarts}}
		return p
	}
	for _, c := range []struct {
		reason string
		now    *corev1.Pod
		want   bool
	}{
		{"the same", pod("a", 1), false},
		{"restarted", pod("a", 2), true},
		{"replaced", pod("b", 1), true},
		{"never read, which is another's complaint", nil, false},
	} {
		if err := disturbed(pod("a", 1), c.now); (err != nil) != c.want {
			t.Errorf("%s: %v", c.reason, err)
		}
	}
}
