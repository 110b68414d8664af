package chain

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// Strategy is where the pods of an offloading may run; the default if it says nothing.
func Strategy(o *v1alpha1.NamespaceOffloading) v1alpha1.PodOffloadingStrategy {
	if o.Spec.PodOffloadingStrategy == "" {
		return v1alpha1.PodsLocalAndRemote
	}
	return o.Spec.PodOffloadingStrategy
}

// strategyOf is where one pod may run: its RuntimeClass counts for more than the strategy, and so does a
// claim of a volume if it may run here at all.
func strategyOf(pod *corev1.Pod, o *v1alpha1.NamespaceOffloading) v1alpha1.PodOffloadingStrategy {
	if class := pod.Spec.RuntimeClassName; class != nil && *class == v1alpha1.RuntimeClass {
		return v1alpha1.PodsRemote
	}
	if Strategy(o) != v1alpha1.PodsRemote && kube.Claim(pod) != "" {
		return v1alpha1.PodsLocal
	}
	return Strategy(o)
}

// exempt says why a pod gets no terms, empty if it gets them like all others.
func exempt(pod *corev1.Pod) string {
	if _, static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static {
		return "a node's own static pods are left as they are"
	}
	for _, owner := range pod.OwnerReferences {
		if owner.Kind == "DaemonSet" && owner.Controller != nil && *owner.Controller {
			return "pods of DaemonSets are left as they are"
		}
	}
	return ""
}

// Outdated says what a pod may do that the terms of its namespace do not allow now, or
// what it may not do though they do: it was made before them, since the terms of a pod are
// written once, when it is made. It is empty if the terms hold, and for pods that have
// ended or that get no terms.
func Outdated(pod *corev1.Pod, o *v1alpha1.NamespaceOffloading) string {
	if exempt(pod) != "" || ended(pod) || !pod.DeletionTimestamp.IsZero() {
		return ""
	}
	if kube.Claim(pod) != "" && (pod.Spec.NodeName != "" || strategyOf(pod, o) == v1alpha1.PodsRemote) {
		return "" // it can go nowhere else, and one made now would be no other, or not be made
	}
	tolerates := slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == v1alpha1.TaintVirtualNode })
	terms := requiredTerms(pod)
	switch strategyOf(pod, o) {
	case v1alpha1.PodsLocal:
		if tolerates {
			return "it may run at other clusters"
		}
		return ""
	case v1alpha1.PodsRemote:
		if pod.Spec.NodeSelector[v1alpha1.LabelType] != v1alpha1.TypeVirtualNode && slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool { return !says(t, corev1.NodeSelectorOpIn) }) {
			return "it may run in this cluster"
		}
	}
	if !tolerates {
		return "it may not run at other clusters"
	}
	for _, t := range terms {
		if !says(t, corev1.NodeSelectorOpNotIn) && !selectedBy(t, o.Spec.ClusterSelector) {
			return "it may run at clusters that are not selected"
		}
	}
	return ""
}

// requiredTerms are the alternatives of a pod's node affinity that a node can match: one
// that asks for nothing if it has none.
func requiredTerms(pod *corev1.Pod) []corev1.NodeSelectorTerm {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		all := slices.Clone(a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
		return slices.DeleteFunc(all, func(t corev1.NodeSelectorTerm) bool { return len(t.MatchExpressions)+len(t.MatchFields) == 0 })
	}
	return []corev1.NodeSelectorTerm{{}}
}

// says reports whether a term wants (In) or excludes (NotIn) virtual nodes.
func says(t corev1.NodeSelectorTerm, operator corev1.NodeSelectorOperator) bool {
	return slices.ContainsFunc(t.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
		return r.Key == v1alpha1.LabelType && r.Operator == operator && slices.Contains(r.Values, v1alpha1.TypeVirtualNode)
	})
}

// selectedBy reports whether a term is at least as strict as one of the selector's.
func selectedBy(t corev1.NodeSelectorTerm, selector *v1alpha1.ClusterSelector) bool {
	if selector == nil || len(selector.NodeSelectorTerms) == 0 {
		return true
	}
	return slices.ContainsFunc(selector.NodeSelectorTerms, func(wanted v1alpha1.ClusterSelectorTerm) bool {
		return !slices.ContainsFunc(wanted.MatchExpressions, func(w v1alpha1.ClusterRequirement) bool {
			return !slices.ContainsFunc(t.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool { return same(r, w) })
		})
	})
}

func same(r corev1.NodeSelectorRequirement, w v1alpha1.ClusterRequirement) bool {
	mine, theirs := slices.Clone(r.Values), slices.Clone(w.Values)
	slices.Sort(mine)
	slices.Sort(theirs)
	return r.Key == w.Key && string(r.Operator) == w.Operator && slices.Equal(mine, theirs)
}

// nodeSelector is a cluster selector as Kubernetes evaluates it; nil selects all.
func nodeSelector(selector *v1alpha1.ClusterSelector) *corev1.NodeSelector {
	if selector == nil || len(selector.NodeSelectorTerms) == 0 {
		return nil
	}
	all := &corev1.NodeSelector{}
	for _, term := range selector.NodeSelectorTerms {
		var t corev1.NodeSelectorTerm
		for _, r := range term.MatchExpressions {
			t.MatchExpressions = append(t.MatchExpressions, corev1.NodeSelectorRequirement{Key: r.Key, Operator: corev1.NodeSelectorOperator(r.Operator), Values: r.Values})
		}
		all.NodeSelectorTerms = append(all.NodeSelectorTerms, t)
	}
	return all
}

// SelectorText writes a selector as people type it: terms that are alternatives, with
// "or" between them.
func SelectorText(selector *v1alpha1.ClusterSelector) string {
	if selector == nil || len(selector.NodeSelectorTerms) == 0 {
		return "all clusters"
	}
	var terms []string
	for _, term := range selector.NodeSelectorTerms {
		var parts []string
		for _, r := range term.MatchExpressions {
			parts = append(parts, requirementText(r))
		}
		terms = append(terms, strings.Join(parts, ","))
	}
	return strings.Join(terms, " or ")
}

// NoMatch says that no virtual node is selected.
func NoMatch(selector *v1alpha1.ClusterSelector) string {
	if selector == nil || len(selector.NodeSelectorTerms) == 0 {
		return "there is no virtual node"
	}
	return "no virtual node matches " + SelectorText(selector)
}

func requirementText(r v1alpha1.ClusterRequirement) string {
	values := strings.Join(r.Values, ",")
	switch corev1.NodeSelectorOperator(r.Operator) {
	case corev1.NodeSelectorOpExists:
		return r.Key
	case corev1.NodeSelectorOpDoesNotExist:
		return "!" + r.Key
	case corev1.NodeSelectorOpGt:
		return r.Key + ">" + values
	case corev1.NodeSelectorOpLt:
		return r.Key + "<" + values
	case corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 1 {
			return r.Key + "!=" + values
		}
		return r.Key + " notin (" + values + ")"
	}
	if len(r.Values) == 1 {
		return r.Key + "=" + values
	}
	return r.Key + " in (" + values + ")"
}

// ended reports whether a pod has run to its end.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
