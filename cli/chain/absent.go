package chain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// startsWithin is how long a pod usually takes to start.
const startsWithin = time.Minute

// absentRemedy is what to do about a pod at a provider that does not start and refers to
// objects of home; it is empty if it refers to none.
func absentRemedy(f PodFacts, n NodeFacts) string {
	names := references(&f.Pod.Spec)
	if len(names) == 0 {
		return ""
	}
	there := "the mapped namespace"
	if f.Mapped != nil && f.Mapped.Name != "" {
		there = "namespace " + f.Mapped.Name
	}
	text := strings.Join(names[:min(len(names), 5)], ", ")
	if len(names) > 5 {
		text += ", …"
	}
	return fmt.Sprintf("perhaps %s is missing at %s, in %s: see whether it is there at home, and its events (NotReflected)", text, n.peering(), there)
}

// references are the ConfigMaps and Secrets that have to be there before a pod starts.
func references(spec *corev1.PodSpec) []string {
	var names []string
	note := func(kind, name string, optional *bool) {
		if text := kind + " " + name; name != "kube-root-ca.crt" && (optional == nil || !*optional) && !slices.Contains(names, text) {
			names = append(names, text)
		}
	}
	ofVolumes(spec.Volumes, note)
	ofContainers(slices.Concat(spec.InitContainers, spec.Containers), note)
	return names
}

func ofVolumes(volumes []corev1.Volume, note func(kind, name string, optional *bool)) {
	for _, v := range volumes {
		switch {
		case v.ConfigMap != nil:
			note("ConfigMap", v.ConfigMap.Name, v.ConfigMap.Optional)
		case v.Secret != nil:
			note("Secret", v.Secret.SecretName, v.Secret.Optional)
		case v.Projected != nil && !strings.HasPrefix(v.Name, "kube-api-access-"): // that one is left at home
			for _, source := range v.Projected.Sources {
				if source.ConfigMap != nil {
					note("ConfigMap", source.ConfigMap.Name, source.ConfigMap.Optional)
				}
				if source.Secret != nil {
					note("Secret", source.Secret.Name, source.Secret.Optional)
				}
			}
		}
	}
}

func ofContainers(containers []corev1.Container, note func(kind, name string, optional *bool)) {
	for _, c := range containers {
		for _, from := range c.EnvFrom {
			if from.ConfigMapRef != nil {
				note("ConfigMap", from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
			}
			if from.SecretRef != nil {
				note("Secret", from.SecretRef.Name, from.SecretRef.Optional)
			}
		}
		for _, env := range c.Env {
			if env.ValueFrom == nil {
				continue
			}
			if ref := env.ValueFrom.ConfigMapKeyRef; ref != nil {
				note("ConfigMap", ref.Name, ref.Optional)
			}
			if ref := env.ValueFrom.SecretKeyRef; ref != nil {
				note("Secret", ref.Name, ref.Optional)
			}
		}
	}
}
