package provider

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// A pod that is always restarted: made, run, lost in every way, changed, ended.
func TestLife(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	pod := b.pod()
	b.want("name", pod.Namespace+"/"+pod.Name, b.space+"/web-0")
	b.want("tenant", pod.Labels[v1alpha1.LabelTenant], b.tenant)
	b.want("reason", b.reason(), "True Running")

	node := b.node(corev1.ConditionTrue)
	b.bind(node.Name)
	b.status(running)
	b.settle()
	s := b.get(b.uid)
	b.want("phase", s.Status.Phase, "Running")
	b.want("ref", s.Status.Ref.UID, string(pod.UID))
	if s.Status.ObservedGeneration != s.Generation {
		t.Errorf("observedGeneration %d, want %d", s.Status.ObservedGeneration, s.Generation)
	}
	if strings.Contains(s.Status.Pod, node.Name) || s.Status.Pod == "" {
		t.Errorf("status.pod tells of the node, or nothing: %s", s.Status.Pod)
	}

	// Deleted by hand.
	b.must(b.c.Delete(t.Context(), pod))
	b.settle()
	b.want("the one that goes", string(b.pod().UID), string(pod.UID))
	b.kubeletDone()
	b.settle()
	second := b.pod()
	if second.UID == pod.UID {
		t.Fatal("it was not made again")
	}
	b.settle()
	if s := b.get(b.uid); s.Status.Replaced != 1 || s.Status.Ref.UID != string(second.UID) {
		t.Fatalf("it does not count as replaced: %s", b.show())
	}

	// Evicted by the kubelet.
	b.bind(node.Name)
	b.status(func(s *corev1.PodStatus) { s.Phase, s.Reason = corev1.PodFailed, "Evicted" })
	b.settle()
	if third := b.pod(); third.UID == second.UID {
		t.Fatal("it was not made again")
	}
	if s := b.get(b.uid); s.Status.Replaced != 2 {
		t.Fatalf("replaced is %d, want 2", s.Status.Replaced)
	}

	// Evicted by the API.
	b.bind(node.Name)
	third := b.pod()
	b.must(b.c.SubResource("eviction").Create(t.Context(), third, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: third.Name, Namespace: third.Namespace}}))
	b.settle()
	b.status(endedAs(corev1.PodSucceeded, 0, time.Now()))
	b.settle()
	b.kubeletDone()
	b.clock.SetTime(b.clock.Now().Add(longestBackoff))
	b.settle()
	if fourth := b.pod(); fourth.UID == third.UID {
		t.Fatal("it was not made again")
	}

	// Deleted at home.
	b.bind(node.Name)
	b.status(running)
	b.must(b.c.Delete(t.Context(), b.get(b.uid)))
	b.settle()
	if at := b.pod().DeletionTimestamp; at == nil || b.get(b.uid) == nil {
		t.Fatalf("the pod is not being deleted or the shadow pod went before it: %s", b.show())
	}
	b.kubeletDone()
	b.settle()
	b.want("the shadow pod", b.show(), "gone")
	b.noPod()
	if len(b.memory.notes) != 0 {
		t.Errorf("%d notes are left", len(b.memory.notes))
	}
}

// A pod that ends by itself is told, then let go, and never made again.
func TestFinishedOnce(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyNever)
	b.settle()
	if !pinnedByUs(b.pod()) {
		t.Fatal("a pod that can end has no finalizer")
	}
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(endedAs(corev1.PodSucceeded, 0, time.Now().Add(-time.Minute)))
	// Removed at once, as by a cleaner of ended pods, before anybody looked.
	b.must(b.c.Delete(t.Context(), b.pod()))
	b.settle()
	b.want("phase", b.get(b.uid).Status.Phase, "Succeeded")
	b.noPod()
	b.restart(b.c)
	b.settle()
	b.noPod()
	b.must(b.c.Delete(t.Context(), b.get(b.uid)))
	b.settle()
	b.want("the shadow pod", b.show(), "gone")
}

// Lost while it worked: home gets Failed with DisruptionTarget, and decides.
func TestJobLost(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyOnFailure)
	b.settle()
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(running)
	b.settle()
	b.must(b.c.Delete(t.Context(), b.pod()))
	b.settle()
	b.want("while it goes", b.get(b.uid).Status.Phase, "Running")
	b.kubeletDone() // gone for the kubelet; our finalizer holds it
	b.settle()
	b.noPod()
	s := b.get(b.uid)
	b.want("phase", s.Status.Phase, "Failed")
	status := corev1.PodStatus{}
	b.must(json.Unmarshal([]byte(s.Status.Pod), &status))
	if _, disrupted := disruption(&corev1.Pod{Status: status}); !disrupted || status.Phase != corev1.PodFailed {
		t.Errorf("home cannot tell that it was lost: %s", s.Status.Pod)
	}
	b.restart(b.c)
	b.settle()
	b.noPod()
}

// A pod on a node that is gone does not keep its ShadowPod.
func TestDeadNode(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyNever)
	b.settle()
	node := b.node(corev1.ConditionUnknown)
	b.bind(node.Name)
	b.status(running)
	b.settle()
	b.must(b.c.Delete(t.Context(), b.get(b.uid)))
	b.settle()
	b.pod()
	b.clock.SetTime(time.Now().Add(30*time.Second + deadline - 10*time.Second))
	b.settle()
	b.pod()
	b.clock.SetTime(time.Now().Add(30*time.Second + deadline + 10*time.Second))
	b.settle()
	b.noPod()
	b.want("the shadow pod", b.show(), "gone")

	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	b.bind(node.Name)
	b.status(running)
	b.settle()
	first := b.pod()
	b.must(b.c.Delete(t.Context(), node))
	b.must(b.c.Delete(t.Context(), first)) // as the collector of orphaned pods does
	b.clock.SetTime(b.clock.Now().Add(longestBackoff))
	b.settle()
	if b.pod().UID == first.UID {
		t.Fatal("it was not made again")
	}
}

// A virtual node that is not ready is a cluster that cannot be reached: a pod there may run, and is
// waited for. One that is gone is as any node that is.
func TestVirtualNodeAway(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	node := b.node(corev1.ConditionFalse)
	before := node.DeepCopy()
	node.Labels = map[string]string{v1alpha1.LabelType: v1alpha1.TypeVirtualNode}
	b.must(b.c.Patch(t.Context(), node, client.MergeFrom(before)))
	b.bind(node.Name)
	b.status(running)
	b.settle()
	b.must(b.c.Delete(t.Context(), b.get(b.uid)))
	b.settle()
	b.clock.SetTime(time.Now().Add(30*time.Second + deadline + time.Hour))
	b.settle()
	b.pod()
	b.must(b.c.Delete(t.Context(), node))
	b.clock.SetTime(b.clock.Now().Add(stuckLook))
	b.settle()
	b.noPod()
	b.want("the shadow pod", b.show(), "gone")
}

// Status is written once per 200 ms at most, at once if it is urgent, else after a second, or after
// three while a pod does nothing but start.
func TestPace(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	_, err := b.once(b.uid)
	b.must(err)
	again, err := b.once(b.uid)
	b.must(err)
	if again != writeStarting || b.reason() != "" {
		t.Fatalf("a new pod was told of at once, or never: %s", again)
	}
	b.bind(b.node(corev1.ConditionTrue).Name)
	creating := func(reason string) func(*corev1.PodStatus) {
		return func(s *corev1.PodStatus) {
			s.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}}
		}
	}
	for _, c := range []struct {
		reason string
		want   time.Duration
	}{{"ContainerCreating", writeStarting}, {"ErrImagePull", writeLater}, {"PodInitializing", writeStarting}} {
		b.status(creating(c.reason))
		again, err = b.once(b.uid)
		b.must(err)
		if again != c.want || b.reason() != "" {
			t.Errorf("%s is told of after %s, want %s", c.reason, again, c.want)
		}
	}
	b.status(running)
	_, err = b.once(b.uid)
	b.must(err)
	b.want("what is urgent", b.get(b.uid).Status.Phase, "Running")
	b.status(func(s *corev1.PodStatus) { s.Phase = corev1.PodPending })
	again, err = b.once(b.uid)
	b.must(err)
	if again != writeEvery {
		t.Errorf("looks again in %s, want %s", again, writeEvery)
	}
	b.want("what is too soon", b.get(b.uid).Status.Phase, "Running")
	b.clock.SetTime(b.clock.Now().Add(again))
	_, err = b.once(b.uid)
	b.must(err)
	b.want("a little later", b.get(b.uid).Status.Phase, "Pending")
}
