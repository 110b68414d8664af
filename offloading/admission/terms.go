package admission

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// maxTerms bounds the terms of a pod's required node affinity: the scheduler looks at
// each for each node.
const maxTerms = 64

// side is where a pod may run: expressions over the labels of nodes that all hold.
type side struct {
	virtual bool
	all     []corev1.NodeSelectorRequirement
}

var (
	isVirtual  = corev1.NodeSelectorRequirement{Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpIn, Values: []string{v1alpha1.TypeVirtualNode}}
	notVirtual = corev1.NodeSelectorRequirement{Key: v1alpha1.LabelType, Operator: corev1.NodeSelectorOpNotIn, Values: []string{v1alpha1.TypeVirtualNode}}
)

// home is the nodes of this cluster.
func home() side { return side{all: []corev1.NodeSelectorRequirement{notVirtual}} }

// remote is the virtual nodes that a selector picks, a side for each of its terms; all if
// there is no selector, and never those of barred peerings.
func remote(selector *v1alpha1.ClusterSelector, barred []string) []side {
	always := []corev1.NodeSelectorRequirement{isVirtual}
	if len(barred) > 0 {
		always = append(always, corev1.NodeSelectorRequirement{Key: v1alpha1.LabelPeering, Operator: corev1.NodeSelectorOpNotIn, Values: barred})
	}
	if selector == nil || len(selector.NodeSelectorTerms) == 0 {
		return []side{{virtual: true, all: always}}
	}
	var sides []side
	for _, term := range selector.NodeSelectorTerms {
		all := slices.Clone(always)
		for _, e := range term.MatchExpressions {
			all = append(all, corev1.NodeSelectorRequirement{Key: e.Key, Operator: corev1.NodeSelectorOperator(e.Operator), Values: slices.Clone(e.Values)})
		}
		sides = append(sides, side{virtual: true, all: all})
	}
	return sides
}

// combine returns terms of which one applies where one of the pod's own terms and one of
// the sides do, on no virtual node to be avoided. Given what it returned it returns the
// same: an own term that implies a side needs no other side.
func combine(own *corev1.NodeSelector, sides []side, avoided []string) []corev1.NodeSelectorTerm {
	terms := []corev1.NodeSelectorTerm{{}}
	if own != nil {
		terms = slices.DeleteFunc(slices.Clone(own.NodeSelectorTerms), matchesNothing)
		if len(terms) == 0 {
			return own.NodeSelectorTerms
		}
	}
	var made, hopeless []corev1.NodeSelectorTerm
	for _, term := range terms {
		fitting := sides
		if at := slices.IndexFunc(sides, func(s side) bool { return implies(term, s) }); at >= 0 {
			fitting = sides[at : at+1]
		}
		for _, s := range fitting {
			joined := join(term, s, avoided)
			if contradicts(term, s) {
				hopeless = append(hopeless, joined)
			} else {
				made = append(made, joined)
			}
		}
	}
	if len(made) == 0 {
		return hopeless[:1]
	}
	return made
}

// matchesNothing: a term without requirements matches no node, and must not begin to by
// what is added to it.
func matchesNothing(t corev1.NodeSelectorTerm) bool {
	return len(t.MatchExpressions) == 0 && len(t.MatchFields) == 0
}

// implies says whether a term demands all that a side does.
func implies(t corev1.NodeSelectorTerm, s side) bool {
	for _, r := range s.all {
		if !has(t.MatchExpressions, r) {
			return false
		}
	}
	return true
}

// contradicts says whether a term speaks of the kind of node such that no node of the
// side can match.
func contradicts(t corev1.NodeSelectorTerm, s side) bool {
	return slices.ContainsFunc(t.MatchExpressions, func(r corev1.NodeSelectorRequirement) bool {
		if r.Key != v1alpha1.LabelType {
			return false
		}
		named := slices.Contains(r.Values, v1alpha1.TypeVirtualNode)
		switch r.Operator {
		case corev1.NodeSelectorOpIn:
			return s.virtual && !named || !s.virtual && named && len(r.Values) == 1
		case corev1.NodeSelectorOpNotIn:
			return s.virtual && named
		case corev1.NodeSelectorOpDoesNotExist:
			return s.virtual
		}
		return false
	})
}

// join is a term and a side, and not the nodes to be avoided. What the term has already
// is not added again.
func join(t corev1.NodeSelectorTerm, s side, avoided []string) corev1.NodeSelectorTerm {
	joined := corev1.NodeSelectorTerm{MatchExpressions: slices.Clone(t.MatchExpressions), MatchFields: slices.Clone(t.MatchFields)}
	for _, r := range s.all {
		if !has(joined.MatchExpressions, r) {
			joined.MatchExpressions = append(joined.MatchExpressions, r)
		}
	}
	if !s.virtual {
		return joined
	}
	for _, node := range avoided {
		if not := except(node); !has(joined.MatchFields, not) {
			joined.MatchFields = append(joined.MatchFields, not)
		}
	}
	return joined
}

func has(all []corev1.NodeSelectorRequirement, r corev1.NodeSelectorRequirement) bool {
	return slices.ContainsFunc(all, func(other corev1.NodeSelectorRequirement) bool {
		return r.Key == other.Key && r.Operator == other.Operator && slices.Equal(r.Values, other.Values)
	})
}

func sameTerms(a, b []corev1.NodeSelectorTerm) bool { return equality.Semantic.DeepEqual(a, b) }
