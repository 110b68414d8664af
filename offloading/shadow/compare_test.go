package shadow

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestCompare(t *testing.T) {
	anywhere := func(*corev1.Pod) {}
	cases := []struct {
		reason string
		// home changes the home pod, provider the pod that runs, before they are compared.
		home, provider func(*corev1.Pod)
		pod, resize    bool
		ephemeral      int
		impossible     string
	}{
		{"nothing changed", anywhere, anywhere, false, false, 0, ""},
		{"a label", func(p *corev1.Pod) { p.Labels["a"] = "b" }, anywhere, true, false, 0, ""},
		{"a label is gone", func(p *corev1.Pod) { delete(p.Labels, "app") }, anywhere, true, false, 0, ""},
		{"an annotation that does not travel, but is shown", func(p *corev1.Pod) { p.Annotations["x.io/y"] = "z" }, anywhere, true, false, 0, ""},
		{"an image", func(p *corev1.Pod) { p.Spec.Containers[0].Image = "web:2" }, anywhere, true, false, 0, ""},
		{"an init container's image", func(p *corev1.Pod) { p.Spec.InitContainers[0].Image = "side:2" }, anywhere, true, false, 0, ""},
		{"a deadline", func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](5) }, anywhere, true, false, 0, ""},
		{"resources", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = amounts("cpu", "2", "memory", "1Gi") }, anywhere, true, true, 0, ""},
		{"resources written otherwise", func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Limits = amounts("cpu", "1000m", "memory", "1Gi") }, anywhere, false, false, 0, ""},
		{"an ephemeral container", func(p *corev1.Pod) {
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d"}}}
		}, anywhere, false, false, 1, ""},
		{"more ephemeral containers than a pod may have", func(p *corev1.Pod) { p.Spec.EphemeralContainers = debuggers("d", 1, 0) },
			func(p *corev1.Pod) { p.Spec.EphemeralContainers = debuggers("old", maxContainers, 0) }, false, false, 0, "spec.ephemeralContainers"},
		{"as many as it may have", func(p *corev1.Pod) { p.Spec.EphemeralContainers = debuggers("d", 1, 0) },
			func(p *corev1.Pod) { p.Spec.EphemeralContainers = debuggers("old", maxContainers-1, 0) }, false, false, 1, ""},
		{"larger ephemeral containers than a pod may have", func(p *corev1.Pod) { p.Spec.EphemeralContainers = debuggers("d", 1, maxPodText/2) },
			func(p *corev1.Pod) { p.Spec.EphemeralContainers = debuggers("old", 1, maxPodText/2) }, false, false, 0, "spec.ephemeralContainers"},
		{"what does not travel", func(p *corev1.Pod) { p.Spec.Tolerations = nil }, anywhere, false, false, 0, ""},
		{"a value of the environment, which no pod follows", func(p *corev1.Pod) {
			p.Annotations["note"] = "new"
		}, anywhere, true, false, 0, ""},
		{"a command cannot change", func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"other"} }, anywhere, true, false, 0, "spec.containers[web].command"},
		{"what can change does beside what cannot", func(p *corev1.Pod) {
			p.Spec.Hostname, p.Labels["a"] = "other", "b"
		}, anywhere, true, false, 0, "spec.hostname"},
		{"a container more", func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "more"}) }, anywhere, true, false, 0, "spec.containers[more]"},
		{"another volume", func(p *corev1.Pod) { p.Spec.Volumes[1].ConfigMap.Name = "other" }, anywhere, true, false, 0, "spec.volumes[settings].configMap.name"},
		{"a webhook's images, side cars, labels and resources are the provider's", anywhere, func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = "mirror/web:1"
			p.Spec.Containers = append([]corev1.Container{{Name: "proxy", Image: "proxy"}}, p.Spec.Containers...)
			p.Labels["mesh"], p.Annotations["mesh.io/status"] = "on", "on"
			p.Spec.Containers[1].Resources.Requests = amounts("cpu", "1m")
			p.Spec.Containers[1].Command = []string{"wrapped"}
		}, false, false, 0, ""},
		{"and stay the provider's when something else changes", func(p *corev1.Pod) { p.Labels["a"] = "b" }, func(p *corev1.Pod) {
			p.Spec.Containers[0].Image = "mirror/web:1"
			p.Spec.Containers[0].Resources.Requests = amounts("cpu", "1m")
			p.Spec.Containers[0].Command = []string{"wrapped"}
			p.Labels["mesh"] = "on"
		}, true, false, 0, ""},
		{"our labels are put back", anywhere, func(p *corev1.Pod) { p.Labels[v1alpha1.LabelTenant] = "other" }, true, false, 0, ""},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			now := made(t, forged(t, homePod()))
			c.provider(now)
			home := homePod()
			c.home(home)
			want := made(t, forged(t, home))
			got := Compare(now, want)
			if got.Resize != c.resize || len(got.Ephemeral) != c.ephemeral || !strings.Contains(strings.Join(got.Impossible, "; "), c.impossible) ||
				(c.impossible == "") != (len(got.Impossible) == 0) || c.impossible == "" && got.Pod != c.pod {
				t.Fatalf("changes are %+v", got)
			}
			// In whatever order changes are made, they come to an end.
			for range 4 {
				got = Compare(now, want)
				if got.Pod {
					before := now.DeepCopy()
					Apply(now, want)
					if cmp.Diff(before, now) == "" {
						t.Fatal("asked for a patch that patches nothing")
					}
				}
				if got.Resize {
					ApplyResize(now, want)
				}
				now.Spec.EphemeralContainers = append(now.Spec.EphemeralContainers, got.Ephemeral...)
			}
			if got = Compare(now, want); got.Pod || got.Resize || len(got.Ephemeral) > 0 || (len(got.Impossible) > 0) != (c.impossible != "") {
				t.Errorf("in the end changes are %+v", got)
			}
			applied := now.Annotations[v1alpha1.AnnotationApplied] == want.Annotations[v1alpha1.AnnotationApplied]
			if applied != (c.impossible == "") {
				t.Errorf("applied is %t", applied)
			}
			mirrored := slices.ContainsFunc(now.Spec.Containers, func(c corev1.Container) bool { return c.Image == "mirror/web:1" })
			if strings.Contains(c.reason, "the provider's") && (now.Labels["mesh"] != "on" || !mirrored) {
				t.Errorf("what the provider's webhook did is undone: %s", shown(now))
			}
		})
	}
}

func TestDeadlineOnlyShrinks(t *testing.T) {
	deadline := func(seconds *int64) *corev1.Pod {
		home := homePod()
		home.Spec.ActiveDeadlineSeconds = seconds
		return made(t, forged(t, home))
	}
	for _, c := range []struct {
		now, want  *int64
		impossible bool
	}{{nil, ptr.To[int64](9), false}, {ptr.To[int64](9), ptr.To[int64](8), false}, {ptr.To[int64](9), ptr.To[int64](10), true}, {ptr.To[int64](9), nil, true}} {
		now, want := deadline(c.now), deadline(c.want)
		got := Compare(now, want)
		if (len(got.Impossible) > 0) != c.impossible {
			t.Errorf("from %v to %v: %+v", c.now, c.want, got)
		}
		Apply(now, want)
		if !c.impossible && *now.Spec.ActiveDeadlineSeconds != *c.want || len(Compare(now, want).Impossible) > 0 != c.impossible {
			t.Errorf("from %v to %v became %v", c.now, c.want, now.Spec.ActiveDeadlineSeconds)
		}
	}
}

// A pod that was replaced gets the ephemeral containers that its forerunner had.
func TestCompareAsksForEphemeralContainersOfNewPod(t *testing.T) {
	home := homePod()
	home.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "d"}}}
	want := made(t, forged(t, home))
	now := want.DeepCopy()
	now.Spec.EphemeralContainers = nil
	if got := Compare(now, want); len(got.Ephemeral) != 1 || got.Pod {
		t.Errorf("%+v", got)
	}
}

// debuggers are ephemeral containers with so many bytes of arguments each.
func debuggers(name string, n, size int) (all []corev1.EphemeralContainer) {
	for i := range n {
		all = append(all, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: fmt.Sprintf("%s%d", name, i), Args: []string{strings.Repeat("x", size)}}})
	}
	return all
}

// TestEndedDebugger holds that an ephemeral container that has ended is not asked for any more, so that it does
// not run again in a pod that is made anew, and that the pod in which it ended needs no change but of its record.
func TestEndedDebugger(t *testing.T) {
	home := atHome()
	home.Spec.EphemeralContainers = debuggers("d", 2, 0)
	before := forged(t, home)
	now := made(t, before)
	if n := len(now.Spec.EphemeralContainers); n != 2 {
		t.Fatalf("%d ephemeral containers are asked for, want 2", n)
	}
	home.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{
		{Name: home.Spec.EphemeralContainers[0].Name, State: ended(0).ContainerStatuses[0].State},
		{Name: home.Spec.EphemeralContainers[1].Name, State: running().ContainerStatuses[0].State},
	}
	after := forged(t, home)
	want := made(t, after)
	if diff := cmp.Diff(now.Spec.EphemeralContainers[1:], want.Spec.EphemeralContainers); diff != "" {
		t.Errorf("asked for when one has ended (-want +got):\n%s", diff)
	}
	if Asked(Hash(before.Spec), after, home, here) {
		t.Error("that one has ended is not sent")
	}
	if diff := cmp.Diff(Changes{Pod: true}, Compare(now, want)); diff != "" {
		t.Errorf("the pod in which it ended (-want +got):\n%s", diff)
	}
	kept := now.DeepCopy()
	Apply(now, want)
	if diff := cmp.Diff(kept.Spec, now.Spec); diff != "" || now.Annotations[v1alpha1.AnnotationApplied] != Hash(after.Spec) {
		t.Errorf("its record is %s, and its spec differs by\n%s", now.Annotations[v1alpha1.AnnotationApplied], diff)
	}
}
