package cli

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// The most that a cluster selector may have, by the rules of the kind.
const (
	mostTerms        = 16
	mostRequirements = 16
	mostOfValues     = 64
)

// clusterSelector reads selectors as kubectl writes them; each is an alternative. One
// that is empty selects all, so it has to be alone. None at all is no selector.
func clusterSelector(texts []string) (*v1alpha1.ClusterSelector, error) {
	if len(texts) == 0 || len(texts) == 1 && strings.TrimSpace(texts[0]) == "" {
		return nil, nil
	}
	if len(texts) > mostTerms {
		return nil, usage("--cluster-selector is given %d times; at most %d", len(texts), mostTerms)
	}
	selector := &v1alpha1.ClusterSelector{}
	for _, text := range texts {
		requirements, err := labels.ParseToRequirements(text)
		switch {
		case err != nil:
			return nil, usage("--cluster-selector %q: %w; write it like region=eu,tier in (a,b),!edge", text, err)
		case len(requirements) == 0:
			return nil, usage("--cluster-selector is empty beside others; an empty one selects all clusters, so leave out the others or it")
		case len(requirements) > mostRequirements:
			return nil, usage("--cluster-selector %q has %d parts; at most %d", text, len(requirements), mostRequirements)
		}
		var term v1alpha1.ClusterSelectorTerm
		for _, r := range requirements {
			values := r.ValuesUnsorted()
			slices.Sort(values)
			if len(values) > mostOfValues {
				return nil, usage("--cluster-selector: %s has %d values; at most %d", r.Key(), len(values), mostOfValues)
			}
			term.MatchExpressions = append(term.MatchExpressions, v1alpha1.ClusterRequirement{Key: r.Key(), Operator: string(affinityOperator(r.Operator())), Values: values})
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
	}
	return selector, nil
}

// affinityOperator is the operator of a node affinity that means what a label selector's does.
func affinityOperator(o selection.Operator) corev1.NodeSelectorOperator {
	switch o {
	case selection.NotEquals, selection.NotIn:
		return corev1.NodeSelectorOpNotIn
	case selection.Exists:
		return corev1.NodeSelectorOpExists
	case selection.DoesNotExist:
		return corev1.NodeSelectorOpDoesNotExist
	case selection.GreaterThan:
		return corev1.NodeSelectorOpGt
	case selection.LessThan:
		return corev1.NodeSelectorOpLt
	}
	return corev1.NodeSelectorOpIn
}
