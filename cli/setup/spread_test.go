package setup

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// agents is a DaemonSet of three nodes that all run it.
func agents() *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "pelago-network", Name: "pelago-agent", UID: "ds", Generation: 2},
		Status:     appsv1.DaemonSetStatus{ObservedGeneration: 2, DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberAvailable: 3},
	}
}

func onNode(node, owner string) corev1.Pod {
	p := pod(func(p *corev1.Pod) {
		p.Namespace, p.Name, p.Spec.NodeName = "pelago-network", "pelago-agent-"+node, node
	})
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "DaemonSet", Name: "pelago-agent", UID: "ds", Controller: ptr.To(true)}}
	if owner != "" {
		p.OwnerReferences[0].UID = "another"
	}
	return p
}

func node(name string, ready corev1.ConditionStatus) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if ready != "" {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	}
	return n
}

func TestSpread(t *testing.T) {
	three := []corev1.Pod{onNode("a", ""), onNode("b", ""), onNode("c", "")}
	for _, c := range []struct {
		reason string
		change func(*appsv1.DaemonSetStatus)
		pods   []corev1.Pod
		nodes  []corev1.Node
		want   bool
	}{
		{"all run", nil, nil, nil, true},
		{"the status is of an earlier version", func(s *appsv1.DaemonSetStatus) { s.ObservedGeneration = 1 }, nil, nil, false},
		{"one is of an earlier version", func(s *appsv1.DaemonSetStatus) { s.UpdatedNumberScheduled = 2 }, nil, nil, false},
		{"one is not ready", func(s *appsv1.DaemonSetStatus) { s.NumberAvailable = 2 }, three, []corev1.Node{node("a", "True"), node("b", "True"), node("c", "True")}, false},
		{"that of a node that is down", func(s *appsv1.DaemonSetStatus) { s.NumberAvailable, s.UpdatedNumberScheduled = 2, 2 }, three,
			[]corev1.Node{node("a", "True"), node("b", "True"), node("c", "Unknown")}, true},
		{"two, and one node is down", func(s *appsv1.DaemonSetStatus) { s.NumberAvailable = 1 }, three, []corev1.Node{node("a", "True"), node("b", "True"), node("c", "False")}, false},
		{"two, and one node has two pods and is down", func(s *appsv1.DaemonSetStatus) { s.NumberAvailable = 1 }, append(three, onNode("c", "")),
			[]corev1.Node{node("a", "True"), node("b", "True"), node("c", "False")}, false},
		{"on the node that is down is a pod of something else", func(s *appsv1.DaemonSetStatus) { s.NumberAvailable = 2 }, []corev1.Pod{onNode("c", "another")}, []corev1.Node{node("c", "")}, false},
		{"a node is down that has none of it", func(s *appsv1.DaemonSetStatus) { s.NumberAvailable = 2 }, three, []corev1.Node{node("a", "True"), node("b", "True"), node("c", "True"), node("d", "")}, false},
		{"no node takes it", func(s *appsv1.DaemonSetStatus) { *s = appsv1.DaemonSetStatus{ObservedGeneration: 2} }, nil, nil, true},
	} {
		d := agents()
		if c.change != nil {
			c.change(&d.Status)
		}
		if got := Spread(d, c.pods, c.nodes); got != c.want {
			t.Errorf("%s: %t, want %t", c.reason, got, c.want)
		}
	}
}

func TestDiagnoseSpread(t *testing.T) {
	at := func(seconds int64, message string) corev1.Event {
		return corev1.Event{Type: corev1.EventTypeWarning, Reason: "FailedCreate", Message: message, LastTimestamp: metav1.NewTime(time.Unix(seconds, 0)),
			InvolvedObject: corev1.ObjectReference{Kind: "DaemonSet", Name: "pelago-agent", UID: "ds"}}
	}
	refused := at(100, `Error creating: pods "pelago-agent-" is forbidden: violates PodSecurity "restricted:latest": privileged`)
	other := at(200, "Error creating: of another one")
	other.InvolvedObject.UID = "an earlier one"
	full := []corev1.Pod{onNode("a", ""), onNode("b", ""), onNode("c", "")}
	crashing := onNode("b", "")
	waiting("CrashLoopBackOff", "")(&crashing)
	for _, c := range []struct {
		reason string
		pods   []corev1.Pod
		events []corev1.Event
		want   string
	}{
		{"the cluster lets nobody be privileged", nil, []corev1.Event{refused, other},
			`its pods are refused: Error creating: pods "pelago-agent-" is forbidden: violates PodSecurity "restricted:latest": privileged; they have to be privileged: allow it to namespace pelago-network, or do without the network: --set network.enabled=false`},
		{"the newest refusal", nil, []corev1.Event{at(300, "exceeded quota"), refused}, "its pods are refused: exceeded quota;"},
		{"a quota", nil, []corev1.Event{at(300, `Error creating: pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1`), refused},
			`its pods are refused: Error creating: pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1; that namespace has used up its ResourceQuota few: `},
		{"they were refused before", full, []corev1.Event{refused}, "2 of 3 nodes have it"},
		{"nobody makes pods", nil, []corev1.Event{other}, "it has no pod yet; if that stays"},
		{"one crashes", []corev1.Pod{onNode("a", ""), crashing, onNode("c", "")}, nil, "pod pelago-agent-b keeps ending with status 3; see: kubectl -n pelago-network logs pelago-agent-b --previous"},
	} {
		d := agents()
		d.Status.NumberAvailable = 2
		if got := DiagnoseSpread(d, c.pods, c.events); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.reason, got, c.want)
		}
	}
}

// refusing is a cluster that refuses every object.
type refusing struct {
	client.Client
	why error
}

func (refusing) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

func (r refusing) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return apierrors.NewForbidden(schema.GroupResource{}, "x", r.why)
}

// Of a cluster that refuses the agents it is said what to do without them, but not where there are too many of something.
func TestApplyRefused(t *testing.T) {
	quota := errors.New("exceeded quota: few, requested: count/daemonsets.apps=1, used: count/daemonsets.apps=1, limited: count/daemonsets.apps=1")
	for _, c := range []struct {
		kind string
		why  error
		want bool
	}{{"DaemonSet", nil, true}, {"ConfigMap", nil, false}, {"DaemonSet", quota, false}} {
		kind, want := c.kind, c.want
		o := &unstructured.Unstructured{}
		o.SetAPIVersion("v1")
		o.SetKind(kind)
		o.SetName("x")
		_, err := Site{Client: refusing{why: c.why}, Say: func(string, ...any) {}}.Apply(t.Context(), []*unstructured.Unstructured{o})
		if err == nil || !apierrors.IsForbidden(err) || strings.Contains(err.Error(), "--set network.enabled=false") != want {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
