package shadow

import (
	corev1 "k8s.io/api/core/v1"
	scheduling "k8s.io/component-helpers/resource"
)

// What a status says of resources counts: quotas, and the limits of tenants whose pods go
// onward, take the largest of the spec and of what the status says, and go by the status
// alone while a resize is infeasible. So a provider has a say only in what a resize of
// home's leaves open: the amount of each resource is between that of the spec and that which
// home's status has already, which is the spec's if it has none.

// within is what is believed of amounts that are said: of all names that spec has, and of no others.
func within(spec, was, said corev1.ResourceList) corev1.ResourceList {
	var next corev1.ResourceList
	for name, want := range spec {
		had, ok := was[name]
		if !ok {
			had = want
		}
		low, high := want, had
		if low.Cmp(high) > 0 {
			low, high = high, low
		}
		q, ok := said[name]
		switch {
		case !ok:
			q = had
		case q.Cmp(low) < 0:
			q = low
		case q.Cmp(high) > 0:
			q = high
		}
		if next == nil {
			next = corev1.ResourceList{}
		}
		next[name] = q.DeepCopy()
	}
	return next
}

// requirementsWithin is within of requests and limits, and of both if anything is said.
func requirementsWithin(spec corev1.ResourceRequirements, was, said *corev1.ResourceRequirements) *corev1.ResourceRequirements {
	if said == nil {
		return nil
	}
	if was == nil {
		was = &corev1.ResourceRequirements{}
	}
	return &corev1.ResourceRequirements{Requests: within(spec.Requests, was.Requests, said.Requests), Limits: within(spec.Limits, was.Limits, said.Limits)}
}

func allocatedWithin(spec, was, said corev1.ResourceList) corev1.ResourceList {
	if len(said) == 0 {
		return nil
	}
	return within(spec, was, said)
}

// size bounds what the status of a container says of its resources. It says something while a
// resize is pending, as a container without that could count as nothing.
func (b *believer) size(c *corev1.ContainerStatus, spec corev1.ResourceRequirements, was *corev1.ContainerStatus) {
	if was == nil {
		was = &corev1.ContainerStatus{}
	}
	if c.Resources == nil && b.pending {
		c.Resources = &corev1.ResourceRequirements{}
	}
	c.Resources = requirementsWithin(spec, was.Resources, c.Resources)
	c.AllocatedResources = allocatedWithin(spec.Requests, was.AllocatedResources, c.AllocatedResources)
}

// sizePod is the same of the pod as a whole, of which kubelets say what all of its containers have
// together, as far as its spec does not say it itself.
func sizePod(next, reported *corev1.PodStatus, home *corev1.Pod) {
	spec, was := podSize(home), &home.Status
	next.Resources = requirementsWithin(spec, was.Resources, reported.Resources)
	next.AllocatedResources = allocatedWithin(spec.Requests, was.AllocatedResources, reported.AllocatedResources)
}

// podSize is what a pod's spec says of the pod as a whole.
func podSize(pod *corev1.Pod) corev1.ResourceRequirements {
	o := scheduling.PodResourcesOptions{ExcludeOverhead: true}
	return corev1.ResourceRequirements{Requests: scheduling.PodRequests(pod, o), Limits: scheduling.PodLimits(pod, o)}
}

// resizing says whether a status shows that a resize is not done: some amount is not that of the spec.
// Each container has to have a status, as of others nothing counts while a resize is infeasible.
func resizing(home *corev1.Pod, s *corev1.PodStatus) bool {
	open := !holdsBoth(s.Resources, podSize(home))
	for _, of := range []struct {
		spec []corev1.Container
		list []corev1.ContainerStatus
	}{{home.Spec.InitContainers, s.InitContainerStatuses}, {home.Spec.Containers, s.ContainerStatuses}} {
		for i := range of.spec {
			c := named(of.list, of.spec[i].Name)
			if c == nil {
				return false
			}
			open = open || !holdsBoth(c.Resources, of.spec[i].Resources)
		}
	}
	return open
}

// holdsBoth says whether what is told, if anything is, has the amounts of a spec.
func holdsBoth(told *corev1.ResourceRequirements, spec corev1.ResourceRequirements) bool {
	return told == nil || holds(told.Requests, spec.Requests) && holds(told.Limits, spec.Limits)
}
