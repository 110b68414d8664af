package admission

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/resource"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
	"github.com/pelago-dev/pelago/offloading/shadow"
)

// AnnotationAvoids on a pod names the virtual nodes that its terms keep it off although
// its own terms and its namespace's would allow them. By it the exclusions of admission
// are told from the user's own.
const AnnotationAvoids = "pelago.dev/avoids"

// maxAvoids bounds the annotation: a comma and the longest name for each.
const maxAvoids = maxAvoided * 254

// Choice is where a pod could go if it were made now.
type Choice struct {
	// Home says that it may run in this cluster, and that a node here is one that its own terms allow.
	Home bool
	// Open are the virtual nodes that take pods, have room for it, and have not refused its
	// like lately; sorted.
	Open []string
	// Avoided are the virtual nodes that its terms would exclude.
	Avoided []string
	// Until is when the first refusal by one of its nodes is over; zero if there is none.
	Until time.Time
}

// Elsewhere says whether there is another place than this node.
func (c Choice) Elsewhere(node string) bool {
	return c.Home || slices.ContainsFunc(c.Open, func(open string) bool { return open != node })
}

// Choices answers where pods could go, as admission would decide now.
type Choices struct{ facts *gatherer }

// NewChoices reads from the manager's cache, and live what that does not have yet.
func NewChoices(cache, live client.Reader, c clock.PassiveClock) *Choices {
	return &Choices{facts: &gatherer{reader: cache, live: live, clock: c}}
}

// Of is the choice of a pod that would be made now like this one. Whether the one given
// is bound does not matter.
func (c *Choices) Of(ctx context.Context, pod *corev1.Pod) (Choice, error) {
	f, err := c.facts.gather(ctx, pod.Namespace, pod)
	if err != nil {
		return Choice{}, err
	}
	what, sides := where(f)
	return choose(f, what, sides), nil
}

// Excluded are the virtual nodes that admission has excluded in a pod's terms.
func Excluded(pod *corev1.Pod) []string {
	own := required(pod)
	if own == nil {
		return nil
	}
	return slices.DeleteFunc(marked(pod), func(node string) bool {
		return !slices.ContainsFunc(own.NodeSelectorTerms, func(t corev1.NodeSelectorTerm) bool {
			return has(t.MatchExpressions, isVirtual) && has(t.MatchFields, except(node))
		})
	})
}

// where is what a pod's namespace, or its RuntimeClass, says of where it may run. A pod that claims
// volumes, and a tenant's pod with tokens of its home, run here if they may.
func where(f facts) (outcome, []side) {
	asks := f.pod.Spec.RuntimeClassName != nil && *f.pod.Spec.RuntimeClassName == v1alpha1.RuntimeClass
	switch {
	case asks || f.offloading.PodOffloadingStrategy == v1alpha1.PodsRemote:
		return outcomeRemote, remote(f.offloading.ClusterSelector, f.barred)
	case f.offloading.PodOffloadingStrategy == v1alpha1.PodsLocal || stays(f.pod):
		return outcomeLocal, []side{home()}
	}
	return outcomeEither, append(remote(f.offloading.ClusterSelector, f.barred), home())
}

// stays says whether a pod has what no provider runs.
func stays(pod *corev1.Pod) bool { return kube.Claim(pod) != "" || shadow.HasHomeTokens(pod) }

// choose decides which virtual nodes a pod is kept off: those without room for it and
// those that have refused its like, but never all that there are. A pod that could go
// nowhere would wait for ever, as terms are not taken back; where it is bound the
// provider tries again.
func choose(f facts, what outcome, sides []side) Choice {
	c := Choice{Home: what != outcomeRemote && atHome(f)}
	wanted := scheduling.PodRequests(f.pod, scheduling.PodResourcesOptions{})
	nodes := candidates(f, sides)
	small := map[string]bool{}
	for _, n := range nodes {
		small[n.name] = n.tooSmall(wanted)
		if n.refused > 0 && (c.Until.IsZero() || n.until.Before(c.Until)) {
			c.Until = n.until
		}
		if !n.closed && n.refused == 0 && !small[n.name] && !stays(f.pod) {
			c.Open = append(c.Open, n.name)
		}
	}
	slices.Sort(c.Open)
	spared := func(n virtualNode) bool { return !n.closed && !small[n.name] }
	if !c.Home && !slices.ContainsFunc(nodes, spared) { // none has room: the provider tells
		clear(small)
	}
	forgiven := !c.Home && !slices.ContainsFunc(nodes, func(n virtualNode) bool { return spared(n) && n.refused == 0 })
	var avoided []virtualNode
	for _, n := range nodes {
		if small[n.name] || n.refused > 0 && !forgiven {
			avoided = append(avoided, n)
		}
	}
	slices.SortFunc(avoided, func(a, b virtualNode) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), cmp.Compare(a.name, b.name))
	})
	for _, n := range avoided[:min(len(avoided), maxAvoided)] {
		c.Avoided = append(c.Avoided, n.name)
	}
	return c
}

// candidates are the virtual nodes that one of the sides and the pod's own terms allow.
func candidates(f facts, sides []side) []virtualNode {
	selector := &corev1.NodeSelector{}
	for _, s := range sides {
		if s.virtual {
			selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: s.all})
		}
	}
	picked := nodeaffinity.NewLazyErrorNodeSelector(selector)
	allowed := ownTerms(f.pod)
	var all []virtualNode
	for _, n := range f.nodes {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.name, Labels: n.labels}}
		// An error is one of the terms, which the API server tells the user.
		if matches, _ := picked.Match(node); !matches {
			continue
		}
		if matches, _ := allowed.Match(node); matches {
			all = append(all, n)
		}
	}
	return all
}

// atHome says whether the pod's own terms allow a node of this cluster. One that names a virtual
// node, a region or a kind that only these have would else be kept off the only place it has.
func atHome(f facts) bool {
	if len(f.pod.Spec.NodeSelector) == 0 && required(f.pod) == nil {
		return true
	}
	allowed := ownTerms(f.pod)
	return slices.ContainsFunc(f.here, func(n *corev1.Node) bool {
		matches, _ := allowed.Match(n)
		return matches
	})
}

// ownTerms are a pod's nodeSelector and required node affinity, without what admission has
// excluded.
func ownTerms(pod *corev1.Pod) nodeaffinity.RequiredNodeAffinity {
	like := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: pod.Spec.NodeSelector}}
	if own := unexcluded(pod); own != nil {
		like.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: own}}
	}
	return nodeaffinity.GetRequiredNodeAffinity(like)
}

// required is a pod's required node affinity, nil if it has none.
func required(pod *corev1.Pod) *corev1.NodeSelector {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// unexcluded is a pod's required node affinity without what admission has excluded
// earlier: when this pod was first asked about, or one that it was copied from.
func unexcluded(pod *corev1.Pod) *corev1.NodeSelector {
	own, names := required(pod), marked(pod)
	if own == nil || len(names) == 0 {
		return own
	}
	own = own.DeepCopy()
	for i := range own.NodeSelectorTerms {
		t := &own.NodeSelectorTerms[i]
		if !has(t.MatchExpressions, isVirtual) {
			continue
		}
		t.MatchFields = slices.DeleteFunc(t.MatchFields, func(r corev1.NodeSelectorRequirement) bool {
			return len(r.Values) == 1 && slices.Contains(names, r.Values[0]) && has([]corev1.NodeSelectorRequirement{r}, except(r.Values[0]))
		})
		if len(t.MatchFields) == 0 {
			t.MatchFields = nil
		}
	}
	return own
}

// except is the requirement not to be on a node.
func except(node string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpNotIn, Values: []string{node}}
}

// marked are the names in a pod's annotation. Users can write it too.
func marked(pod *corev1.Pod) []string {
	text := pod.Annotations[AnnotationAvoids]
	if text == "" || len(text) > maxAvoids {
		return nil
	}
	names := strings.SplitN(text, ",", maxAvoided+1)
	return names[:min(len(names), maxAvoided)]
}

// mark is the annotation of a pod that avoids nodes; nil if it has that already.
func mark(pod *corev1.Pod, avoided []string) *string {
	text := strings.Join(avoided, ",")
	if has, ok := pod.Annotations[AnnotationAvoids]; has == text && ok == (text != "") {
		return nil
	}
	return &text
}
