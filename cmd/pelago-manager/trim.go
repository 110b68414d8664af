package main

import (
	corev1 "k8s.io/api/core/v1"
)

// trimPod takes out of a cached pod what no room reads and what is large: a manager
// holds the pods of the whole cluster. Whoever needs a whole pod reads it directly.
func trimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod.ManagedFields = nil
	pod.Annotations = nil
	pod.Spec.Volumes = nil
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			list[i] = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
		}
	}
	pod.Spec.EphemeralContainers = nil
	return pod, nil
}

// trimNode takes out of a cached node what grows with what it runs.
func trimNode(obj any) (any, error) {
	node, ok := obj.(*corev1.Node)
	if !ok {
		return obj, nil
	}
	node.ManagedFields = nil
	node.Status.Images = nil
	node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil
	return node, nil
}
