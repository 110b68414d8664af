package setup

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func pod(change func(*corev1.Pod)) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "pelago-system", Name: "pelago-manager-x", CreationTimestamp: metav1.NewTime(time.Unix(100, 0))}}
	p.Status.Phase = corev1.PodPending
	if change != nil {
		change(&p)
	}
	return p
}

func waiting(reason, message string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Image: "pelago.dev/pelago:v1",
			State:                corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}}}
	}
}

func TestDiagnose(t *testing.T) {
	warning := corev1.Event{Type: corev1.EventTypeWarning, Message: "Readiness probe\nfailed: 503.", InvolvedObject: corev1.ObjectReference{Name: "pelago-manager-x"}}
	cases := []struct {
		reason string
		failed string
		pods   []corev1.Pod
		events []corev1.Event
		want   string
	}{
		{"a policy refuses the pods", `pods "x" is forbidden: exceeded quota`, nil, nil, "its pods are refused: pods \"x\" is forbidden: exceeded quota; see the quotas"},
		{"a quota refuses them", `pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1`, nil, nil,
			"its pods are refused: pods \"x\" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1; that namespace has used up its ResourceQuota few: "},
		{"nobody makes pods", "", nil, nil, "it has no pod yet; if that stays"},
		{"no room", "", []corev1.Pod{pod(func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/2 nodes are available."}}
		})}, nil, "no node takes pod pelago-manager-x: 0/2 nodes are available; make room"},
		{"no image", "", []corev1.Pod{pod(waiting("ImagePullBackOff", ""))}, nil, "cannot pull image pelago.dev/pelago:v1 (ImagePullBackOff); push it"},
		{"it crashes", "", []corev1.Pod{pod(waiting("CrashLoopBackOff", ""))}, nil, "keeps ending with status 3; see: kubectl -n pelago-system logs pelago-manager-x --previous"},
		{"its Secret is missing", "", []corev1.Pod{pod(waiting("CreateContainerConfigError", "secret \"x\" not found"))}, nil, `cannot start: secret "x" not found`},
		{"it runs and is not ready", "", []corev1.Pod{pod(func(p *corev1.Pod) {
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		})}, []corev1.Event{warning}, "runs but is not ready: Readiness probe failed: 503; see"},
		{"an event says more than the pod", "", []corev1.Pod{pod(nil)}, []corev1.Event{warning}, "does not start: Readiness probe failed: 503"},
		{"it takes its time", "", []corev1.Pod{pod(nil)}, nil, "its pods are starting"},
		{"the newest pod counts", "", []corev1.Pod{pod(waiting("CrashLoopBackOff", "")), pod(func(p *corev1.Pod) {
			p.CreationTimestamp = metav1.NewTime(time.Unix(200, 0))
			waiting("ErrImagePull", "")(p)
		})}, nil, "cannot pull image"},
	}
	for _, c := range cases {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "pelago-system", Name: "pelago-manager"}}
		if c.failed != "" {
			d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: c.failed}}
		}
		if got := Diagnose(d, c.pods, c.events); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

func TestRolledOut(t *testing.T) {
	two := int32(2)
	good := appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 2, AvailableReplicas: 2}
	cases := []struct {
		reason string
		change func(*appsv1.DeploymentStatus)
		want   bool
	}{
		{"all run", func(*appsv1.DeploymentStatus) {}, true},
		{"the status is of an earlier version", func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 1 }, false},
		{"one is of an earlier version", func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 1 }, false},
		{"an old one is still there", func(s *appsv1.DeploymentStatus) { s.Replicas = 3 }, false},
		{"one is not ready", func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 1 }, false},
	}
	for _, c := range cases {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Spec: appsv1.DeploymentSpec{Replicas: &two}, Status: good}
		c.change(&d.Status)
		if got := RolledOut(d); got != c.want {
			t.Errorf("%s: %t, want %t", c.reason, got, c.want)
		}
	}
}
