package shadow

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// newPod has fields that not all API servers know, wherever there are lists.
func newPod() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{
			{Name: "model", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "example.org/model:1"}}},
			{Name: "cache", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Mode: ptr.To[int32](0o700)}}},
			{Name: "all", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
				{ConfigMap: &corev1.ConfigMapProjection{Items: []corev1.KeyToPath{{Key: "a", Path: "a"}, {Key: "b", Path: "b", User: ptr.To[int64](7)}}}}}}}},
		},
		InitContainers: []corev1.Container{{Name: "side", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}},
		Containers: []corev1.Container{{
			Name: "web", Lifecycle: &corev1.Lifecycle{StopSignal: ptr.To(corev1.SIGINT)},
			VolumeMounts:  []corev1.VolumeMount{{Name: "cache", MountPath: "/a"}, {Name: "cache", MountPath: "/b", BindMountOptions: []string{"noexec"}}},
			Env:           []corev1.EnvVar{{Name: "FROM", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{}}}},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}},
		}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyNever)}}},
	}}
}

func TestLost(t *testing.T) {
	for _, c := range []struct {
		reason string
		change func(*corev1.PodSpec)
		want   []string
	}{
		{"all is there", func(*corev1.PodSpec) {}, nil},
		{"an image volume and its mounts", func(s *corev1.PodSpec) { s.Volumes = s.Volumes[1:] }, []string{"spec.volumes[model].image"}},
		{"an image volume that became none", func(s *corev1.PodSpec) {
			s.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}, []string{"spec.volumes[model].image"}},
		{"what is deep in lists", func(s *corev1.PodSpec) {
			c := &s.Containers[0]
			s.Volumes[1].EmptyDir.Mode, s.Volumes[2].Projected.Sources[0].ConfigMap.Items[1].User = nil, nil
			c.VolumeMounts[1].BindMountOptions, c.Env[0].ValueFrom.FileKeyRef, s.InitContainers[0].RestartPolicy = nil, nil, nil
		}, []string{"spec.volumes[cache].emptyDir.mode", "spec.volumes[all].projected.sources[0].configMap.items[b].user",
			"spec.initContainers[side].restartPolicy", "spec.containers[web].env[FROM].valueFrom.fileKeyRef", "spec.containers[web].volumeMounts[/b].bindMountOptions"}},
		{"what was left of a lifecycle", func(s *corev1.PodSpec) { s.Containers[0].Lifecycle.StopSignal = nil }, []string{"spec.containers[web].lifecycle.stopSignal"}},
		{"a lifecycle of which nothing was left", func(s *corev1.PodSpec) { s.Containers[0].Lifecycle = nil }, []string{"spec.containers[web].lifecycle.stopSignal"}},
		{"the provider's webhooks", func(s *corev1.PodSpec) {
			s.InitContainers = nil
			s.Containers = append([]corev1.Container{{Name: "injected"}}, s.Containers...)
			s.Containers[1].LivenessProbe.ProbeHandler = corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{}}
			s.EphemeralContainers = nil // come later
		}, nil},
	} {
		stored := newPod()
		c.change(&stored.Spec)
		if diff := cmp.Diff(c.want, Lost(stored, newPod())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.reason, diff)
		}
	}
}

// TestNewer holds that what may be lost can be told: a field that is set is one that is not zero.
func TestNewer(t *testing.T) {
	n := 0
	passing(reflect.TypeOf(corev1.PodSpec{}), func(owner reflect.Type, f reflect.StructField) {
		r := table[owner.Name()+"."+f.Name]
		if !r.newer {
			return
		}
		n++
		if k := f.Type.Kind(); k != reflect.Pointer && k != reflect.Slice || r.fate != kept {
			t.Errorf("%s.%s is a %s, and %s: Lost cannot tell whether it was lost", owner.Name(), f.Name, k, r.fate)
		}
	})
	if n < 10 {
		t.Errorf("only %d fields", n)
	}
}
