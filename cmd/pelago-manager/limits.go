package main

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/provider"
	"github.com/pelago-dev/pelago/peering/tenant"
)

// limits lets what runs pods for tenants ask what is counted of them.
type limits struct{ usage *tenant.Usage }

var _ provider.Limits = limits{}

// Check says whether a tenant may have pod beside what is counted and what is being made.
func (l limits) Check(t *v1alpha1.Tenant, pending []*corev1.Pod, old, pod *corev1.Pod) error {
	if t.Spec.Limits == nil {
		return nil
	}
	used, complete := l.usage.Used(t.Name)
	if !complete {
		return provider.ErrNotCounted
	}
	for _, p := range pending {
		add(used, p, (*resource.Quantity).Add)
	}
	if old != nil {
		add(used, old, (*resource.Quantity).Sub)
	}
	return tenant.Check(t.Spec.Limits, used, pod)
}

// Counts says whether this very pod is counted.
func (l limits) Counts(pod *corev1.Pod) bool { return l.usage.Counts(pod) }

// add changes a sum by what a pod requests.
func add(sum v1alpha1.ResourceList, pod *corev1.Pod, by func(*resource.Quantity, resource.Quantity)) {
	for name, amount := range tenant.Requests(pod) {
		total := sum[string(name)]
		by(&total, amount)
		sum[string(name)] = total
	}
}
