package verify

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// settings gives a pod a ConfigMap and a Secret, each as variables and as files,
// and has the pod print what it got.
func settings(ctx context.Context, e *env) error {
	plain, secret := e.slug+"-plain", e.slug+"-secret"
	_, err := e.client.CoreV1().ConfigMaps(e.namespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: e.meta(plain), Data: map[string]string{"PLAIN": "a b"}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating configmap %s: %w", plain, err)
	}
	_, err = e.client.CoreV1().Secrets(e.namespace).Create(ctx,
		&corev1.Secret{ObjectMeta: e.meta(secret), Data: map[string][]byte{"SECRET": []byte("c d")}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating secret %s: %w", secret, err)
	}
	p := e.pod(e.slug, `echo "$PLAIN|$(cat /plain/PLAIN)|$SECRET|$(cat /secret/SECRET)"`)
	p.Spec.RestartPolicy = corev1.RestartPolicyNever
	p.Spec.Volumes = append(p.Spec.Volumes,
		corev1.Volume{Name: "plain", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: plain}}}},
		corev1.Volume{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: secret}}})
	main := &p.Spec.Containers[0]
	main.EnvFrom = []corev1.EnvFromSource{
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: plain}}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: secret}}},
	}
	main.VolumeMounts = append(main.VolumeMounts,
		corev1.VolumeMount{Name: "plain", MountPath: "/plain", ReadOnly: true},
		corev1.VolumeMount{Name: "secret", MountPath: "/secret", ReadOnly: true})
	if err := e.createPod(ctx, p); err != nil {
		return err
	}
	got, err := e.finished(ctx, p.Name)
	if err != nil {
		return err
	}
	if want := "a b|a b|c d|c d"; strings.TrimSpace(got) != want {
		return fmt.Errorf("the pod was given %q instead of %q", shorten(got, 200), want)
	}
	return nil
}
