package namespace

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// Bounds on what a hint repeats of labels.
const (
	hintNodes  = 4
	hintLabels = 12
	maxHint    = 1024
)

// selected names the peerings of which a virtual node matches a selector; nil matches
// all. The error names the field that is wrong.
func selected(s *v1alpha1.ClusterSelector, nodes []corev1.Node) (map[string]bool, error) {
	found := map[string]bool{}
	if s == nil {
		for i := range nodes {
			found[nodes[i].Labels[v1alpha1.LabelPeering]] = true
		}
		return found, nil
	}
	matcher, err := nodeaffinity.NewNodeSelector(nodeSelector(s))
	if err != nil {
		return nil, fmt.Errorf("spec.clusterSelector cannot be used; correct it: %.300s", oneLine(err.Error(), 300))
	}
	for i := range nodes {
		if matcher.Match(&nodes[i]) {
			found[nodes[i].Labels[v1alpha1.LabelPeering]] = true
		}
	}
	return found, nil
}

func nodeSelector(s *v1alpha1.ClusterSelector) *corev1.NodeSelector {
	out := &corev1.NodeSelector{}
	for _, term := range s.NodeSelectorTerms {
		t := corev1.NodeSelectorTerm{}
		for _, e := range term.MatchExpressions {
			t.MatchExpressions = append(t.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: e.Key, Operator: corev1.NodeSelectorOperator(e.Operator), Values: e.Values})
		}
		out.NodeSelectorTerms = append(out.NodeSelectorTerms, t)
	}
	return out
}

// hint says what to do when no virtual node is selected.
func hint(nodes []corev1.Node) string {
	if len(nodes) == 0 {
		return "there is no virtual node yet: peer with a cluster (pelago peer), and look at its offer with kubectl get resourceoffers -A"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "spec.clusterSelector matches none of %d virtual nodes; change it, or leave it out to select all. Their labels:", len(nodes))
	for i := range nodes[:min(len(nodes), hintNodes)] {
		n := &nodes[i]
		var labels []string
		for key, value := range n.Labels {
			if key != corev1.LabelHostname && !strings.HasPrefix(key, "node-role.") && !strings.HasPrefix(key, "node.kubernetes.io/") && !strings.HasPrefix(key, "beta.") {
				labels = append(labels, key+"="+value)
			}
		}
		slices.Sort(labels)
		fmt.Fprintf(&text, " %s: %s;", n.Name, strings.Join(labels[:min(len(labels), hintLabels)], ", "))
	}
	if len(nodes) > hintNodes {
		text.WriteString(" and more (kubectl get nodes --show-labels -l " + v1alpha1.LabelType + "=" + v1alpha1.TypeVirtualNode + ")")
	}
	return oneLine(strings.TrimSuffix(text.String(), ";"), maxHint)
}
