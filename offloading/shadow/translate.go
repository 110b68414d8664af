package shadow

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// accessVolumes are the names of the volumes by which the API server gives every pod
// the credentials of its service account.
func accessVolumes(volumes []corev1.Volume) map[string]bool {
	names := map[string]bool{}
	for _, v := range volumes {
		if v.Projected == nil || !strings.HasPrefix(v.Name, "kube-api-access-") {
			continue
		}
		if slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil }) {
			names[v.Name] = true
		}
	}
	return names
}

func dropAccessMounts(w *walk, _ string, mounts *[]corev1.VolumeMount) {
	*mounts = without(*mounts, func(m corev1.VolumeMount) bool { return w.access[m.Name] })
}

func keepPlatform(_ *walk, _ string, selector *map[string]string) {
	var platform map[string]string
	for _, key := range []string{corev1.LabelArchStable, corev1.LabelOSStable} {
		if value, ok := (*selector)[key]; ok {
			if platform == nil {
				platform = map[string]string{}
			}
			platform[key] = value
		}
	}
	*selector = platform
}

func keepAntiAffinity(_ *walk, _ string, a **corev1.Affinity) {
	if (*a).PodAntiAffinity == nil {
		*a = nil
	}
}

// shortenGrace bounds how long a pod may take to end.
func shortenGrace(_ *walk, _ string, seconds **int64) {
	*seconds = ptr.To(min(**seconds, int64(LongestGrace.Seconds())))
}

func dropPriorityClass(w *walk, path string, name *string) {
	if strings.HasPrefix(*name, "system-") {
		w.refuse(path, "the priorities of a cluster's own components do not travel; use another class")
	}
	*name = ""
}

func dropRuntimeClass(w *walk, path string, name **string) {
	if **name != v1alpha1.RuntimeClass {
		w.refuse(path, "runtime classes are a cluster's own; leave it out, or use "+v1alpha1.RuntimeClass)
	}
	*name = nil
}

// own says whether a term covers the namespace of the pod. At the provider no other
// namespace is named, so a term without names is about the own one.
func (w *walk) own(term corev1.PodAffinityTerm) bool {
	if w.home == nil {
		return term.NamespaceSelector == nil && len(term.Namespaces) == 0
	}
	if s := term.NamespaceSelector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0 {
		return true
	}
	if len(term.Namespaces) == 0 {
		return term.NamespaceSelector == nil
	}
	return slices.Contains(term.Namespaces, w.home.Namespace)
}

func ownTerms(w *walk, _ string, terms *[]corev1.PodAffinityTerm) {
	*terms = without(*terms, func(t corev1.PodAffinityTerm) bool { return !w.own(t) })
}

func ownWeighted(w *walk, _ string, terms *[]corev1.WeightedPodAffinityTerm) {
	*terms = without(*terms, func(t corev1.WeightedPodAffinityTerm) bool { return !w.own(t.PodAffinityTerm) })
}

// softenSpread merges matchLabelKeys into the selectors, and leaves one constraint per
// topology key: two that differ in whenUnsatisfiable alone would be the same now.
func softenSpread(w *walk, _ string, constraints *[]corev1.TopologySpreadConstraint) {
	seen := map[string]bool{}
	*constraints = without(*constraints, func(c corev1.TopologySpreadConstraint) bool {
		again := seen[c.TopologyKey]
		seen[c.TopologyKey] = true
		return again
	})
	for i := range *constraints {
		c := &(*constraints)[i]
		for _, key := range c.MatchLabelKeys {
			value, ok := w.labels[key]
			if c.LabelSelector == nil || !ok || selects(c.LabelSelector, key) {
				continue
			}
			c.LabelSelector.MatchExpressions = append(c.LabelSelector.MatchExpressions,
				metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
		}
	}
}

func selects(s *metav1.LabelSelector, key string) bool {
	_, ok := s.MatchLabels[key]
	return ok || slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool { return r.Key == key })
}

func anyway(_ *walk, _ string, action *corev1.UnsatisfiableConstraintAction) {
	*action = corev1.ScheduleAnyway
}
