package chain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kube"
)

// PodFacts is what is known of a pod at home.
type PodFacts struct {
	// Now is the time to judge by.
	Now time.Time
	// Pod that is explained.
	Pod *corev1.Pod
	// Offloading of its namespace, nil if that is not offloaded.
	Offloading *v1alpha1.NamespaceOffloading
	// Nodes are the virtual nodes, by name.
	Nodes []NodeFacts
	// Mapped is what became of its namespace at the cluster behind its node; nil if that
	// is not known.
	Mapped *v1alpha1.MappedNamespace
	// Event is the latest word of Pelago about the pod, empty if there is none.
	Event string
	// Referred is what is known of the ConfigMaps and Secrets that it refers to, if it is at
	// another cluster and not ready.
	Referred []Referred
	// Warnings are what events say that its provider warns of, the latest first.
	Warnings []string
}

// away is the virtual node the pod is bound to, nil if it is not bound to any.
func (f PodFacts) away() *NodeFacts {
	for i := range f.Nodes {
		if f.Nodes[i].Node.Name == f.Pod.Spec.NodeName {
			return &f.Nodes[i]
		}
	}
	return nil
}

// Pod explains why a pod is where it is.
func Pod(f PodFacts) Chain {
	c := Chain{Title: podTitle(f)}
	away := f.away()
	c.note(offloadedStep(f))
	if o := f.Offloading; o != nil {
		c.note(termsStep(f))
		if Strategy(o) == v1alpha1.PodsLocal && strategyOf(f.Pod, o) == v1alpha1.PodsLocal {
			c.note(Step{Fact: "it may run at other clusters", State: Aside, Evidence: "the strategy is Local"})
		} else if away == nil && exempt(f.Pod) == "" && !ended(f.Pod) {
			for _, n := range f.Nodes {
				c.note(nodeStep(f, n))
			}
		}
	}
	bound := boundStep(f)
	c.note(bound)
	whole := bound.State == Done
	c.branch(func(b *Chain) {
		if away != nil && !ended(f.Pod) {
			b.add(meanwhile(f, readyNodeStep(*away)))
			if !daemonAnswered(f.Pod) {
				b.add(mappedStep(f, *away))
				b.add(acceptedStep(f, *away))
			}
		}
		b.add(warnedStep(f, referredStep(f, runningStep(f))))
		if s, refused := changeStep(f); refused {
			b.note(s)
		}
	}, whole)
	return c
}

func podTitle(f PodFacts) string {
	name := f.Pod.Namespace + "/" + f.Pod.Name
	switch away := f.away(); {
	case !f.Pod.DeletionTimestamp.IsZero():
		return "Pod " + name + " is ending"
	case ended(f.Pod):
		return fmt.Sprintf("Pod %s has ended: %s", name, f.Pod.Status.Phase)
	case away != nil:
		return "Pod " + name + " is at " + away.peering()
	case f.Pod.Spec.NodeName != "":
		return "Pod " + name + " is in this cluster"
	}
	return "Pod " + name + " waits for a node"
}

func offloadedStep(f PodFacts) Step {
	s := Step{Fact: "namespace " + f.Pod.Namespace + " is offloaded", State: Done}
	o := f.Offloading
	switch {
	case o == nil:
		s.State, s.Evidence = Aside, "it is not, so its pods run in this cluster only"
		s.Remedy = "to offload it: pelago offload namespace " + f.Pod.Namespace
	case !o.DeletionTimestamp.IsZero():
		s.State, s.Evidence = Waiting, "it is being unoffloaded: its pods come home"
	default:
		s.Evidence = fmt.Sprintf("strategy %s, %s", Strategy(o), SelectorText(o.Spec.ClusterSelector))
	}
	return s
}

// termsStep says under which terms the pod was made.
func termsStep(f PodFacts) Step {
	s := Step{Fact: "it was made under today's terms", State: Done}
	if why := exempt(f.Pod); why != "" {
		s.State, s.Evidence = Aside, why
		return s
	}
	why := Outdated(f.Pod, f.Offloading)
	if field := kube.Claim(f.Pod); field != "" && strategyOf(f.Pod, f.Offloading) == v1alpha1.PodsRemote {
		s.State, s.Evidence = Aside, "it is older: volume claims do not travel yet, it has "+field+", and a pod made now would be refused, as it may run at other clusters only"
		s.Remedy = claimRemedy(f)
		return s
	}
	if why == "" {
		switch strategyOf(f.Pod, f.Offloading) {
		case v1alpha1.PodsRemote:
			s.Evidence = "it may run at other clusters only"
			if Strategy(f.Offloading) != v1alpha1.PodsRemote {
				s.Evidence += ": its RuntimeClass is " + v1alpha1.RuntimeClass
			}
		case v1alpha1.PodsLocal:
			s.Evidence = "it may run in this cluster only"
			if field := kube.Claim(f.Pod); field != "" {
				s.Evidence += ": volume claims do not travel yet, and it has " + field
			}
		default:
			s.Evidence = "it may run here or at other clusters"
		}
		return s
	}
	s.State = Broken
	s.Evidence = why + ": it was made under other terms"
	if f.Pod.CreationTimestamp.Before(&f.Offloading.CreationTimestamp) {
		s.Evidence = why + ": it is older than the offloading"
	}
	s.Remedy = fmt.Sprintf("pods get their terms when they are made: pelago offload namespace %s --restart-workloads", f.Pod.Namespace)
	return s
}

// nodeStep says whether a virtual node could take the pod.
func nodeStep(f PodFacts, n NodeFacts) Step {
	v := judge(f.Pod, f.Offloading, n, f.Now)
	s := Step{Fact: "node " + n.Node.Name + " could take it", State: Done}
	if !v.takes {
		s.State, s.Evidence, s.Remedy = Aside, v.words, v.remedy
	}
	return s
}

func boundStep(f PodFacts) Step {
	s := Step{Fact: "it is bound to a node", State: Done}
	if name := f.Pod.Spec.NodeName; name != "" {
		s.Evidence = name + ", a node of this cluster"
		if away := f.away(); away != nil {
			s.Evidence = name + ", a virtual node of " + away.peering()
		}
		return s
	}
	s.State, s.Evidence = Waiting, "the scheduler has not looked at it yet"
	if ended(f.Pod) || !f.Pod.DeletionTimestamp.IsZero() {
		s.State, s.Evidence = Aside, "it never was"
		return s
	}
	if len(f.Pod.Spec.SchedulingGates) > 0 {
		s.Evidence = "its scheduling gate " + f.Pod.Spec.SchedulingGates[0].Name + " is closed"
		return s
	}
	for _, c := range f.Pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			s.State, s.Evidence = Broken, "the scheduler says: "+strings.TrimSuffix(Plain(c.Reason, c.Message), ".")
			s.Remedy = unboundRemedy(f)
		}
	}
	return s
}

// OwnNamespace says that a namespace belongs to the cluster or to Pelago, and is not offloaded.
func OwnNamespace(name string) bool {
	return name == "default" || v1alpha1.OwnNamespace(name)
}

// unboundRemedy is what to do about a pod that no node takes: what helps at the virtual
// nodes if it may go there.
func unboundRemedy(f PodFacts) string {
	o := f.Offloading
	if field := kube.Claim(f.Pod); field != "" {
		if o != nil && (strategyOf(f.Pod, o) == v1alpha1.PodsRemote || f.Pod.Spec.NodeSelector[v1alpha1.LabelType] == v1alpha1.TypeVirtualNode) {
			return claimRemedy(f)
		}
		return "make room in this cluster: volume claims do not travel yet, and it has " + field
	}
	if o == nil || strategyOf(f.Pod, o) == v1alpha1.PodsLocal {
		if OwnNamespace(f.Pod.Namespace) {
			return "make room in this cluster, or make the pod in a namespace of its own, which may be offloaded: " + f.Pod.Namespace + " may not"
		}
		return "make room in this cluster, or let it run elsewhere: pelago offload namespace " + f.Pod.Namespace
	}
	if Outdated(f.Pod, o) != "" {
		return "" // the step before says it
	}
	if len(f.Nodes) == 0 {
		return "there is no virtual node: peer with a cluster (pelago peer), or see pelago status"
	}
	var remedies []string
	for _, n := range f.Nodes {
		v := judge(f.Pod, o, n, f.Now)
		if v.takes {
			return node(n) + "could take it by what is offered; what the scheduler counts says no: see kubectl describe node " + n.Node.Name
		}
		if v.remedy != "" && !slices.Contains(remedies, node(n)+v.remedy) {
			remedies = append(remedies, node(n)+v.remedy)
		}
	}
	if len(remedies) == 0 {
		return "change the pod's nodeSelector or node affinity"
	}
	return strings.Join(remedies[:min(len(remedies), 3)], "; ")
}

// claimRemedy is what to do about a pod that claims a volume and may not run here.
func claimRemedy(f PodFacts) string {
	return "use an emptyDir, or let it run here as well: no runtimeClassName " + v1alpha1.RuntimeClass + ", no nodeSelector for virtual nodes, and pelago offload namespace " +
		f.Pod.Namespace + " --pod-offloading-strategy LocalAndRemote"
}

func node(n NodeFacts) string { return n.Node.Name + ": " }

func readyNodeStep(n NodeFacts) Step {
	s := Step{Fact: "node " + n.Node.Name + " is ready", State: Done}
	if c := nodeReady(&n.Node); c == nil || c.Status != corev1.ConditionTrue {
		s.State, s.Evidence, s.Remedy = Broken, strings.TrimPrefix(because(c), ": "), nodeRemedy(c, n.at(""))
		if s.Evidence == "" {
			s.Evidence = "it does not say why"
		}
	}
	return s
}

// meanwhile adds to the step of a node that is not ready what becomes of the pod.
func meanwhile(f PodFacts, s Step) Step {
	o := f.Offloading
	if s.State == Done || o == nil || exempt(f.Pod) != "" || !f.Pod.DeletionTimestamp.IsZero() {
		return s
	}
	if o.Spec.WhenUnreachable.OrDefault() == v1alpha1.UnreachableKeep {
		s.Evidence += "; the pod is kept, and not replaced"
	} else if strategyOf(f.Pod, o) != v1alpha1.PodsRemote {
		s.Evidence += "; after five minutes the pod is evicted, as whenUnreachable of the NamespaceOffloading is Replace"
	}
	return s
}

func mappedStep(f PodFacts, n NodeFacts) Step {
	s := Step{Fact: fmt.Sprintf("namespace %s is there at %s", f.Pod.Namespace, n.peering())}
	mapping(&s, f.Mapped, n.at(f.Pod.Namespace))
	return s
}

// mapping fills a step with what a provider says of a namespace.
func mapping(s *Step, m *v1alpha1.MappedNamespace, at At) {
	s.State = Waiting
	if m == nil {
		s.Evidence, s.Remedy = "the provider has not answered yet", managerRemedy
		return
	}
	said := Plain(m.Reason, m.Message)
	if m.Reason != "" && said != "" {
		said = m.Reason + ": " + said
	} else if said == "" {
		said = m.Reason
	}
	switch m.Phase {
	case v1alpha1.MappingReady:
		s.State, s.Evidence = Done, m.Name
	case v1alpha1.MappingRefused:
		s.State, s.Evidence, s.Remedy = Broken, said, at.Remedy(m.Reason)
	case v1alpha1.MappingKept:
		s.State, s.Evidence, s.Remedy = Broken, strings.TrimSpace(m.Name+" is kept "+said), at.Remedy(v1alpha1.ReasonVolumesKept)
	default:
		s.Evidence = strings.TrimSpace(string(m.Phase) + " " + said)
		s.Remedy = at.Remedy(m.Reason)
	}
	if s.State != Done && s.Evidence == "" {
		s.Evidence = string(m.Phase)
	}
}

// refusals are the reasons by which a provider does not run a pod.
var refusals = []string{
	v1alpha1.ReasonRefused, v1alpha1.ReasonNotAdmitted, v1alpha1.ReasonUnschedulable, v1alpha1.ReasonLimitExceeded, v1alpha1.ReasonNamespaceMissing,
	v1alpha1.ReasonNameTaken, v1alpha1.ReasonCordoned, v1alpha1.ReasonDrained,
}

func acceptedStep(f PodFacts, n NodeFacts) Step {
	s := Step{Fact: n.peering() + " runs it", State: Done}
	reason, message := refusal(f.Pod)
	switch {
	case !f.Pod.DeletionTimestamp.IsZero() && f.Pod.Status.Reason == v1alpha1.ReasonTerminating:
		s.Fact, s.State, s.Evidence, s.Remedy = n.peering()+" ends it", Broken, f.Pod.Status.Message, managerRemedy
	case reason != "":
		s.State, s.Evidence = Broken, strings.TrimSuffix(reason+": "+Plain(reason, message), ": ")
		s.Remedy = n.at(f.Pod.Namespace).Remedy(reason)
		if yields(reason) {
			s.State = Waiting
			s.Remedy = "this takes a moment; if it stays so: pelago explain namespace " + f.Pod.Namespace
		}
	case f.Pod.Status.StartTime != nil || f.Pod.Status.Phase == corev1.PodRunning || len(f.Pod.Status.ContainerStatuses) > 0:
		s.Evidence = "it has sent the pod's status"
	default:
		s.State, s.Evidence, s.Remedy = Waiting, "it has not answered yet", managerRemedy
		if f.Event != "" {
			s.Evidence = f.Event
		}
	}
	return s
}

// daemonAnswered reports whether the pod is one of a DaemonSet that has nothing to do.
func daemonAnswered(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Reason == v1alpha1.ReasonVirtualNode })
}

// changeStep is of a pod of which a change is refused by the cluster that runs it.
func changeStep(f PodFacts) (s Step, refused bool) {
	if f.away() == nil || ended(f.Pod) || !f.Pod.DeletionTimestamp.IsZero() {
		return s, false
	}
	for _, c := range f.Pod.Status.Conditions {
		if c.Type == v1alpha1.ConditionChangeRefused && c.Status == corev1.ConditionTrue {
			return Step{
				Fact: "what runs is what the pod says now", State: Broken, Evidence: c.Reason + ": " + Plain(c.Reason, c.Message),
				Remedy: "change what it names, or delete the pod so that it is made anew",
			}, true
		}
	}
	return s, false
}

// maxWarnings are the warnings that are shown.
const maxWarnings = 3

// warnedStep adds to a step of a pod that is not ready what its provider warns of.
func warnedStep(f PodFacts, s Step) Step {
	if f.away() == nil || len(f.Warnings) == 0 || s.State == Done || s.State == Aside || !f.Pod.DeletionTimestamp.IsZero() {
		return s
	}
	s.State = Broken
	s.Evidence += "; " + strings.Join(f.Warnings[:min(len(f.Warnings), maxWarnings)], "; ")
	s.Remedy = cmp.Or(s.Remedy, fmt.Sprintf("see kubectl -n %s describe pod %s", f.Pod.Namespace, f.Pod.Name))
	return s
}

// runningStep says how the pod is, where it is.
func runningStep(f PodFacts) Step {
	s := Step{Fact: "it runs and is ready", State: Done}
	p := f.Pod
	switch {
	case daemonAnswered(p):
		s.State, s.Evidence = Aside, "a pod of a DaemonSet has nothing to do on a virtual node: no container runs, and the DaemonSet counts it as ready"
		return s
	case ended(p):
		s.State, s.Evidence = Aside, strings.TrimSuffix(fmt.Sprintf("it has ended: %s %s", p.Status.Reason, Plain("", p.Status.Message)), " ")
		return s
	case !p.DeletionTimestamp.IsZero():
		s.State, s.Evidence = Waiting, fmt.Sprintf("it is ending since %s", stamp(*p.DeletionTimestamp))
		return s
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return s
		}
	}
	s.State, s.Evidence = Waiting, "it is starting"
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "" && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			s.State, s.Evidence = Broken, strings.TrimSuffix(fmt.Sprintf("container %s: %s: %s", c.Name, w.Reason, Plain("", w.Message)), ": ")
			s.Remedy = fmt.Sprintf("see kubectl -n %s describe pod %s", p.Namespace, p.Name)
			return s
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Message != "" {
			s.Evidence = Plain(c.Reason, c.Message)
			if c.Reason == v1alpha1.ReasonGatewaysBehind {
				s.Evidence = "it runs there and is ready, and waits until it can be reached: " + s.Evidence
			}
		}
	}
	return s
}
