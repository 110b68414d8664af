package shadow

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/resource"
)

// counted is what quotas and limits count of a pod with a status, by requests and by limits, with
// and without what the status says of the pod as a whole.
func counted(home *corev1.Pod, status *corev1.PodStatus) []corev1.ResourceList {
	pod := home.DeepCopy()
	var o scheduling.PodResourcesOptions
	if status != nil {
		pod.Status, o.UseStatusResources = *status, true
	}
	all := []corev1.ResourceList{scheduling.PodRequests(pod, o), scheduling.PodLimits(pod, o)}
	o.InPlacePodLevelResourcesVerticalScalingEnabled = true
	return append(all, scheduling.PodRequests(pod, o), scheduling.PodLimits(pod, o))
}

func requirements(requests, limits corev1.ResourceList) *corev1.ResourceRequirements {
	return &corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

// TestHostileSizes holds that a provider does not decide how much of home's quota a pod uses.
func TestHostileSizes(t *testing.T) {
	plain := atHome()
	plain.Spec.InitContainers[0].Resources = *requirements(amounts("cpu", "50m"), nil)
	plain.Spec.InitContainers = append(plain.Spec.InitContainers, corev1.Container{Name: "first", Resources: *requirements(amounts("memory", "3Gi"), nil)})
	plain.Spec.Containers = append(plain.Spec.Containers, corev1.Container{Name: "none"})
	sized := plain.DeepCopy()
	sized.Spec.Resources = requirements(amounts("cpu", "2"), amounts("cpu", "3"))
	huge, none := amounts("cpu", "999999", "memory", "1Ei", "example.com/gpu", "7"), amounts("cpu", "0", "memory", "-1")
	every := func(r *corev1.ResourceRequirements, allocated corev1.ResourceList) corev1.PodStatus {
		s := corev1.PodStatus{Phase: corev1.PodRunning, Resources: r, AllocatedResources: allocated}
		for _, name := range []string{"web", "none"} {
			s.ContainerStatuses = append(s.ContainerStatuses, corev1.ContainerStatus{Name: name, Resources: r, AllocatedResources: allocated})
		}
		for _, name := range []string{"side", "first"} {
			s.InitContainerStatuses = append(s.InitContainerStatuses, corev1.ContainerStatus{Name: name, Resources: r, AllocatedResources: allocated})
		}
		return s
	}
	fewer := every(&corev1.ResourceRequirements{}, nil)
	fewer.ContainerStatuses = fewer.ContainerStatuses[1:]
	for reason, status := range map[string]corev1.PodStatus{
		"large requests":         every(requirements(huge, nil), nil),
		"large limits":           every(requirements(nil, huge), nil),
		"a large allocation":     every(nil, huge),
		"all large":              every(requirements(huge, huge), huge),
		"nothing":                every(&corev1.ResourceRequirements{}, nil),
		"nothing said":           every(nil, nil),
		"small":                  every(requirements(none, none), none),
		"small, by half":         every(requirements(none, nil), nil),
		"no status":              {Phase: corev1.PodRunning, Resources: &corev1.ResourceRequirements{}},
		"no status of one of it": fewer,
	} {
		for _, why := range []string{"", corev1.PodReasonInfeasible, corev1.PodReasonDeferred} {
			if status.Conditions = nil; why != "" {
				status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: why}}
			}
			for kind, home := range map[string]*corev1.Pod{"a pod": plain, "a pod with resources of its own": sized} {
				s := forged(t, home)
				s.Status.Pod = text(t, status)
				got := next(t, home, s)
				again := home.DeepCopy()
				again.Status = got
				for _, got := range []corev1.PodStatus{got, next(t, again, s)} {
					if diff := cmp.Diff(counted(home, nil), counted(home, &got)); diff != "" {
						t.Errorf("%s, %q: %s counts otherwise than its spec (-spec +status):\n%s", reason, why, kind, diff)
					}
					if condition(got.Conditions, corev1.PodResizePending) != nil {
						t.Errorf("%s, %q: %s, that nobody resizes, is said to be resized", reason, why, kind)
					}
				}
			}
		}
	}
}

// TestResizeIsTold holds that what a resize of home's has not come to is told, and counts as in any cluster.
func TestResizeIsTold(t *testing.T) {
	old := atHome()
	old.Spec.InitContainers, old.Spec.Overhead = nil, nil
	size := func(home *corev1.Pod, cpu string) {
		home.Generation++
		home.Spec.Containers[0].Resources = *requirements(amounts("cpu", cpu), amounts("cpu", "8"))
	}
	size(old, "2")
	there := running()
	has := func(cpu string) {
		all := []corev1.ResourceList{amounts("cpu", cpu), amounts("cpu", "8")}
		there.Resources, there.AllocatedResources = requirements(all[0], all[1]), all[0]
		there.ContainerStatuses[0].Resources, there.ContainerStatuses[0].AllocatedResources = requirements(all[0], all[1]), all[0]
	}
	has("2")
	old.Status = next(t, old, reporting(t, old, there))
	pending := func(why string) []corev1.PodCondition {
		return append(running().Conditions, corev1.PodCondition{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: why, LastTransitionTime: metav1.Unix(1, 0)})
	}
	for _, c := range []struct {
		reason, wanted, why, said string
		counts                    string
		told                      bool
	}{
		{"a deferred shrink", "1", corev1.PodReasonDeferred, "2", "2", true},
		{"a shrink that is done", "1", "", "1", "1", false},
		{"a shrink that is done, of which more is said", "1", "", "3", "2", false},
		{"an infeasible growth", "4", corev1.PodReasonInfeasible, "2", "2", true},
		{"an infeasible growth, of which less is said", "4", corev1.PodReasonInfeasible, "1m", "2", true},
		{"a growth that is done, and said to be infeasible", "4", corev1.PodReasonInfeasible, "4", "4", false},
		{"a growth that is done, of which more is said", "4", "", "5", "4", false},
	} {
		home := old.DeepCopy()
		size(home, c.wanted)
		has(c.said)
		if there.Conditions = running().Conditions; c.why != "" {
			there.Conditions = pending(c.why)
		}
		got := next(t, home, reporting(t, home, there))
		for _, of := range []corev1.ResourceList{counted(home, &got)[0], counted(home, &got)[2]} {
			if cpu := of[corev1.ResourceCPU]; cpu.String() != c.counts {
				t.Errorf("%s counts as %s of cpu, want %s", c.reason, cpu.String(), c.counts)
			}
		}
		if told := condition(got.Conditions, corev1.PodResizePending) != nil; told != c.told {
			t.Errorf("%s: that it is pending is told: %t", c.reason, told)
		}
	}
	// A container that waits says nothing of its resources.
	home := old.DeepCopy()
	size(home, "4")
	has("2")
	there.Conditions, there.ContainerStatuses[0].Resources, there.ContainerStatuses[0].AllocatedResources = pending(corev1.PodReasonInfeasible), nil, nil
	got := next(t, home, reporting(t, home, there))
	if cpu := counted(home, &got)[0][corev1.ResourceCPU]; cpu.String() != "2" {
		t.Errorf("a container that waits counts as %s of cpu", cpu.String())
	}
}
