package provider

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// A running pod follows what can be changed, and keeps the rest with a word.
func TestFollows(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) { s.Spec.Pod = podText(corev1.RestartPolicyAlways, requests("100m")) })
	b.settle()
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(running)
	b.status(func(s *corev1.PodStatus) { // its kubelet can resize
		resources := b.pod().Spec.Containers[0].Resources
		s.ContainerStatuses[0].Resources = &resources
	})
	b.settle()
	uid := b.pod().UID

	edit := func(change func(*v1alpha1.ShadowPod)) {
		t.Helper()
		s := b.get(b.uid)
		change(s)
		b.must(b.c.Update(t.Context(), s))
		b.clock.SetTime(b.clock.Now().Add(changeEvery))
		b.settle()
		if s := b.get(b.uid); s.Status.ObservedGeneration != s.Generation {
			t.Fatalf("the change was not observed: %s", b.show())
		}
	}
	edit(func(s *v1alpha1.ShadowPod) {
		s.Spec.Labels["app"] = "web2"
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, requests("100m"), image("busybox:2"))
	})
	pod := b.pod()
	b.want("label", pod.Labels["app"], "web2")
	b.want("image", pod.Spec.Containers[0].Image, "busybox:2")
	edit(func(s *v1alpha1.ShadowPod) {
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, requests("200m"), image("busybox:2"), func(p *corev1.PodSpec) {
			p.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox:1"}}}
		})
	})
	pod = b.pod()
	if n := len(pod.Spec.EphemeralContainers); n != 1 {
		t.Errorf("%d ephemeral containers, want 1", n)
	}
	b.want("cpu", pod.Spec.Containers[0].Resources.Requests.Cpu().String(), "200m")
	b.want("message", condition(b.get(b.uid).Status.Conditions).Message, "")

	kept := pod.ResourceVersion
	edit(func(s *v1alpha1.ShadowPod) {
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, requests("200m"), func(p *corev1.PodSpec) { p.HostPID = true })
	})
	b.want("version", b.pod().ResourceVersion, kept)
	b.want("reason", b.reason(), "True Running")
	if c := condition(b.get(b.uid).Status.Conditions); !strings.Contains(c.Message, "hostPID") {
		t.Errorf("the refused change is not told: %q", c.Message)
	}
	edit(func(s *v1alpha1.ShadowPod) {
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, requests("200m"), image("busybox:3"), func(p *corev1.PodSpec) {
			p.Containers[0].Command = []string{"sleep", "1"}
			p.EphemeralContainers = pod.Spec.EphemeralContainers
		})
	})
	b.want("image", b.pod().Spec.Containers[0].Image, "busybox:3")
	if c := condition(b.get(b.uid).Status.Conditions); !strings.Contains(c.Message, "command") {
		t.Errorf("the impossible change is not told: %q", c.Message)
	}
	version := b.picture(b.uid)
	b.restart(b.c)
	b.settle()
	b.want("after a restart", b.picture(b.uid), version)
	b.want("pod", string(b.pod().UID), string(uid))
}

// TestDebugThatIsRefused holds that an ephemeral container that is refused, as that of kubectl debug with
// its profile general, is left out and named, and keeps the pod from nothing.
func TestDebugThatIsRefused(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(running)
	b.settle()
	uid := b.pod().UID
	edit := func(change func(*v1alpha1.ShadowPod)) {
		t.Helper()
		s := b.get(b.uid)
		change(s)
		b.must(b.c.Update(t.Context(), s))
		b.clock.SetTime(b.clock.Now().Add(changeEvery))
		b.settle()
	}
	named := func(when string) {
		t.Helper()
		b.want(when, b.reason(), "True Running")
		c := condition(b.get(b.uid).Status.Conditions)
		if !strings.Contains(c.Message, `"debugger"`) || !strings.Contains(c.Message, "capabilities") || c.ObservedGeneration != b.get(b.uid).Generation {
			t.Errorf("%s: the message is %q", when, c.Message)
		}
		if all := b.pod().Spec.EphemeralContainers; len(all) != 1 || all[0].Name != "fine" {
			t.Errorf("%s: the ephemeral containers are %v", when, all)
		}
	}
	edit(func(s *v1alpha1.ShadowPod) {
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, func(p *corev1.PodSpec) {
			p.EphemeralContainers = []corev1.EphemeralContainer{
				{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "busybox:1",
					SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}}}},
				{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "fine", Image: "busybox:1"}}}
		})
	})
	named("debugged")
	edit(func(s *v1alpha1.ShadowPod) { s.Spec.Labels["app"] = "web2" })
	named("labelled")
	b.want("label", b.pod().Labels["app"], "web2")
	b.want("pod", string(b.pod().UID), string(uid))

	b.must(b.c.Delete(t.Context(), b.pod(), client.GracePeriodSeconds(0)))
	b.settle()
	b.clock.SetTime(b.clock.Now().Add(time.Minute))
	b.settle()
	if b.pod() == nil || b.pod().UID == uid {
		t.Fatalf("it is not made again: %s", b.show())
	}
	named("made again")
	b.want("label of the next", b.pod().Labels["app"], "web2")
}

// TestDebugThatIsForbidden holds that an ephemeral container that this cluster's API server refuses, as a policy of its owner's
// has it, keeps no other one from the pod, neither of those that come with it nor of later ones.
func TestDebugThatIsForbidden(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(running)
	b.settle()
	b.restart(interceptor.NewClient(b.c, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if pod, is := o.(*corev1.Pod); is && slices.ContainsFunc(pod.Spec.EphemeralContainers, func(e corev1.EphemeralContainer) bool { return e.Name == "bad" }) {
				return apierrors.NewForbidden(corev1.Resource("pods"), pod.Name, errors.New("the policy says no"))
			}
			return c.SubResource(sub).Patch(ctx, o, patch, opts...)
		}}))
	for _, names := range [][]string{{"bad", "fine"}, {"bad", "fine", "later"}} {
		s := b.get(b.uid)
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, func(p *corev1.PodSpec) {
			for _, name := range names {
				p.EphemeralContainers = append(p.EphemeralContainers, corev1.EphemeralContainer{
					EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "busybox:1"}})
			}
		})
		b.must(b.c.Update(t.Context(), s))
		b.clock.SetTime(b.clock.Now().Add(changeEvery))
		b.settle()
		var got []string
		for _, e := range b.pod().Spec.EphemeralContainers {
			got = append(got, e.Name)
		}
		if !slices.Equal(got, names[1:]) {
			t.Errorf("of %v the pod has %v", names, got)
		}
		c := condition(b.get(b.uid).Status.Conditions)
		if !strings.Contains(c.Message, "bad") || !strings.Contains(c.Message, "the policy says no") || strings.Contains(c.Message, "fine") || c.ObservedGeneration != b.get(b.uid).Generation {
			t.Errorf("the message is %q", c.Message)
		}
		b.want("reason", b.reason(), "True Running")
	}
}

func requests(cpu string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) {
		p.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		p.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	}
}

func image(name string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) { p.Containers[0].Image = name }
}

// A pod that is made again gets its ephemeral containers that home asks for, as they have not ended; they cannot be there from the
// beginning.
func TestEphemeralFromTheStart(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) {
		s.Spec.Pod = podText(corev1.RestartPolicyAlways, func(p *corev1.PodSpec) {
			p.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "busybox:1"}}}
		})
	})
	b.settle()
	if n := len(b.pod().Spec.EphemeralContainers); n != 1 {
		t.Errorf("%d ephemeral containers, want 1; the shadow pod is %s", n, b.show())
	}
	b.want("reason", b.reason(), "True Running")
}
