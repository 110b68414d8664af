package shadow

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
)

// create makes a pod as a provider does, and returns it as its API server has it.
func create(t *testing.T, c client.Client, want *corev1.Pod) *corev1.Pod {
	t.Helper()
	pod := want.DeepCopy()
	pod.Spec.EphemeralContainers = nil
	if err := c.Create(context.Background(), pod); err != nil {
		t.Fatalf("creating the pod: %v", err)
	}
	t.Cleanup(func() {
		pod.Finalizers = nil
		_ = c.Update(context.Background(), pod)
		_ = c.Delete(context.Background(), pod, client.GracePeriodSeconds(0))
	})
	return pod
}

// none fails if there is anything to change, also if Compare had nothing recorded to go by.
func none(t *testing.T, now, want *corev1.Pod) {
	t.Helper()
	if diff := cmp.Diff(Changes{}, Compare(now, want)); diff != "" {
		t.Errorf("a pod that is as wanted is compared (-want +got):\n%s", diff)
	}
	blind := now.DeepCopy()
	delete(blind.Annotations, annotationParts)
	c := Compare(blind, want)
	if len(c.Ephemeral)+len(c.Impossible) > 0 || c.Resize {
		t.Errorf("what the API server stored differs from what was asked: %+v", c)
	}
	Apply(blind, want)
	if diff := cmp.Diff(now, blind); diff != "" {
		t.Errorf("Apply changes a pod that is as wanted (-want +got):\n%s", diff)
	}
}

func TestAgainstServer(t *testing.T) {
	ctx := context.Background()
	server := kubetest.Server(t)
	c := server.Client(t)
	ground := Ground{Namespace: server.Namespace(t), Tenant: "rome"}
	make := func(t *testing.T, pod *corev1.Pod) *corev1.Pod {
		t.Helper()
		want, _, err := Make(forged(t, pod), ground)
		if err != nil {
			t.Fatal(err)
		}
		return want
	}

	home := homePod()
	now := create(t, c, make(t, home))
	none(t, now, make(t, home))
	if now.Spec.ServiceAccountName != "default" || len(now.Spec.Volumes) != 3 || *now.Spec.Priority != 0 || now.Spec.SchedulerName != "default-scheduler" {
		t.Errorf("the pod made is %s", text(t, now.Spec))
	}
	// As at a provider, the pod is bound and runs.
	worker := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: server.Name(t, "worker")}}
	if err := c.Create(ctx, worker); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(ctx, worker) })
	worker.Status.Allocatable, worker.Status.Capacity = amounts("cpu", "4", "memory", "8Gi"), amounts("cpu", "4", "memory", "8Gi")
	if err := c.Status().Update(ctx, worker); err != nil {
		t.Fatal(err)
	}
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: worker.Name}}
	if err := c.SubResource("binding").Create(ctx, now, binding); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(now), now); err != nil {
		t.Fatal(err)
	}
	none(t, now, make(t, home))

	// Everything that can change does.
	home.Labels["tier"] = "front"
	delete(home.Labels, "pod-template-hash")
	delete(home.Annotations, "note")
	home.Annotations["other"] = "o"
	home.Spec.Containers[0].Image = "web:2"
	home.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("200m")
	home.Spec.ActiveDeadlineSeconds = ptr.To[int64](600)
	home.Spec.Tolerations = append(home.Spec.Tolerations, corev1.Toleration{Key: "more", Operator: corev1.TolerationOpExists})
	home.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debugger", Image: "busybox", TerminationMessagePolicy: corev1.TerminationMessageReadFile, ImagePullPolicy: corev1.PullAlways}}}
	want := make(t, home)
	changes := Compare(now, want)
	if !changes.Pod || !changes.Resize || len(changes.Ephemeral) != 1 || len(changes.Impossible) != 0 {
		t.Fatalf("of everything that can change, Compare asks for %+v", changes)
	}

	base := now.DeepCopy()
	Apply(now, want)
	if err := c.Patch(ctx, now, client.MergeFrom(base)); err != nil {
		t.Fatalf("patching the pod: %v", err)
	}
	if now.Annotations[v1alpha1.AnnotationApplied] == want.Annotations[v1alpha1.AnnotationApplied] {
		t.Error("the hash was applied before the resources were")
	}
	if _, ok := now.Labels["pod-template-hash"]; ok || now.Labels["tier"] != "front" || now.Spec.Containers[0].Image != "web:2" {
		t.Errorf("patched to labels %v and image %s", now.Labels, now.Spec.Containers[0].Image)
	}
	if again := Compare(now, want); again.Pod || !again.Resize || len(again.Ephemeral) != 1 {
		t.Errorf("after the patch, Compare asks for %+v", again)
	}

	now.Spec.EphemeralContainers = append(now.Spec.EphemeralContainers, changes.Ephemeral...)
	if err := c.SubResource("ephemeralcontainers").Update(ctx, now); err != nil {
		t.Fatalf("adding the ephemeral container: %v", err)
	}
	base = now.DeepCopy()
	ApplyResize(now, want)
	if err := c.SubResource("resize").Patch(ctx, now, client.MergeFrom(base)); err != nil {
		t.Fatalf("resizing: %v", err)
	}
	if cpu := now.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU]; cpu.String() != "200m" {
		t.Errorf("resized to %s", cpu.String())
	}
	if left := Compare(now, want); !left.Pod || left.Resize || len(left.Ephemeral) != 0 {
		t.Errorf("with all but the record done, Compare asks for %+v", left)
	}
	base = now.DeepCopy()
	Apply(now, want)
	if err := c.Patch(ctx, now, client.MergeFrom(base)); err != nil {
		t.Fatal(err)
	}
	none(t, now, want)
	if now.Annotations[v1alpha1.AnnotationApplied] != want.Annotations[v1alpha1.AnnotationApplied] {
		t.Error("the hash was never applied")
	}
}

// TestHomeStatusIsStored gives what Status makes to home's API server.
func TestHomeStatusIsStored(t *testing.T) {
	ctx := context.Background()
	server := kubetest.Server(t)
	c := server.Client(t)
	home := homePod()
	home.Namespace, home.UID = server.Namespace(t), ""
	home.Spec = corev1.PodSpec{ReadinessGates: home.Spec.ReadinessGates, Containers: home.Spec.Containers[:1], RestartPolicy: corev1.RestartPolicyNever,
		NodeName: "milan", TerminationGracePeriodSeconds: ptr.To[int64](0)}
	home.Spec.Containers[0].VolumeMounts = nil
	home = create(t, c, home)
	s, _, err := Forge(home, here)
	if err != nil {
		t.Fatal(err)
	}
	for _, report := range []corev1.PodStatus{running(), ended(0), running()} {
		if s.Status.Pod, err = Report(&report, 1, ""); err != nil {
			t.Fatal(err)
		}
		next, err := Status(home, s, here.Address, viewed)
		if err != nil {
			t.Fatal(err)
		}
		Stamp(&next, metav1.Now())
		base := home.DeepCopy()
		home.Status = next
		if err := c.Status().Patch(ctx, home, client.MergeFrom(base)); err != nil {
			t.Fatalf("writing the status after %s: %v", report.Phase, err)
		}
		if again, err := Status(home, s, here.Address, viewed); err != nil {
			t.Fatal(err)
		} else if diff := cmp.Diff(home.Status, again); diff != "" {
			t.Errorf("the same report changes the status again (-stored +next):\n%s", diff)
		}
		if want := map[corev1.PodPhase]string{corev1.PodRunning: "10.81.1.1"}[home.Status.Phase]; home.Status.PodIP != want {
			t.Errorf("%s: stored with the address %q, want %q", home.Status.Phase, home.Status.PodIP, want)
		}
	}
	if home.Status.Phase != corev1.PodSucceeded || home.Status.ContainerStatuses[0].State.Terminated == nil || home.Status.ObservedGeneration != home.Generation {
		t.Errorf("in the end the status is %s", text(t, home.Status))
	}
	home.Status = Unreachable(home)
	Stamp(&home.Status, metav1.Now())
	if err := c.Status().Update(ctx, home); err != nil {
		t.Errorf("writing that the peer is unreachable: %v", err)
	}
}

func running() corev1.PodStatus {
	return corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.1.1.1", PodIPs: []corev1.PodIP{{IP: "10.1.1.1"}, {IP: "fd01::1"}}, HostIP: "192.168.0.1", QOSClass: corev1.PodQOSGuaranteed, NominatedNodeName: "n",
		StartTime: ptr.To(metav1.Unix(1700000000, 0)),
		Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "web", Ready: true, Started: ptr.To(true), RestartCount: 2, Image: "web:1", ImageID: "sha256:1",
			ContainerID: "containerd://1", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Unix(1700000001, 0)}},
			Resources: &corev1.ResourceRequirements{Requests: amounts("cpu", "100m"), Limits: amounts("cpu", "1", "memory", "1Gi")}, AllocatedResources: amounts("cpu", "100m")}},
	}
}

func ended(code int32) corev1.PodStatus {
	s := running()
	s.Phase = corev1.PodSucceeded
	if code != 0 {
		s.Phase = corev1.PodFailed
	}
	s.Conditions[3].Status, s.Conditions[3].Reason = corev1.ConditionFalse, "PodCompleted"
	s.ContainerStatuses[0].Ready, s.ContainerStatuses[0].Started = false, ptr.To(false)
	s.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: "Completed", Message: "bye",
		FinishedAt: metav1.Unix(1700000002, 0)}}
	return s
}
