package shadow

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestForge(t *testing.T) {
	pod := homePod()
	before := text(t, pod)
	s := forged(t, pod)
	if text(t, pod) != before {
		t.Error("Forge changes the home pod")
	}
	if s.Name != homeUID || s.Namespace != "" || s.Spec.Request != "default" || s.Spec.Home != (v1alpha1.HomePod{Namespace: "shop", Name: "web-0"}) ||
		len(s.Annotations) != 0 || len(s.Finalizers) != 1 || s.Finalizers[0] != v1alpha1.FinalizerShadowPod {
		t.Errorf("forged %s", text(t, s))
	}
	if diff := cmp.Diff(map[string]string{"app": "web", "pod-template-hash": "abc"}, s.Spec.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	appKey := ""
	for key := range s.Spec.Annotations {
		if shownKey.MatchString(key) && key != v1alpha1.AnnotationHomeLabels && key != v1alpha1.AnnotationHomeAnnotations {
			appKey = key
		}
	}
	wantAnnotations := map[string]string{
		"note": "a $(HOME) \"b\"\nc", "prometheus.io/scrape": "true", "kubectl.kubernetes.io/restartedAt": "now", appKey: "web",
		v1alpha1.AnnotationHomeLabels: "app=\"web\"\npelago.dev/tenant=\"other\"\npod-template-hash=\"abc\"\ntopology.kubernetes.io/zone=\"z\"",
		v1alpha1.AnnotationHomeAnnotations: "k8s.v1.cni.cncf.io/networks=\"host\"\nkubectl.kubernetes.io/restartedAt=\"now\"\n" +
			"note=\"a $(HOME) \\\"b\\\"\\nc\"\npelago.dev/home-uid=\"x\"\nprometheus.io/scrape=\"true\"",
	}
	if diff := cmp.Diff(wantAnnotations, s.Spec.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	got, err := decodePod(s.Spec.Pod)
	if err != nil {
		t.Fatal(err)
	}
	want := homePod().Spec
	want.NodeName, want.SchedulerName, want.ServiceAccountName, want.DeprecatedServiceAccount = "", "", "", ""
	want.Priority, want.PriorityClassName, want.PreemptionPolicy, want.RuntimeClassName, want.Overhead = nil, "", nil, nil, nil
	want.ReadinessGates, want.Tolerations, want.NodeSelector = nil, nil, map[string]string{"kubernetes.io/arch": "amd64"}
	terms := want.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	terms[2].Namespaces = nil
	want.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{terms[0], terms[2]}}}
	want.TopologySpreadConstraints = want.TopologySpreadConstraints[:1]
	spread := &want.TopologySpreadConstraints[0]
	spread.WhenUnsatisfiable, spread.MinDomains, spread.MatchLabelKeys = corev1.ScheduleAnyway, nil, nil
	spread.LabelSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "pod-template-hash", Operator: "In", Values: []string{"abc"}}}
	want.Volumes, want.Containers[0].VolumeMounts = want.Volumes[:3], want.Containers[0].VolumeMounts[:2]
	items := want.Volumes[2].DownwardAPI.Items
	for i, key := range []string{"pelago.dev/home-name", "pelago.dev/home-labels", "pelago.dev/home-annotations", appKey} {
		items[i].FieldRef.FieldPath = "metadata.annotations['" + key + "']"
	}
	e := want.Containers[0].Env
	e[1], e[2], e[3] = corev1.EnvVar{Name: "POD", Value: "web-0"}, corev1.EnvVar{Name: "NODE", Value: "milan"}, corev1.EnvVar{Name: "NOTE", Value: "a $$(HOME) \"b\"\nc"}
	e[4], e[6] = corev1.EnvVar{Name: "HOST", Value: "10.0.0.9"}, corev1.EnvVar{Name: "ACCOUNT", Value: "robot"}
	sparse(&want)
	if diff := cmp.Diff(&want, got); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

func TestForgeSavesWhatNobodyReads(t *testing.T) {
	pod := homePod()
	pod.Spec.Volumes = nil
	for key := range forged(t, pod).Spec.Annotations {
		if strings.HasPrefix(key, homePrefix) {
			t.Errorf("%s is sent though no volume shows it", key)
		}
	}
}

func TestForgeRefuses(t *testing.T) {
	cases := []struct {
		reason string
		change func(*corev1.Pod)
		want   string
	}{
		{"the node's files", func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		},
			"spec.volumes[0].hostPath: the provider's nodes are not shared; use an emptyDir"},
		{"claims do not travel", func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}
		},
			"spec.volumes[0].persistentVolumeClaim: volume claims do not travel yet, and home keeps such pods; use an emptyDir"},
		{"another runtime", func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("gvisor") }, "spec.runtimeClassName: runtime classes are a cluster's own; leave it out, or use pelago"},
		{"a token of the pod's own", func(p *corev1.Pod) { p.Spec.Volumes[3].Name = "token" }, "spec.volumes[3].projected.sources[0].serviceAccountToken: tokens of home do not travel"},
		{"a field of the downward API to come", func(p *corev1.Pod) { p.Spec.Containers[0].Env[1] = env("X", "status.new") }, "\"status.new\" cannot be shown at a provider"},
		{"so much to show", func(p *corev1.Pod) { p.Annotations["example.com/x"] = strings.Repeat("x", maxAnnotation) }, "metadata.annotations: what the downward API shows has"},
		{"so much in annotations", func(p *corev1.Pod) {
			p.Annotations = map[string]string{"a": strings.Repeat("x", maxAnnotation), "b": strings.Repeat("é", maxAnnotation/2)}
			p.Spec.Volumes = nil
		}, "metadata.annotations: 32770 bytes of those that travel, at most 32768; move data into ConfigMaps"},
		{"so large", func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{strings.Repeat("x", maxPodText)} }, "bytes of JSON, at most 65536; move data into ConfigMaps"},
		{"so many containers", func(p *corev1.Pod) {
			for i := range 64 {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i)})
			}
		}, "spec.containers: 65 of them, at most 64"},
		{"so many labels", func(p *corev1.Pod) {
			for i := range 129 {
				p.Labels[fmt.Sprint("k", i)] = ""
			}
		}, "metadata.labels: 131 of them, at most 128"},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			pod := homePod()
			c.change(pod)
			_, _, err := Forge(pod, here)
			var refusal *Refusal
			if !errors.As(err, &refusal) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the error is %v, and should say %q", err, c.want)
			}
		})
	}
}

// TestForgeLeavesOut holds that an ephemeral container that no provider takes is left out, with a reason that names it
// by its place at home, and that all else of the pod is as if it were not there.
func TestForgeLeavesOut(t *testing.T) {
	one := func(name string, more func(*corev1.EphemeralContainer)) corev1.EphemeralContainer {
		e := corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: "i"}}
		if more != nil {
			more(&e)
		}
		return e
	}
	host := func(e *corev1.EphemeralContainer) {
		e.SecurityContext = &corev1.SecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{HostProcess: ptr.To(true)}}
	}
	size := func(n int) func(*corev1.EphemeralContainer) {
		return func(e *corev1.EphemeralContainer) { e.Args = []string{strings.Repeat("x", n)} }
	}
	fine, many := one("fine", nil), debuggers("d", maxContainers, 0)
	for _, c := range []struct {
		reason    string
		all, kept []corev1.EphemeralContainer
		leftOut   string
	}{
		{"a process of a Windows host", []corev1.EphemeralContainer{one("bad", host), fine}, []corev1.EphemeralContainer{fine},
			`the ephemeral container "bad" is left out: spec.ephemeralContainers[0].securityContext.windowsOptions.hostProcess: `},
		{"after one that has ended", []corev1.EphemeralContainer{one("ended", nil), fine, one("bad", host)}, []corev1.EphemeralContainer{fine}, "spec.ephemeralContainers[2].securityContext"},
		{"what cannot be shown", []corev1.EphemeralContainer{one("bad", func(e *corev1.EphemeralContainer) { e.Env = []corev1.EnvVar{env("X", "status.new")} }), fine},
			[]corev1.EphemeralContainer{fine}, `"status.new" cannot be shown`},
		{"the name of a container", []corev1.EphemeralContainer{fine, one("web", nil)}, []corev1.EphemeralContainer{fine}, "spec.ephemeralContainers[1].name"},
		{"more than a ShadowPod has", append(many, fine), many, fmt.Sprintf("spec.ephemeralContainers[%d]: more than %[1]d of them", maxContainers)},
		{"larger than a ShadowPod is", []corev1.EphemeralContainer{fine, one("bad", size(maxPodText))}, []corev1.EphemeralContainer{fine}, `"bad" is left out: spec.ephemeralContainers[1]: `},
	} {
		pod := homePod()
		pod.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{Name: "ended", State: ended(0).ContainerStatuses[0].State}}
		pod.Spec.EphemeralContainers = c.kept
		want := forged(t, pod)
		pod.Spec.EphemeralContainers = c.all
		got, leftOut, err := Forge(pod, here)
		if err != nil || len(leftOut) != 1 || !strings.Contains(leftOut[0], c.leftOut) {
			t.Errorf("%s: left out %q, error %v", c.reason, leftOut, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-without it +got):\n%s", c.reason, diff)
		}
	}
}

// Only the provider knows its tenant's level: what depends on it is left to it.
func TestForgeLeavesPodSecurityToProvider(t *testing.T) {
	pod := homePod()
	pod.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	s := forged(t, pod)
	if _, _, err := Make(s, there); err == nil {
		t.Error("baseline makes a privileged pod")
	}
	g := there
	g.PodSecurity = v1alpha1.PodSecurityPrivileged
	if _, _, err := Make(s, g); err != nil {
		t.Error(err)
	}
}

// TestHash: what can change changes it, and only that.
func TestHash(t *testing.T) {
	base := forged(t, homePod()).Spec
	for name, c := range map[string]struct {
		change func(*v1alpha1.ShadowPodSpec)
		same   bool
	}{
		"labels":      {change: func(s *v1alpha1.ShadowPodSpec) { s.Labels["a"] = "b" }},
		"annotations": {change: func(s *v1alpha1.ShadowPodSpec) { s.Annotations["a"] = "b" }},
		"pod":         {change: func(s *v1alpha1.ShadowPodSpec) { s.Pod += " " }},
		"grace":       {change: func(s *v1alpha1.ShadowPodSpec) { s.GracePeriodSeconds = ptr.To[int64](1) }, same: true},
	} {
		spec := *base.DeepCopy()
		c.change(&spec)
		if (Hash(spec) == Hash(base)) != c.same {
			t.Errorf("%s: same hash is %t", name, !c.same)
		}
	}
}

func TestLines(t *testing.T) {
	for want, m := range map[string]map[string]string{
		"":                              nil,
		`a="1"`:                         {"a": "1"},
		"a=\"\\\"\\n\\t\\\\\"\nb=\"é\"": {"b": "é", "a": "\"\n\t\\"},
	} {
		if got := lines(m); got != want {
			t.Errorf("lines(%v) is %s, want %s", m, got, want)
		}
	}
}

func TestOwnTerms(t *testing.T) {
	all, some := &metav1.LabelSelector{}, &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	for _, c := range []struct {
		reason string
		term   corev1.PodAffinityTerm
		want   bool
	}{
		{"no namespaces mean the own", corev1.PodAffinityTerm{}, true},
		{"the own by name", corev1.PodAffinityTerm{Namespaces: []string{"shop"}}, true},
		{"another by name", corev1.PodAffinityTerm{Namespaces: []string{"bank"}}, false},
		{"all", corev1.PodAffinityTerm{NamespaceSelector: all}, true},
		{"all, and another by name", corev1.PodAffinityTerm{NamespaceSelector: all, Namespaces: []string{"bank"}}, true},
		{"some by label, which nobody here can look up", corev1.PodAffinityTerm{NamespaceSelector: some}, false},
		{"some by label, and the own by name", corev1.PodAffinityTerm{NamespaceSelector: some, Namespaces: []string{"shop"}}, true},
	} {
		if got := (&walk{home: homePod()}).own(c.term); got != c.want {
			t.Errorf("%s: own is %t", c.reason, got)
		}
	}
}

func TestRefusalError(t *testing.T) {
	long := &Refusal{Reasons: []string{strings.Repeat("é", 2000), "b"}}
	if n := len(long.Error()); n > maxRefusal {
		t.Errorf("%d bytes", n)
	}
	if got := (&Refusal{Reasons: []string{"a", "b"}}).Error(); got != "a; b" {
		t.Error(got)
	}
}
