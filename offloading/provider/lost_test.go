package provider

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// older is an API server that drops what it does not know of pods that are made.
func older(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if pod, is := o.(*corev1.Pod); is {
			pod.Spec.HostnameOverride, pod.Spec.Volumes, pod.Spec.Containers[0].VolumeMounts = nil, nil, nil
			pod.Spec.Containers[0].RestartPolicy, pod.Spec.Containers[0].RestartPolicyRules = nil, nil
		}
		return c.Create(ctx, o, opts...)
	}})
}

// newer makes a ShadowPod with fields that an older API server does not know.
func (b *bench) newer(policy corev1.RestartPolicy) {
	b.t.Helper()
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
}

// TestFieldsThatAreLost holds that a pod is refused of which this cluster's API server has dropped, without a word, what an
// older release of Kubernetes does not know.
func TestFieldsThatAreLost(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyNever} {
		b := newBench(t)
		b.restart(older(b.c))
		b.newer(policy)
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

// TestFieldsThatAreLostByCrashes holds that a pod that lacks what was asked for is taken back also when the program
// ended at any write, or one failed, before that was done, whatever the pod did meanwhile.
func TestFieldsThatAreLostByCrashes(t *testing.T) {
	for _, policy := range []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyNever} {
		for _, ran := range []bool{false, true} {
			for n := 1; n <= 3; n++ {
				for _, how := range []crashing{{left: n}, {left: n, late: true}} {
					for _, restart := range []bool{true, false} {
						b := newBench(t)
						name := fmt.Sprintf("%s, ran %t, write %d, done %t, restart %t", policy, ran, n, how.late, restart)
						c := how
						b.restart(c.client(older(b.c)))
						b.newer(policy)
						for range 8 {
							if _, err := b.once(b.uid); err != nil || c.left <= 0 {
								break
							}
						}
						started := false
						if pods := b.podsOf(b.uid); ran && len(pods) == 1 && pods[0].DeletionTimestamp == nil {
							started = true
							b.bind(b.node(corev1.ConditionTrue).Name)
							b.status(running)
						}
						if restart {
							b.restart(older(b.c))
						} else {
							b.client = older(b.c)
						}
						b.settle()
						if started {
							if b.pod().DeletionTimestamp == nil {
								t.Fatalf("%s: it runs on", name)
							}
							b.want(name+": meanwhile", b.reason(), "False NotAdmitted")
							b.kubeletDone()
							b.settle()
						}
						if policy == corev1.RestartPolicyNever && started {
							b.want(name, b.get(b.uid).Status.Phase, "Failed") // it has begun, and is not to begin twice
						} else {
							b.want(name, b.reason(), "False NotAdmitted")
						}
						b.clock.SetTime(b.clock.Now().Add(refusedAgain))
						b.settle()
						b.noPod()
					}
				}
			}
		}
	}
}

// TestLostAndToldOf holds that a pod is not taken back that has been told of, as by an earlier build.
func TestLostAndToldOf(t *testing.T) {
	b := newBench(t)
	b.restart(older(b.c))
	b.newer(corev1.RestartPolicyAlways)
	s := b.get(b.uid)
	pod, _, err := shadow.Make(s, shadow.Ground{Namespace: b.space, Tenant: b.tenant})
	b.must(err)
	pod.Spec.HostnameOverride = nil
	b.must(b.c.Create(t.Context(), pod))
	s.Status.Ref = &v1alpha1.PodRef{Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
	b.must(b.c.Status().Update(t.Context(), s))
	b.settle()
	b.want("told of", b.reason(), "True Running")
	if b.pod().DeletionTimestamp != nil {
		t.Error("it is taken back")
	}
}
