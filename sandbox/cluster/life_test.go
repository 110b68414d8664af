package cluster

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/pelago-dev/pelago/sandbox/config"
)

var begun = time.Date(2026, 11, 21, 10, 0, 0, 700_000_000, time.UTC)

// nodeThat is a node whose condition Ready has a status since its last heartbeat.
func nodeThat(status corev1.ConditionStatus, beat time.Time) corev1.Node {
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rome-1"}}
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.NewTime(begun.Add(time.Hour))},
		{Type: corev1.NodeReady, Status: status, LastHeartbeatTime: metav1.NewTime(beat)},
	}
	return node
}

func TestNodeIsReadyInThisLife(t *testing.T) {
	for _, c := range []struct {
		reason string
		node   corev1.Node
		want   bool
	}{
		{"heard since it was started", nodeThat(corev1.ConditionTrue, begun.Add(20*time.Second)), true},
		{"heard in the second in which it was started", nodeThat(corev1.ConditionTrue, begun.Truncate(time.Second)), true},
		{"of the last life", nodeThat(corev1.ConditionTrue, begun.Add(-2*time.Second)), false},
		{"heard, and not ready", nodeThat(corev1.ConditionFalse, begun.Add(20*time.Second)), false},
		{"not heard for long", nodeThat(corev1.ConditionUnknown, begun.Add(20*time.Second)), false},
		{"never heard", corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rome-1"}}, false},
	} {
		if got := ofThisLife(heard([]corev1.Node{c.node})["rome-1"], begun); got != c.want {
			t.Errorf("%s: ready is %t", c.reason, got)
		}
	}
}

// podOn is a pod of one running container on a node.
func podOn(node string, ready corev1.ConditionStatus, started time.Time) corev1.Pod {
	pod := corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(started)},
	}}}
	return pod
}

func TestPodsOfLastLife(t *testing.T) {
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	before, after := begun.Add(-time.Minute), begun.Add(time.Minute)
	for _, c := range []struct {
		reason string
		pods   []corev1.Pod
		want   bool
	}{
		{"none", nil, false},
		{"started since", []corev1.Pod{podOn("rome-1", yes, after)}, false},
		{"one of two was started before", []corev1.Pod{podOn("rome-1", yes, after), podOn("rome-1", yes, before)}, true},
		{"known not to be ready", []corev1.Pod{podOn("rome-1", no, before)}, false},
		{"on a node that is no machine of ours", []corev1.Pod{podOn("milan", yes, before)}, false},
		{"waiting", []corev1.Pod{{Spec: corev1.PodSpec{NodeName: "rome-1"}}}, false},
	} {
		if got := ofLastLife(c.pods, map[string]time.Time{"rome-1": begun}); got != c.want {
			t.Errorf("%s: of the last life is %t", c.reason, got)
		}
	}
}

func TestHollowNodesOfThisLife(t *testing.T) {
	c := onLoopback(t)
	said := map[string]time.Time{"rome-hollow-1": begun.Add(time.Second), "rome-hollow-2": begun.Add(-time.Minute)}
	if got := c.hollowStatus(said, begun); got.Nodes != 3 || got.Ready != 1 {
		t.Errorf("%d of %d are ready, want 1 of 3", got.Ready, got.Nodes)
	}
}

// TestReadyInThisLife holds that neither nodes nor add-ons are ready by what an API server knows of
// the time before a power cut.
func TestReadyInThisLife(t *testing.T) {
	c := plan().Clusters[0]
	c.Nodes, c.Addons = 1, []string{config.AddonDNS}
	before, after := begun.Add(-time.Minute), begun.Add(time.Minute)
	labels := map[string]string{"k8s-app": "kube-dns"}
	one := int32(1)
	dns := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns"},
		Spec:       appsv1.DeploymentSpec{Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels}},
		Status:     appsv1.DeploymentStatus{ReadyReplicas: 1},
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
	for _, state := range []struct {
		reason    string
		beat, ran time.Time
		want      []string
	}{
		{"right after", before, before, []string{"node rome-1"}},
		{"when the node was heard", after, before, []string{config.AddonDNS}},
		{"when its pod was started", after, after, nil},
	} {
		node := nodeThat(corev1.ConditionTrue, state.beat)
		pod := podOn("rome-1", corev1.ConditionTrue, state.ran)
		pod.ObjectMeta = metav1.ObjectMeta{Namespace: "kube-system", Name: "coredns-1", Labels: labels}
		client := fake.NewClientset(&node, &pod, dns, account)
		got, err := c.unready(t.Context(), client, map[string]time.Time{"rome-1": begun})
		if d := cmp.Diff(state.want, got); err != nil || d != "" {
			t.Errorf("%s what is not ready is: %v (-want +got):\n%s", state.reason, err, d)
		}
	}
}
