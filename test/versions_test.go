package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// spread holds that half of an application runs at a provider whose Kubernetes is another version: pods call
// each other by names both ways, have their ConfigMap, Secret and home's token, end as Jobs, and are looked into as
// at home.
func (c *continuum) spread(t *testing.T, consumer, provider string) *crossing {
	t.Helper()
	x := &crossing{shop: c.offloaded(t, consumer)}
	x.tokens(t, v1alpha1.TokensAllow)
	x.create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"color": "blue"}})
	x.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "word"}, StringData: map[string]string{"word": "sesame"}})
	for name, node := range map[string]string{"front": consumer + "-1", "data": provider} {
		x.create(t, whoService(name, name, nil))
		pod := whoPod("", name, node)
		main := &pod.Spec.Containers[0]
		main.Env = append(main.Env, corev1.EnvVar{Name: "COLOR", ValueFrom: &corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Key: "color"}}})
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "word", MountPath: "/word"})
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "word", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "word"}}})
		x.create(t, pod)
	}
	job := x.job("count", "echo counted")
	job.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: provider}
	x.create(t, job)

	x.front = x.running(t, "front")
	x.data = []*corev1.Pod{x.running(t, "data")}
	if _, err := c.twin(provider, x.data[0]); err != nil {
		t.Fatalf("it does not run at %s: %v", provider, err)
	}
	x.calls(t)
	x.eventually(t, offloadLimit, "its ConfigMap, its Secret and home's token are there", func() error {
		out, err := x.kubectl(t, "exec", "data", "--", "sh", "-c", "echo $COLOR; cat /word/word; echo; ls /var/run/secrets/kubernetes.io/serviceaccount")
		if err == nil && strings.Join(strings.Fields(out), " ") != "blue sesame ca.crt namespace token" {
			err = fmt.Errorf("it sees %q", out)
		}
		return err
	})
	x.eventually(t, offloadLimit, "the Job has ended, and says what it did", func() error {
		done, err := get[batchv1.Job](c, consumer, x.name, "count")
		if err == nil && done.Status.Succeeded != 1 {
			err = fmt.Errorf("it is %+v", done.Status)
		}
		if err != nil {
			return err
		}
		out, err := x.kubectl(t, "logs", "job/count")
		if err == nil && strings.TrimSpace(out) != "counted" {
			err = fmt.Errorf("it says %q", out)
		}
		return err
	})
	return x
}

// refused holds that a pod which asks for what the provider's version does not have is refused there by the name
// of the field, and does not run without it.
func (x *crossing) refused(t *testing.T, provider string) {
	t.Helper()
	pod := onto(x.script("mounted", "while sleep 1; do :; done"), provider)
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "files", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: boxImage, PullPolicy: corev1.PullNever}}})
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "files", MountPath: "/files"}}
	x.create(t, pod)
	x.eventually(t, offloadLimit, "a pod with a volume that is an image is refused with the name of the field", func() error {
		now, err := get[corev1.Pod](x.continuum, x.cluster, x.name, "mounted")
		if err != nil {
			return err
		}
		i := slices.IndexFunc(now.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		if i < 0 || now.Status.Conditions[i].Reason != v1alpha1.ReasonNotAdmitted || !strings.Contains(now.Status.Conditions[i].Message, ".image") {
			return fmt.Errorf("it is %s: %+v", now.Status.Phase, now.Status.Conditions)
		}
		if twin, err := x.twin(provider, now); err == nil && twin.Status.Phase == corev1.PodRunning {
			return fmt.Errorf("it runs at %s", provider)
		}
		return nil
	})
}
