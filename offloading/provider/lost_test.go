package provider

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// TestFieldsThatAreLost holds that a pod is refused of which this cluster's API server has dropped, without a word, what an
// older release of Kubernetes does not know.
func TestFieldsThatAreLost(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyNever} {
		b := newBench(t)
		older := interceptor.NewClient(b.c, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if pod, is := o.(*corev1.Pod); is {
				pod.Spec.HostnameOverride, pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil, nil
				pod.Spec.Containers[0].RestartPolicy, pod.Spec.Containers[0].RestartPolicyRules = nil, nil
			}
			return c.Create(ctx, o, opts...)
		}})
		b.restart(older)
		b.shadowPod(policy, func(s *v1alpha1.ShadowPod) {
			s.Spec.Pod = podText(policy, func(p *corev1.PodSpec) {
				p.HostnameOverride = ptr.To("other")
				p.Volumes = []corev1.Volume{{Name: "model", VolumeSource: corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: "example.org/model:1"}}}}
				p.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "model", MountPath: "/model"}}
				p.Containers[0].RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
				p.Containers[0].RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestart,
					ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}}}}
			})
		})
		b.settle()
		b.want("reason", b.reason(), "False NotAdmitted")
		message := condition(b.get(b.uid).Status.Conditions).Message
		for _, field := range []string{"spec.hostnameOverride", "spec.containers[main].restartPolicy,", "spec.containers[main].restartPolicyRules", "spec.volumes[model].image"} {
			if !strings.Contains(message, field) {
				t.Errorf("the message does not name %s: %q", field, message)
			}
		}
		b.noPod()
		b.clock.SetTime(b.clock.Now().Add(refusedAgain / 2))
		b.settle()
		b.want("tried again too early", b.reason(), "False NotAdmitted")

		b.restart(b.c)
		b.clock.SetTime(b.clock.Now().Add(2 * time.Minute))
		b.settle()
		b.want("an API server that knows them", b.reason(), "True Running")
		if spec := b.pod().Spec; spec.HostnameOverride == nil || len(spec.Containers[0].RestartPolicyRules) != 1 || len(spec.Volumes) != 1 {
			t.Errorf("the pod lacks what was asked for: %v", spec)
		}
	}
}
