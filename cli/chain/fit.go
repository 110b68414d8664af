package chain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// NodeFacts is what is known of a virtual node.
type NodeFacts struct {
	// Node is the node itself.
	Node corev1.Node
	// Tenant is what the provider behind it calls this cluster, empty if that is not known.
	Tenant string
	// Shapes are those of the offer behind it; none if it is not known.
	Shapes []v1alpha1.NodeShape
	// Refused is that the provider sent pods of the same owner home; nil if it did not.
	Refused *v1alpha1.Refusal
	// Withheld is why the provider gives the request behind it no more; nil if it gives what it can.
	Withheld *metav1.Condition
	// Used is what pods that are bound to it ask for; nil if that is not known.
	Used v1alpha1.ResourceList
}

// peering is the name of the peering behind the node.
func (n NodeFacts) peering() string { return n.Node.Labels[v1alpha1.LabelPeering] }

// at is the node in remedies that concern a namespace.
func (n NodeFacts) at(namespace string) At {
	return At{Name: n.peering(), Tenant: n.Tenant, Namespace: namespace}
}

// Requests is what a pod counts for in the scheduler's arithmetic, itself included.
func Requests(pod *corev1.Pod) v1alpha1.ResourceList {
	list := v1alpha1.ResourceList{"pods": *apiresource.NewQuantity(1, apiresource.DecimalSI)}
	for name, quantity := range resource.PodRequests(pod, resource.PodResourcesOptions{}) {
		if !quantity.IsZero() {
			list[string(name)] = quantity
		}
	}
	return list
}

// verdict is whether a virtual node could take a pod, and if not, the reason with what to do.
type verdict struct {
	takes          bool
	words, remedy  string
	passes, strict bool // it goes away by itself; the pod's owner wanted it so
}

// judge says whether a virtual node could take a pod of an offloading. It goes from what
// lasts to what passes.
func judge(pod *corev1.Pod, o *v1alpha1.NamespaceOffloading, n NodeFacts, now time.Time) verdict {
	if kube.Claim(pod) != "" {
		return verdict{strict: true, words: "volume claims do not travel yet"}
	}
	if selector := nodeSelector(o.Spec.ClusterSelector); selector != nil {
		if matcher, err := nodeaffinity.NewNodeSelector(selector); err != nil || !matcher.Match(&n.Node) {
			return verdict{words: "the namespace's selector leaves it out: " + SelectorText(o.Spec.ClusterSelector),
				remedy: fmt.Sprintf("to change it: pelago offload namespace %s --cluster-selector …", o.Namespace)}
		}
	}
	if n.Refused != nil && n.Refused.Holds(n.Node.CreationTimestamp, now) {
		return verdict{passes: true, words: refusedWords(n, now), remedy: n.at(pod.Namespace).Remedy(n.Refused.Reason)}
	}
	small := tooSmall(pod, n)
	if words := cmp.Or(small, full(pod, n)); words != "" {
		switch why := n.Withheld; {
		case why != nil:
			return verdict{passes: true, words: fmt.Sprintf("%s; its provider says %s: %s", words, why.Reason, Plain(why.Reason, why.Message)), remedy: n.at(pod.Namespace).Remedy(why.Reason)}
		case small == "":
			return verdict{passes: true, words: words, remedy: "wait until pods there end, or ask its owner for more (spec.limits of its Tenant); what it has: pelago status " + n.peering()}
		}
		return verdict{words: words, remedy: "ask for less in the pod, or see what the provider has: pelago status " + n.peering()}
	}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(&n.Node); err != nil || !matches {
		return verdict{strict: true, words: "the pod's own nodeSelector or node affinity leaves it out"}
	}
	if !tolerates(pod, n.Node.Spec.Taints) {
		return verdict{words: "the pod does not tolerate its taints"}
	}
	if n.Node.Spec.Unschedulable {
		return verdict{words: "it is cordoned", remedy: "kubectl uncordon " + n.Node.Name}
	}
	if c := nodeReady(&n.Node); c == nil || c.Status != corev1.ConditionTrue {
		return verdict{passes: true, words: "it is not ready" + because(c), remedy: nodeRemedy(c, n.at(pod.Namespace))}
	}
	return verdict{takes: true, words: "it could take the pod"}
}

func refusedWords(n NodeFacts, now time.Time) string {
	words := fmt.Sprintf("pods of the same controller were sent home from it, so that they avoid it for %s", n.Refused.Until.Sub(now).Round(time.Second))
	if n.Refused.Reason != "" {
		words += " (" + n.Refused.Reason + ")"
	}
	return words
}

// tooSmall says what a pod asks for and the largest free place behind a virtual node lacks;
// it is empty if the pod fits or nothing is known.
func tooSmall(pod *corev1.Pod, n NodeFacts) string {
	asked := Requests(pod)
	whole := v1alpha1.ResourceList{}
	for name, quantity := range n.Node.Status.Allocatable {
		whole[string(name)] = quantity
	}
	if lacking := lacks(asked, whole); len(whole) > 0 && len(lacking) > 0 {
		return "it is too small: " + lackText(lacking, asked, whole, "it has")
	}
	var best []string
	var largest v1alpha1.ResourceList
	for _, shape := range n.Shapes {
		for _, place := range shape.Largest {
			lacking := lacks(asked, place)
			if len(lacking) == 0 {
				return ""
			}
			if largest == nil || len(lacking) < len(best) {
				best, largest = lacking, place
			}
		}
	}
	if largest == nil {
		return ""
	}
	return "no node behind it has room for this pod: " + lackText(best, asked, largest, "the largest place has")
}

// full says what a pod asks for and other pods on a virtual node have taken; it is empty if there is room or
// nothing is known.
func full(pod *corev1.Pod, n NodeFacts) string {
	if n.Used == nil || len(n.Node.Status.Allocatable) == 0 {
		return ""
	}
	free := v1alpha1.ResourceList{}
	for name, quantity := range n.Node.Status.Allocatable {
		left := quantity.DeepCopy()
		left.Sub(n.Used[string(name)])
		if left.Sign() < 0 {
			left.Set(0)
		}
		free[string(name)] = left
	}
	asked := Requests(pod)
	lacking := lacks(asked, free)
	if len(lacking) == 0 {
		return ""
	}
	return "it is full: " + lackText(lacking, asked, free, "free there is")
}

// lacks are the resources of which less is there than asked for.
func lacks(asked, there v1alpha1.ResourceList) []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		if wanted := asked[name]; wanted.Cmp(there[name]) > 0 {
			names = append(names, name)
		}
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	return names
}

func lackText(names []string, asked, there v1alpha1.ResourceList, has string) string {
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("it asks for %s %s, %s %s", Amount(name, asked[name]), name, has, Amount(name, there[name])))
	}
	return strings.Join(parts, "; ")
}

// tolerates reports whether a pod tolerates all taints that keep pods off.
func tolerates(pod *corev1.Pod, taints []corev1.Taint) bool {
	for _, taint := range taints {
		if taint.Effect == corev1.TaintEffectPreferNoSchedule || taint.Key == corev1.TaintNodeUnschedulable ||
			taint.Key == corev1.TaintNodeNotReady || taint.Key == corev1.TaintNodeUnreachable {
			continue // told apart by what stands behind them
		}
		if !slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool {
			return t.ToleratesTaint(klog.Background(), &taint, true)
		}) {
			return false
		}
	}
	return true
}

func nodeReady(n *corev1.Node) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == corev1.NodeReady {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

func because(c *corev1.NodeCondition) string {
	switch {
	case c == nil:
		return ": nobody has said anything of it yet"
	case c.Message != "":
		return ": " + c.Reason + ": " + Plain(c.Reason, c.Message)
	case c.Reason != "":
		return ": " + c.Reason
	}
	return ""
}

// nodeRemedy is what to do about a virtual node that is not ready.
func nodeRemedy(c *corev1.NodeCondition, at At) string {
	if c != nil {
		if remedy := at.Remedy(c.Reason); remedy != "" {
			return remedy
		}
	}
	return "see why: pelago explain peering " + at.Name
}
