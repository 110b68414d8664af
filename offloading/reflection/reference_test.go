package reflection

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func named(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

// everyWay refers to Secrets and ConfigMaps in every way a pod can.
func everyWay() corev1.PodSpec {
	soft := new(true)
	env := func(s, m string) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: "plain", Value: "x"}, {Name: "field", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "s", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named(s), Key: "k"}}},
			{Name: "m", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named(m), Key: "k"}}}}
	}
	from := func(s, m string) []corev1.EnvFromSource {
		return []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named(s)}}, {ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named(m), Optional: soft}}}
	}
	volume := func(name string, source corev1.VolumeSource) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: source}
	}
	return corev1.PodSpec{
		NodeName: "milan", Tolerations: []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode}},
		ImagePullSecrets: []corev1.LocalObjectReference{named("pull"), named("")},
		InitContainers:   []corev1.Container{{Env: env("s-init", "m-init")}},
		Containers:       []corev1.Container{{Env: env("s-env", "m-env"), EnvFrom: from("s-from", "m-from")}, {Env: env("s-env", "m-soft")}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Env: env("s-debug", "m-debug"), EnvFrom: from("s-debug", "m-from")}}},
		Volumes: []corev1.Volume{
			volume("empty", corev1.VolumeSource{}),
			volume("s", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s-volume"}}),
			volume("m", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("m-soft"), Optional: soft}}),
			volume("p", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{Secret: &corev1.SecretProjection{LocalObjectReference: named("s-projected"), Optional: soft}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("m-projected")}}}}}),
			volume("kube-api-access-x", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("kube-root-ca.crt")}}}}}),
		},
	}
}

func TestReferences(t *testing.T) {
	pod := &corev1.Pod{Spec: everyWay()}
	got := map[string]bool{}
	for _, r := range references(pod) {
		if _, twice := got[r.kind+" "+r.name]; twice {
			t.Errorf("%s %s twice", r.kind, r.name)
		}
		got[r.kind+" "+r.name] = r.optional
	}
	want := map[string]bool{}
	for _, name := range []string{"pull", "s-init", "s-env", "s-from", "s-debug", "s-volume"} {
		want["Secret "+name] = false
	}
	for _, name := range []string{"m-init", "m-env", "m-debug", "m-projected", "m-soft"} {
		want["ConfigMap "+name] = false // m-soft is needed by a second container
	}
	want["Secret s-projected"], want["ConfigMap m-from"] = true, true
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for name, edit := range map[string]func(*corev1.PodSpec){
		"not bound": func(s *corev1.PodSpec) { s.NodeName = "" }, "of here": func(s *corev1.PodSpec) { s.Tolerations = nil },
	} {
		pod := &corev1.Pod{Spec: everyWay()}
		if edit(&pod.Spec); len(references(pod)) > 0 {
			t.Errorf("a pod that is %s counts", name)
		}
	}
}
