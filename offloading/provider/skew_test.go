package provider

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/internal/kubetest"
)

// TestLaterFields: what a later build has written into a ShadowPod stays when this one
// writes its status and takes off its finalizer.
func TestLaterFields(t *testing.T) {
	b := newBench(t)
	s := b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	kept := kubetest.Later(t, b.c, s)
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(running)
	b.settle()
	b.want("phase", b.get(b.uid).Status.Phase, string(corev1.PodRunning))
	kept()
}
