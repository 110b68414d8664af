package chain

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

// NamespaceFacts is what is known of a namespace at home.
type NamespaceFacts struct {
	// Name of the namespace.
	Name string
	// Labels of the namespace.
	Labels map[string]string
	// Offloading of it, nil if there is none.
	Offloading *v1alpha1.NamespaceOffloading
	// Nodes are the virtual nodes, by name.
	Nodes []NodeFacts
	// Tenants is what each provider calls this cluster, by the name of the peering.
	Tenants map[string]string
	// Mapped is what became of it at each cluster, by the name of the peering.
	Mapped map[string]v1alpha1.MappedNamespace
	// Objects are those of it that a cluster refuses, has otherwise or gives addresses, by the name of the peering.
	Objects map[string][]v1alpha1.ReflectedObject
	// Here, Away, Waiting and Outdated count its pods: in this cluster, at others, with no
	// node yet, and those made under other terms.
	Here, Away, Waiting, Outdated int
	// Sent are its Services that need no pod of it at other clusters.
	Sent []string
}

// Namespace explains how the offloading of a namespace is: in sum, then at each cluster.
func Namespace(f NamespaceFacts) Chain {
	c := Chain{Title: "Namespace " + f.Name}
	o := f.Offloading
	if o == nil {
		s := Step{Fact: "it is offloaded", State: Broken, Evidence: "there is no NamespaceOffloading in it", Remedy: "pelago offload namespace " + f.Name}
		if f.Labels[v1alpha1.LabelOffload] == "true" {
			s.State, s.Evidence, s.Remedy = Waiting, "its label "+v1alpha1.LabelOffload+" asks for it", managerRemedy
		}
		c.note(s)
		return c
	}
	c.add(wantedStep(f))
	c.add(seenStep(f))
	whole := c.First() == nil
	for _, name := range clusters(f) {
		c.branch(func(b *Chain) { clusterSteps(b, f, name) }, whole)
	}
	if whole {
		c.note(selectionStep(f))
		c.note(podsStep(f))
		c.note(sentStep(f))
	}
	c.Steps = slices.DeleteFunc(c.Steps, func(s Step) bool { return s.Fact == "" })
	return c
}

// wantedStep says what is asked for, and whether it can be had at all.
func wantedStep(f NamespaceFacts) Step {
	o := f.Offloading
	s := Step{Fact: "it is offloaded", State: Done,
		Evidence: fmt.Sprintf("strategy %s, %s, %s", Strategy(o), NamingText(o), SelectorText(o.Spec.ClusterSelector))}
	if o.Spec.Onward == v1alpha1.OnwardAllow {
		s.Evidence += ", onward if their owners like"
	}
	if o.Spec.WhenUnreachable.OrDefault() == v1alpha1.UnreachableReplace {
		s.Evidence += ", pods are replaced when their cluster is away"
	}
	stalled := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionStalled)
	switch {
	case !o.DeletionTimestamp.IsZero():
		s.State, s.Evidence = Waiting, "it is being unoffloaded: its pods come home, then its remote namespaces go"
		if ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Message != "" {
			s.Evidence += "; " + Plain(ready.Reason, ready.Message)
		}
	case stalled != nil && stalled.Status == metav1.ConditionTrue:
		s.State, s.Evidence = Broken, evidenceOf(stalled)
		s.Remedy = fmt.Sprintf("correct what the message names; what cannot be changed needs: pelago unoffload namespace %s", f.Name)
	}
	return s
}

// seenStep says whether somebody acts on it.
func seenStep(f NamespaceFacts) Step {
	s := Step{Fact: "Pelago has acted on it", State: Done}
	o := f.Offloading
	switch {
	case o.Status.ObservedGeneration < o.Generation:
		s.State, s.Evidence, s.Remedy = Waiting, "not looked at yet", managerRemedy
	case f.Labels[v1alpha1.LabelOffloaded] != "true":
		s.State, s.Evidence, s.Remedy = Waiting, "its label "+v1alpha1.LabelOffloaded+" is not set yet, so that its new pods get no terms", managerRemedy
	default:
		s.Evidence = "phase " + string(o.Status.Phase)
	}
	return s
}

// clusters are all that anything is known of, by name.
func clusters(f NamespaceFacts) []string {
	var names []string
	for _, c := range f.Offloading.Status.Clusters {
		names = append(names, c.Name)
	}
	for name := range f.Mapped {
		names = append(names, name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func clusterSteps(b *Chain, f NamespaceFacts, name string) {
	var at v1alpha1.ClusterOffloading
	place := At{Name: name, Tenant: f.Tenants[name], Namespace: f.Name}
	for _, c := range f.Offloading.Status.Clusters {
		if c.Name == name {
			at = c
		}
	}
	required := meta.FindStatusCondition(at.Conditions, v1alpha1.ConditionOffloadingRequired)
	mapped, known := f.Mapped[name]
	if required == nil || required.Status != metav1.ConditionTrue {
		s := Step{Fact: name + " is selected", State: Aside, Evidence: unselectedWords(f, name, required)}
		if known && mapped.Phase != "" {
			s.Evidence += "; its namespace there: " + strings.TrimSpace(fmt.Sprintf("%s %s", mapped.Name, strings.ToLower(string(mapped.Phase))))
			if mapped.Phase == v1alpha1.MappingKept {
				s.Evidence += ", " + Remedy(v1alpha1.ReasonVolumesKept, name)
			}
		}
		b.note(s)
		return
	}
	b.add(Step{Fact: name + " is selected", State: Done})
	there := Step{Fact: fmt.Sprintf("%s is there at %s", f.Name, name)}
	if ready := meta.FindStatusCondition(at.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Status == metav1.ConditionTrue {
		there.State, there.Evidence = Done, at.RemoteNamespace
		if at.Onward {
			there.Evidence += "; its pods may run at a provider of " + name + "'s"
		}
	} else if ready != nil && (!known || mapped.Phase == v1alpha1.MappingReady || mapped.Reason == "" && mapped.Message == "") {
		there = step(there.Fact, name, at.Conditions, 0, v1alpha1.ConditionReady, "")
		there.Remedy = place.Remedy(ready.Reason)
	} else if known {
		mapping(&there, &mapped, place)
	} else {
		mapping(&there, nil, place)
	}
	b.add(there)
	for _, n := range f.Nodes {
		if n.peering() == name {
			b.add(readyNodeStep(n))
		}
	}
	b.note(objectsStep(f, name))
	b.note(addressesStep(f, name))
}

func unselectedWords(f NamespaceFacts, name string, required *metav1.Condition) string {
	if required != nil && required.Message != "" {
		return Plain(required.Reason, required.Message)
	}
	for _, n := range f.Nodes {
		if n.peering() == name {
			return "no virtual node of it matches " + SelectorText(f.Offloading.Spec.ClusterSelector)
		}
	}
	return "it has no virtual node"
}

// selectionStep says what to do when no cluster is selected; it is empty otherwise.
func selectionStep(f NamespaceFacts) Step {
	if f.Offloading.Status.Phase != v1alpha1.OffloadingPhaseNoClusterSelected {
		return Step{}
	}
	s := Step{Fact: "a cluster is selected", State: Broken, Remedy: fmt.Sprintf("to change the selector: pelago offload namespace %s --cluster-selector …", f.Name)}
	if ready := meta.FindStatusCondition(f.Offloading.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Message != "" {
		s.Evidence = Plain(ready.Reason, ready.Message)
	}
	if len(f.Nodes) == 0 {
		s.Remedy = "peer with a cluster (pelago peer), or see what is wrong with those there are: pelago status"
	}
	if s.Evidence == "" {
		s.Evidence = NoMatch(f.Offloading.Spec.ClusterSelector)
		if len(f.Nodes) == 0 {
			s.Evidence = "there is no virtual node"
		}
	}
	return s
}

func podsStep(f NamespaceFacts) Step {
	s := Step{Fact: "its pods were made under today's terms", State: Done,
		Evidence: fmt.Sprintf("%d here, %d at other clusters, %d without a node", f.Here, f.Away, f.Waiting)}
	if f.Outdated > 0 {
		s.State = Waiting
		s.Evidence += fmt.Sprintf("; %d of them under other terms", f.Outdated)
		s.Remedy = fmt.Sprintf("pods get their terms when they are made: pelago offload namespace %s --restart-workloads", f.Name)
	}
	return s
}

// sentStep says which Services need no pod at the clusters selected; it is empty if there are none.
func sentStep(f NamespaceFacts) Step {
	if len(f.Sent) == 0 || f.Offloading.Status.Phase == v1alpha1.OffloadingPhaseNoClusterSelected {
		return Step{}
	}
	return Step{Fact: "Services of it are there also without a pod", State: Done,
		Evidence: few(f.Sent) + "; a cluster's own pods call them where Peering and Tenant both say reachability full" + lent(f.Offloading)}
}

// lent says who else calls them, if the owner of the namespace lets anybody.
func lent(o *v1alpha1.NamespaceOffloading) string {
	if o.Spec.Callers != v1alpha1.CallersProvider {
		return ""
	}
	return ", and as this namespace says callers Provider those that its Tenant there names by spec.callers; what nobody here knows is whom it names"
}

// NamingText says what an offloading calls its remote namespaces.
func NamingText(o *v1alpha1.NamespaceOffloading) string {
	switch o.Spec.NamespaceMappingStrategy {
	case v1alpha1.MappingEnforceSameName:
		return "the same name there"
	case v1alpha1.MappingSelectedName:
		return "called " + o.Spec.RemoteNamespaceName + " there"
	}
	return "called " + o.Namespace + "-TENANT there, after what the provider calls this cluster"
}
