package tenant

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	scheduling "k8s.io/component-helpers/resource"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// declared are the resources that a container uses without having asked for them. Any
// other resource it has only if it asks, so there is nothing to demand.
var declared = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// Requests returns what a pod requests in the arithmetic of kube-scheduler: side
// cars, init containers, overhead, pod-level resources and resizing in place
// included, and one of the resource "pods". The pod is as the API server stores it,
// that is with the API's defaults.
func Requests(pod *corev1.Pod) corev1.ResourceList {
	sum := scheduling.PodRequests(pod, scheduling.PodResourcesOptions{
		UseStatusResources: true,
		InPlacePodLevelResourcesVerticalScalingEnabled: true,
	})
	sum[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	return sum
}

// Check says whether a tenant that uses used may also have pod: nil if so, else an
// error that names the container or the pod, the field, and the remedy. The pod need
// not have the API's defaults yet, but must have the overhead of its runtime class.
// Limits that are nil allow everything.
func Check(limits *v1alpha1.TenantLimits, used v1alpha1.ResourceList, pod *corev1.Pod) error {
	if limits == nil || len(limits.Resources) == 0 {
		return nil
	}
	pod = defaulted(pod)
	if limits.Enforcement == v1alpha1.EnforcementSoft || limits.Enforcement == v1alpha1.EnforcementHard {
		hard := limits.Enforcement == v1alpha1.EnforcementHard
		for _, name := range declared {
			if _, limited := limits.Resources[string(name)]; !limited {
				continue
			}
			if err := checkDeclared(pod, name, hard); err != nil {
				return err
			}
		}
	}
	return checkSum(limits.Resources, used, Requests(pod))
}

// checkSum finds the first resource, by name, of which there is not enough left. A
// pod that asks for nothing of a resource is not refused because of it.
func checkSum(limits, used v1alpha1.ResourceList, asked corev1.ResourceList) error {
	for _, name := range slices.Sorted(maps.Keys(limits)) {
		limit, want := limits[name], asked[corev1.ResourceName(name)]
		if want.Sign() <= 0 {
			continue
		}
		total := used[name].DeepCopy()
		total.Add(want)
		if total.Cmp(limit) > 0 {
			have := used[name]
			return fmt.Errorf("the pod requests %s of %s, and the tenant uses %s of its limit of %s; "+
				"request less, remove other pods, or ask the provider to raise spec.limits.resources of the tenant",
				want.String(), name, have.String(), limit.String())
		}
	}
	return nil
}

// checkDeclared demands a request above zero, and if hard a limit equal to it, of one
// resource on the pod as a whole or on each of its containers. Zero is no answer: for
// a limit it means none.
func checkDeclared(pod *corev1.Pod, name corev1.ResourceName, hard bool) error {
	if whole := pod.Spec.Resources; whole != nil && scheduling.IsSupportedPodLevelResource(name) {
		request, limit := whole.Requests[name], whole.Limits[name]
		if request.Sign() > 0 && (!hard || limit.Cmp(request) == 0) {
			return nil
		}
		if hard && limit.Sign() > 0 {
			return fmt.Errorf("spec.resources: limits.%s is %s and requests.%s is %s, and the tenant's limits are Hard; set both to one value",
				name, limit.String(), name, request.String())
		}
	}
	for i, c := range pod.Spec.InitContainers {
		if err := checkContainer(fmt.Sprintf("spec.initContainers[%d] %q", i, c.Name), c.Resources, name, hard); err != nil {
			return err
		}
	}
	for i, c := range pod.Spec.Containers {
		if err := checkContainer(fmt.Sprintf("spec.containers[%d] %q", i, c.Name), c.Resources, name, hard); err != nil {
			return err
		}
	}
	return nil
}

func checkContainer(where string, r corev1.ResourceRequirements, name corev1.ResourceName, hard bool) error {
	request, limit := r.Requests[name], r.Limits[name]
	switch {
	case request.Sign() <= 0:
		return fmt.Errorf("%s: resources.requests.%s is not set, and the tenant's limits demand it; set it above zero", where, name)
	case hard && limit.Cmp(request) != 0:
		return fmt.Errorf("%s: resources.limits.%s is %s and requests.%s is %s, and the tenant's limits are Hard; set both to one value",
			where, name, limit.String(), name, request.String())
	}
	return nil
}

// defaulted returns the pod with the requests that the API server will derive from
// its limits, so that nothing grows between this check and the scheduler's sum.
func defaulted(pod *corev1.Pod) *corev1.Pod {
	pod = pod.DeepCopy()
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			r := &containers[i].Resources
			r.Requests = withDefaults(r.Requests, r.Limits, nil)
		}
	}
	if whole := pod.Spec.Resources; whole != nil && len(whole.Limits) > 0 {
		sum := scheduling.AggregateContainerRequests(pod, scheduling.PodResourcesOptions{})
		supported := func(name corev1.ResourceName) bool { return scheduling.IsSupportedPodLevelResource(name) }
		whole.Requests = withDefaults(whole.Requests, only(sum, corev1.ResourceCPU, corev1.ResourceMemory), supported)
		whole.Requests = withDefaults(whole.Requests, whole.Limits, supported)
	}
	return pod
}

// withDefaults adds what is missing in list from defaults.
func withDefaults(list, defaults corev1.ResourceList, wanted func(corev1.ResourceName) bool) corev1.ResourceList {
	for name, quantity := range defaults {
		if _, there := list[name]; there || (wanted != nil && !wanted(name)) {
			continue
		}
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[name] = quantity.DeepCopy()
	}
	return list
}

// only returns the named resources of a list.
func only(list corev1.ResourceList, names ...corev1.ResourceName) corev1.ResourceList {
	picked := corev1.ResourceList{}
	for _, name := range names {
		if quantity, there := list[name]; there {
			picked[name] = quantity
		}
	}
	return picked
}
