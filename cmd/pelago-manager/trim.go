package main

import (
	"maps"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/provider"
)

// trim takes out of a cached object what no room reads: who wrote which field and, of
// what consumers may write, labels and annotations that are not Pelago's,
// and pods that are large. Changes are
// patches, which leave alone what is not in the cache.
func trim(obj any) (any, error) {
	o, ok := obj.(client.Object)
	if !ok {
		return obj, nil
	}
	o.SetManagedFields(nil)
	if !strings.HasPrefix(o.GetNamespace(), v1alpha1.TenantNamespacePrefix) {
		return obj, nil
	}
	switch o.(type) {
	case *v1alpha1.Identity, *v1alpha1.ResourceRequest, *v1alpha1.ResourceOffer, *v1alpha1.NamespaceMap, *v1alpha1.NetworkConfig, *v1alpha1.NetworkRules, *v1alpha1.NetworkPath, *v1alpha1.ShadowPod,
		*coordinationv1.Lease, *metav1.PartialObjectMetadata:
		o.SetLabels(ours(o.GetLabels()))
		o.SetAnnotations(ours(o.GetAnnotations()))
	}
	switch o := obj.(type) {
	case *v1alpha1.ShadowPod:
		provider.Trim(o)
	case *v1alpha1.NetworkRules: // agents read them
		o.Spec = v1alpha1.NetworkRulesSpec{}
	}
	return obj, nil
}

// ours is what has Pelago's prefix, nil if nothing has.
func ours(all map[string]string) map[string]string {
	foreign := func(key, _ string) bool { return !strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") }
	kept := maps.Clone(all)
	if maps.DeleteFunc(kept, foreign); len(kept) == 0 {
		return nil
	}
	return kept
}

// trimPod takes out of a cached pod what no room reads and what is large: a manager
// holds the pods of the whole cluster. Pods that may run at another cluster stay whole,
// as they are carried there. Whoever else needs a whole pod reads it directly.
func trimPod(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	pod.ManagedFields = nil
	if toleratesVirtualNodes(pod) {
		return pod, nil
	}
	pod.Annotations = ours(pod.Annotations)
	pod.Spec.Volumes = nil
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			c := &list[i]
			list[i] = corev1.Container{Name: c.Name, Image: c.Image, Resources: c.Resources, RestartPolicy: c.RestartPolicy, Ports: namedPorts(c.Ports)}
		}
	}
	pod.Spec.EphemeralContainers = nil
	return pod, nil
}

// namedPorts are those that NetworkPolicies may name.
func namedPorts(all []corev1.ContainerPort) (named []corev1.ContainerPort) {
	for _, p := range all {
		if p.Name != "" {
			named = append(named, corev1.ContainerPort{Name: p.Name, Protocol: p.Protocol, ContainerPort: p.ContainerPort})
		}
	}
	return named
}

// toleratesVirtualNodes says whether a pod names our taint, as admission lets pods of
// offloaded namespaces do.
func toleratesVirtualNodes(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == v1alpha1.TaintVirtualNode })
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
