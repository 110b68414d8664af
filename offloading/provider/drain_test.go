package provider

import (
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// A tenant that is drained loses its pods, and gets them again when that is over.
func TestDrained(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways)
	b.settle()
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(running)
	b.settle()
	tenant := &v1alpha1.Tenant{}
	b.must(b.c.Get(t.Context(), client.ObjectKey{Name: b.tenant}, tenant))
	tenant.Spec.State = v1alpha1.TenantDrained
	b.must(b.c.Update(t.Context(), tenant))
	b.must(Drainer{Client: b.c}.Drain(t.Context(), tenant))
	b.must(Drainer{Client: b.c}.Drain(t.Context(), tenant))
	b.settle()
	b.want("reason", b.reason(), "False Drained")
	b.kubeletDone()
	b.settle()
	b.noPod()
	tenant.Spec.State = v1alpha1.TenantActive
	b.must(b.c.Update(t.Context(), tenant))
	b.clock.SetTime(b.clock.Now().Add(longestBackoff))
	b.settle()
	b.want("reason", b.reason(), "True Running")
	b.pod()

	// The tenant ends: also what was refused goes.
	second := b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) { s.Spec.Home.Namespace = "other" })
	b.settle()
	now := metav1.Now()
	ending := tenant.DeepCopy()
	ending.DeletionTimestamp = &now
	b.must(Drainer{Client: b.c}.Drain(t.Context(), ending))
	list := &v1alpha1.ShadowPodList{}
	b.must(b.c.List(t.Context(), list, client.InNamespace(b.tenantSpace())))
	for _, s := range list.Items {
		b.settle(s.Name)
	}
	b.uid = second.Name
	b.want("what was refused", b.show(), "gone")
	b.must(b.c.List(t.Context(), list, client.InNamespace(b.tenantSpace())))
	if len(list.Items) != 0 {
		t.Errorf("%d shadow pods are left", len(list.Items))
	}
}

// A tenant cannot make its pods outlast its end, neither by their own grace nor by
// having them deleted with it first.
func TestDrainedInTime(t *testing.T) {
	b := newBench(t)
	b.shadowPod(corev1.RestartPolicyAlways, func(s *v1alpha1.ShadowPod) {
		s.Spec.Pod = regexp.MustCompile(`"terminationGracePeriodSeconds":\d+`).ReplaceAllString(s.Spec.Pod, `"terminationGracePeriodSeconds":1000000000`)
	})
	b.settle()
	b.bind(b.node(corev1.ConditionTrue).Name)
	b.status(running)
	b.settle()
	tenant := &v1alpha1.Tenant{}
	b.must(b.c.Get(t.Context(), client.ObjectKey{Name: b.tenant}, tenant))
	for _, when := range []string{"before", "while it is being deleted"} {
		if when != "before" {
			b.must(b.c.Delete(t.Context(), b.pod()))
		}
		tenant.Spec.State = v1alpha1.TenantDrained
		b.must(Drainer{Client: b.c}.Drain(t.Context(), tenant))
		b.must(Drainer{Client: b.c}.Drain(t.Context(), tenant))
		if grace := b.pod().DeletionGracePeriodSeconds; grace == nil || *grace > 600 {
			t.Fatalf("%s: it has %v seconds to end", when, grace)
		}
		b.kubeletDone()
		b.settle()
		if when == "before" {
			b.bind(b.node(corev1.ConditionTrue).Name)
			b.status(running)
			b.settle()
		}
	}
}
