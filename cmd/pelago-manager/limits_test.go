package main

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/provider"
	"github.com/pelago-dev/pelago/peering/tenant"
)

// A tenant's limits hold for what is counted and what is being made together.
func TestLimits(t *testing.T) {
	pod := func(name, cpu string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop-rome", Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}}},
		}
	}
	rome := func(cpu string) *v1alpha1.Tenant {
		return &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: v1alpha1.TenantSpec{TenantTerms: v1alpha1.TenantTerms{
			Limits: &v1alpha1.TenantLimits{Resources: v1alpha1.ResourceList{"cpu": resource.MustParse(cpu)}}}}}
	}
	usage := tenant.NewUsage()
	l := limits{usage}
	if err := l.Check(rome("4"), nil, nil, pod("new", "1")); !errors.Is(err, provider.ErrNotCounted) {
		t.Errorf("before all is counted: %v", err)
	}
	if err := l.Check(&v1alpha1.Tenant{}, nil, nil, pod("new", "1")); err != nil {
		t.Errorf("without limits nothing needs to be counted: %v", err)
	}
	usage.SetNamespace("shop-rome", "rome")
	usage.SetPod(pod("old", "1"))
	usage.Complete()
	for _, c := range []struct {
		reason  string
		limit   string
		pending []*corev1.Pod
		old     *corev1.Pod
		pod     *corev1.Pod
		fits    bool
	}{
		{"there is room beside what is counted", "2", nil, nil, pod("new", "1"), true},
		{"what is counted takes room", "1500m", nil, nil, pod("new", "1"), false},
		{"what is being made takes room", "2", []*corev1.Pod{pod("next", "1")}, nil, pod("new", "1"), false},
		{"what is replaced takes none", "2", nil, pod("old", "1"), pod("old", "2"), true},
		{"nor more than it leaves", "2", nil, pod("old", "1"), pod("old", "3"), false},
	} {
		if err := l.Check(rome(c.limit), c.pending, c.old, c.pod); (err == nil) != c.fits {
			t.Errorf("%s: %v", c.reason, err)
		}
	}
	if !l.Counts(pod("old", "1")) || l.Counts(pod("new", "1")) {
		t.Error("what is counted is not told apart")
	}
}
