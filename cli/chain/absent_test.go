package chain

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestReferences(t *testing.T) {
	pod := plain()
	needsSettings(at(-time.Minute))(pod)
	named := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{named("registry")}
	pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A"},
		{Name: "B", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("settings"), Key: "colour"}}},
		{Name: "C", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("login"), Key: "password"}}}}
	want := []Reference{{Kind: "ConfigMap", Name: "settings", Keys: []string{"colour"}}, {Kind: "Secret", Name: "login", Keys: []string{"password"}}}
	if d := cmp.Diff(want, References(pod)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	pod.Status.ContainerStatuses[0].State.Waiting.Reason = "ImagePullBackOff"
	if d := cmp.Diff(append(want, Reference{Kind: "Secret", Name: "registry"}), References(pod)); d != "" {
		t.Errorf("an image cannot be pulled (-want +got):\n%s", d)
	}
}

// TestReferred holds that what is known of an object is said for sure, at once if the pod lacks it.
func TestReferred(t *testing.T) {
	reflection := func(policy v1alpha1.ReflectionPolicy, labels map[string]string) v1alpha1.ReflectionRule {
		return v1alpha1.ReflectionRule{Kind: "ConfigMap", Policy: policy, Selector: &metav1.LabelSelector{MatchLabels: labels}}
	}
	deny := v1alpha1.ReflectionRule{Kind: "ConfigMap", Policy: v1alpha1.ReflectDeny}
	cases := []struct {
		reason string
		change func(*Referred)
		rules  []v1alpha1.ReflectionRule
		warns  string
		began  time.Duration
		state  State
		says   string
		remedy string
	}{
		{"it is not there", func(r *Referred) { r.Absent = true }, nil, "", time.Second, Broken,
			"there is no ConfigMap settings in namespace shop of this cluster", "make ConfigMap settings in namespace shop"},
		{"its annotation keeps it", func(r *Referred) { r.Annotations = map[string]string{v1alpha1.AnnotationReflect: "false"} }, nil, "", time.Second, Broken,
			"ConfigMap settings does not travel: its annotation pelago.dev/reflect keeps it home", "kubectl -n shop annotate configmap settings pelago.dev/reflect-"},
		{"a rule keeps it", nil, []v1alpha1.ReflectionRule{reflection(v1alpha1.ReflectReferred, map[string]string{"app": "other"}), {Kind: "Secret", Policy: v1alpha1.ReflectDeny}, deny}, "", time.Second, Broken,
			"spec.reflection[2] of the NamespaceOffloading keeps it home", "kubectl -n shop edit namespaceoffloading " + v1alpha1.OffloadingName},
		{"an earlier rule lets it go", nil, []v1alpha1.ReflectionRule{reflection(v1alpha1.ReflectReferred, map[string]string{"app": "web"}), deny}, "", time.Hour, Waiting,
			"ConfigMap settings is there at home, and nothing says that milan lacks it", ""},
		{"a rule that cannot be read keeps it", nil, []v1alpha1.ReflectionRule{reflection(v1alpha1.ReflectAll, map[string]string{"a b": "c d"})}, "", time.Second, Broken, "spec.reflection[0]", ""},
		{"a key is missing", func(r *Referred) { r.Keys = []string{"colour", "size"} }, nil, "", time.Second, Broken,
			"ConfigMap settings is there at home, without the key size", "add the key size to ConfigMap settings"},
		{"Pelago said why", func(r *Referred) { r.Stays, r.Said = "its data has 70000 bytes, at most 65536", at(0) }, nil, "", time.Second, Broken,
			"has not travelled to milan: its data has 70000 bytes, at most 65536 (said " + stamp(at(0)) + ")", "docs/reflection.md"},
		{"the provider misses it", nil, nil, `milan: FailedMount: MountVolume.SetUp failed for volume "a" : configmap "settings" not found`, time.Second, Broken,
			"ConfigMap settings is there at home, and milan does not have it yet", "it travels within a minute"},
		{"the provider misses it, in other words", nil, nil, `milan: FailedMount: references non-existent configmap "shop-rome/settings" not found`, time.Second, Broken, "milan does not have it yet", ""},
		{"the provider misses another", nil, nil, `milan: FailedMount: configmap "settings-2" not found`, time.Hour, Broken, "nothing says that milan lacks it", "describe pod web"},
		{"it cannot be read", func(r *Referred) { r.Unread = "forbidden" }, nil, "", time.Hour, Waiting, "ConfigMap settings could not be read: forbidden", ""},
		{"all is well and it starts", nil, nil, "", time.Second, Waiting, "it is starting", ""},
	}
	for _, c := range cases {
		pod := admitted(all{virtual}, all{local})
		pod.Spec.NodeName = "milan"
		needsSettings(at(-c.began))(pod)
		r := Referred{Reference: Reference{Kind: "ConfigMap", Name: "settings"}, Labels: map[string]string{"app": "web"}, Has: []string{"colour"}}
		if c.change != nil {
			c.change(&r)
		}
		o := offloading("", nil)
		o.Spec.Reflection = c.rules
		f := PodFacts{Now: now, Pod: pod, Offloading: o, Nodes: []NodeFacts{milan(nil)}, Referred: []Referred{r},
			Mapped: &v1alpha1.MappedNamespace{Name: "shop-rome", Phase: v1alpha1.MappingReady}}
		if c.warns != "" {
			f.Warnings = []string{c.warns}
		}
		steps := Pod(f).Steps
		s := steps[len(steps)-1]
		if s.State != c.state || !strings.Contains(s.Evidence, c.says) || !strings.Contains(s.Remedy, c.remedy) || strings.Contains(s.Evidence+s.Remedy, "perhaps") {
			t.Errorf("%s: %+v, want %s, %q and %q", c.reason, s, c.state, c.says, c.remedy)
		}
		if c.reason == "all is well and it starts" && s.Evidence != c.says {
			t.Errorf("%s: %+v", c.reason, s)
		}
	}
}
