package admission

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// usualTolerance is what Kubernetes gives every pod for nodes that are not ready or
// unreachable, in seconds.
const usualTolerance = 300

// facts are all that the terms of a pod depend on.
type facts struct {
	pod *corev1.Pod
	// offloading of the pod's namespace.
	offloading v1alpha1.NamespaceOffloadingSpec
	// barred are the peerings that none of the pod's virtual nodes may be of, sorted.
	barred []string
	// nodes that are virtual.
	nodes []virtualNode
	// here are the nodes of this cluster. They are the cache's: nothing may write to them.
	here []*corev1.Node
}

// virtualNode is what is known of one.
type virtualNode struct {
	name   string
	labels map[string]string
	// closed says that it takes no pods now: it is cordoned, ending, or not ready.
	closed bool
	// offer behind the node, nil if it is not known.
	offer *v1alpha1.ResourceOfferSpec
	// refused counts how often in a row the pod's controller had pods sent home from here
	// lately, which is over at until.
	refused int32
	until   time.Time
}

// outcome is what was decided, for the metric.
type outcome string

const (
	outcomeLocal   outcome = "local"
	outcomeEither  outcome = "local-and-remote"
	outcomeRemote  outcome = "remote"
	outcomeKept    outcome = "kept-home"
	outcomeIgnored outcome = "ignored"
	outcomeRefused outcome = "refused"
	outcomeFailed  outcome = "failed"
	// outcomeMalformed is of requests that are none.
	outcomeMalformed outcome = "malformed"
)

// outcomes are all there are.
var outcomes = []outcome{
	outcomeLocal, outcomeEither, outcomeRemote, outcomeKept, outcomeIgnored, outcomeRefused, outcomeFailed, outcomeMalformed,
}

// terms are what a pod gets. They change nothing else of it.
type terms struct {
	outcome outcome
	// required replaces the required node affinity, if it is not nil.
	required *corev1.NodeSelector
	// add are tolerations to append.
	add []corev1.Toleration
	// unlimited are the positions of tolerations that lose their end.
	unlimited []int
	// avoids replaces the annotation that names the nodes kept off, if it is not nil; it
	// goes if that is empty.
	avoids *string
}

// mutate decides on a pod. It is idempotent: a pod that has its terms gets none. The
// error is for the user: the pod cannot have terms at all.
func mutate(f facts) (terms, error) {
	pod := f.pod
	if pod.Spec.NodeName != "" || ofDaemonSet(pod) {
		return terms{outcome: outcomeIgnored}, nil
	}
	what, sides := where(f)
	t := terms{outcome: what}
	if field := kube.Claim(pod); field != "" && (what == outcomeRemote || asksForVirtual(pod) || f.pinned()) {
		return terms{}, fmt.Errorf("%s: volume claims do not travel yet, and this pod may run at other clusters only; use an emptyDir, or let it run here as well: podOffloadingStrategy LocalAndRemote, and neither runtimeClassName %s nor a nodeSelector for virtual nodes",
			field, v1alpha1.RuntimeClass)
	}
	switch what {
	case outcomeRemote:
		t.add, t.unlimited = patience(pod.Spec.Tolerations)
	case outcomeLocal:
		if !toleratesAll(pod.Spec.Tolerations) { // our taint keeps it home
			t.avoids = mark(pod, nil)
			return t, nil
		}
	default:
		t.add = admitted(pod.Spec.Tolerations)
	}
	return t, t.limit(f, sides)
}

// pinned says whether a pod names a virtual node to run on.
func (f facts) pinned() bool {
	host, is := f.pod.Spec.NodeSelector[corev1.LabelHostname]
	return is && slices.ContainsFunc(f.nodes, func(n virtualNode) bool { return n.labels[corev1.LabelHostname] == host })
}

// limit makes the pod's required node affinity such that one of the sides applies.
func (t *terms) limit(f facts, sides []side) error {
	own := required(f.pod)
	if own != nil && len(own.NodeSelectorTerms) > maxTerms {
		return fmt.Errorf("spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution: %d terms, at most %d in an offloaded namespace; use fewer terms",
			len(own.NodeSelectorTerms), maxTerms)
	}
	avoided := choose(f, t.outcome, sides).Avoided
	made := combine(unexcluded(f.pod), sides, avoided)
	if len(made) > maxTerms {
		return fmt.Errorf("spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution: its terms with those of spec.clusterSelector of the NamespaceOffloading make %d, at most %d; use fewer terms in one of them",
			len(made), maxTerms)
	}
	if own == nil || !sameTerms(own.NodeSelectorTerms, made) {
		t.required = &corev1.NodeSelector{NodeSelectorTerms: made}
	}
	t.avoids = mark(f.pod, avoided)
	return nil
}

// ofDaemonSet says whether a pod belongs to a DaemonSet, which aims each of its pods at
// one node: terms could only make it fit nowhere.
func ofDaemonSet(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// admitted is the toleration that lets a pod onto virtual nodes, if it does not have it.
// It names the taint even if the pod tolerates everything: pods are found by it.
func admitted(have []corev1.Toleration) []corev1.Toleration {
	for _, t := range have {
		if t.Key == v1alpha1.TaintVirtualNode && t.Operator == corev1.TolerationOpExists && t.TolerationSeconds == nil &&
			(t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute) {
			return nil
		}
	}
	return []corev1.Toleration{{Key: v1alpha1.TaintVirtualNode, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}
}

// toleratesAll says whether a pod may be bound to virtual nodes by a toleration of its own.
func toleratesAll(have []corev1.Toleration) bool {
	for _, t := range have {
		if (t.Key == v1alpha1.TaintVirtualNode || t.Key == "") && (t.Effect == "" || t.Effect == corev1.TaintEffectNoExecute) {
			return true
		}
	}
	return false
}

// patience is what makes a pod that runs elsewhere wait for ever for a virtual node that
// is not ready or unreachable: nothing could run in its place but a second copy. A time
// that is not the usual one is the user's own and stays.
func patience(have []corev1.Toleration) (add []corev1.Toleration, unlimited []int) {
	add = admitted(have)
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		found := false
		for i, t := range have {
			if (t.Key != taint && t.Key != "") || (t.Effect != "" && t.Effect != corev1.TaintEffectNoExecute) {
				continue
			}
			found = true
			if t.Key == taint && t.TolerationSeconds != nil && *t.TolerationSeconds == usualTolerance {
				unlimited = append(unlimited, i)
			}
		}
		if !found {
			add = append(add, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute})
		}
	}
	return add, unlimited
}
