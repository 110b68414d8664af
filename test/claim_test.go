package test

import (
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claims holds that the pods of a plain StatefulSet with volumes run, at home, where its namespace may run
// elsewhere too, and that one which may run elsewhere only is refused by the name of the field.
func claims(t *testing.T, c *continuum) {
	s := c.offloaded(t, "rome")
	labels := map[string]string{"app": "vol"}
	spec := boxSpec("touch /data/here && trap 'exit 0' TERM; while true; do sleep 0.2; done")
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	replicas := int32(2)
	s.create(t, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "vol"}, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, PodManagementPolicy: appsv1.ParallelPodManagement, ServiceName: "vol", Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}}}}},
	}})
	for i := range replicas {
		pod := s.running(t, fmt.Sprintf("vol-%d", i))
		if strings.HasPrefix(pod.Spec.NodeName, "milan") {
			t.Errorf("%s is on %s", pod.Name, pod.Spec.NodeName)
		}
	}
	if text := strings.Join(strings.Fields(c.Pelago(t, "rome", "explain", "pod", "vol-0", "-n", s.name)), " "); !strings.Contains(text, "it may run in this cluster only: volume claims do not travel yet, and it has spec.volumes[0].persistentVolumeClaim") {
		t.Errorf("explain does not say why it is at home:\n%s", text)
	}

	c.Pelago(t, "rome", "offload", "namespace", s.name, "--pod-offloading-strategy", "Remote")
	pod := s.sleeper("late")
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-vol-0"}}}}
	pod.Spec.Containers[0].VolumeMounts = spec.Containers[0].VolumeMounts
	s.eventually(t, offloadLimit, "a pod with a claim, which may run elsewhere only, is refused", func() error {
		made := pod.DeepCopy()
		err := c.Clients["rome"].Create(t.Context(), made)
		if err == nil {
			_ = c.Clients["rome"].Delete(t.Context(), made)
		}
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.volumes[0].persistentVolumeClaim: volume claims do not travel yet") {
			return fmt.Errorf("making it: %v", err)
		}
		return nil
	})
}
