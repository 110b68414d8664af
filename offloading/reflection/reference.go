package reflection

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/offloading/content"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// carried are the kinds that travel.
var carried = []string{kindSecret, kindConfigMap, kindService, kindSlice, kindIngress, kindBudget, kindPolicy}

const (
	kindSecret    = "Secret"
	kindConfigMap = "ConfigMap"
	kindService   = "Service"
	kindSlice     = "EndpointSlice"
	kindIngress   = "Ingress"
	kindBudget    = "PodDisruptionBudget"
	kindPolicy    = "NetworkPolicy"
)

// kindOf finds a kind that travels.
func kindOf(name string) (content.Kind, bool) {
	k, ok := content.Kinds[name]
	return k, ok && slices.Contains(carried, name)
}

// reference is what a pod says of an object that it needs.
type reference struct {
	kind, name string
	// optional: the pod starts without it.
	optional bool
}

// references are the objects that a pod needs where it runs, each once; none if the pod is
// not one that may run at another cluster.
func references(pod *corev1.Pod) []reference {
	if pod.Spec.NodeName == "" || !tolerates(pod) {
		return nil
	}
	var all referred
	if pod.UID != "" && len(shadow.Tokens(&pod.Spec)) > 0 {
		all = append(all, reference{kind: kindSecret, name: v1alpha1.TokenSecret(string(pod.UID))})
	}
	for _, r := range pod.Spec.ImagePullSecrets {
		all.add(kindSecret, r.Name, nil)
	}
	for i := range pod.Spec.Volumes {
		all.volume(&pod.Spec.Volumes[i].VolumeSource)
	}
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		all.environment(c.EnvFrom, c.Env)
	}
	for _, c := range pod.Spec.EphemeralContainers {
		all.environment(c.EnvFrom, c.Env)
	}
	return all
}

// referred gathers references.
type referred []reference

func (all *referred) add(kind, name string, optional *bool) {
	if _, tokens := tokensOf(v1alpha1.HomeObject{Kind: kind, Name: name}); tokens || name == "" || slices.Contains(content.Kinds[kind].Never, name) {
		return // a Secret with the name of somebody's tokens is no pod's to ask for
	}
	soft := optional != nil && *optional
	for i := range *all {
		if r := &(*all)[i]; r.kind == kind && r.name == name {
			r.optional = r.optional && soft
			return
		}
	}
	*all = append(*all, reference{kind, name, soft})
}

func (all *referred) volume(v *corev1.VolumeSource) {
	if s := v.Secret; s != nil {
		all.add(kindSecret, s.SecretName, s.Optional)
	}
	if m := v.ConfigMap; m != nil {
		all.add(kindConfigMap, m.Name, m.Optional)
	}
	if v.Projected == nil {
		return
	}
	for _, source := range v.Projected.Sources {
		if s := source.Secret; s != nil {
			all.add(kindSecret, s.Name, s.Optional)
		}
		if m := source.ConfigMap; m != nil {
			all.add(kindConfigMap, m.Name, m.Optional)
		}
	}
}

func (all *referred) environment(from []corev1.EnvFromSource, env []corev1.EnvVar) {
	for _, source := range from {
		if s := source.SecretRef; s != nil {
			all.add(kindSecret, s.Name, s.Optional)
		}
		if m := source.ConfigMapRef; m != nil {
			all.add(kindConfigMap, m.Name, m.Optional)
		}
	}
	for _, e := range env {
		if e.ValueFrom == nil {
			continue
		}
		if s := e.ValueFrom.SecretKeyRef; s != nil {
			all.add(kindSecret, s.Name, s.Optional)
		}
		if m := e.ValueFrom.ConfigMapKeyRef; m != nil {
			all.add(kindConfigMap, m.Name, m.Optional)
		}
	}
}

// optional says whether a pod starts without an object.
func optional(pod *corev1.Pod, home v1alpha1.HomeObject) bool {
	return !slices.ContainsFunc(references(pod), func(r reference) bool { return r.kind == home.Kind && r.name == home.Name && !r.optional })
}
