package cli

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/cli/chain"
	"github.com/pelago-dev/pelago/cli/screen"
)

// unanswered reports whether a cluster that is selected has still to say yes or no.
func unanswered(at v1alpha1.ClusterOffloading) bool {
	if !meta.IsStatusConditionTrue(at.Conditions, v1alpha1.ConditionOffloadingRequired) {
		return false
	}
	ready := meta.FindStatusCondition(at.Conditions, v1alpha1.ConditionReady)
	return ready == nil || ready.Status != metav1.ConditionTrue && (ready.Reason == v1alpha1.ReasonPending || ready.Reason == v1alpha1.ReasonWaiting)
}

// refusalHolds is how long a refusal that was there before has to hold to be believed: who asks again may have just
// changed what it is for, and pelago-manager looks a moment later.
const refusalHolds = 2 * time.Second

// turnedDown reports whether an offloading as it is was refused.
func turnedDown(o *v1alpha1.NamespaceOffloading) bool {
	return o.Status.ObservedGeneration == o.Generation && meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionStalled)
}

// settled reports whether waiting on changes nothing, and how the offloading is.
func settled(o *v1alpha1.NamespaceOffloading) (over bool, state string) {
	if meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionStalled) {
		return true, ""
	}
	var waits []string
	for _, at := range o.Status.Clusters {
		if unanswered(at) {
			waits = append(waits, at.Name)
		}
	}
	switch o.Status.Phase {
	case v1alpha1.OffloadingPhaseReady, v1alpha1.OffloadingPhaseNoClusterSelected, v1alpha1.OffloadingPhaseAllFailed:
		return true, ""
	case v1alpha1.OffloadingPhaseSomeFailed:
		return len(waits) == 0, "waiting for " + strings.Join(waits, ", ")
	}
	if len(waits) > 0 {
		return false, "waiting for " + strings.Join(waits, ", ")
	}
	if ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Message != "" {
		return false, chain.Plain(ready.Reason, ready.Message)
	}
	return false, "waiting for the clusters"
}

// failure says what is not as asked for, with what to do; nil if nothing is.
func failure(o *v1alpha1.NamespaceOffloading, tenants map[string]string) error {
	if stalled := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionStalled); stalled != nil && stalled.Status == metav1.ConditionTrue {
		return fmt.Errorf("namespace %s cannot be offloaded: %s (%s); correct that, or end it: pelago unoffload namespace %s", o.Namespace, chain.Plain(stalled.Reason, stalled.Message), stalled.Reason, o.Namespace)
	}
	switch o.Status.Phase {
	case v1alpha1.OffloadingPhaseNoClusterSelected:
		why := chain.NoMatch(o.Spec.ClusterSelector)
		if ready := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionReady); ready != nil && ready.Message != "" {
			why = chain.Plain(ready.Reason, ready.Message)
		}
		return fmt.Errorf("namespace %s is offloaded, but to no cluster: %s; %s", o.Namespace, why, chain.Remedy(v1alpha1.ReasonNoClusterSelected, ""))
	case v1alpha1.OffloadingPhaseSomeFailed, v1alpha1.OffloadingPhaseAllFailed:
		who := "some clusters refuse"
		if o.Status.Phase == v1alpha1.OffloadingPhaseAllFailed {
			who = "all clusters refuse"
		}
		var lines []string
		for _, r := range refusedBy(o, tenants) {
			if r.Remedy != "" {
				r.Message += "; " + r.Remedy
			}
			lines = append(lines, r.Message)
		}
		return fmt.Errorf("%s namespace %s: %s", who, o.Namespace, strings.Join(lines, ". "))
	}
	return nil
}

// refusedBy says of each cluster that refuses why, and what to do. Tenants is what each
// provider calls this cluster.
func refusedBy(o *v1alpha1.NamespaceOffloading, tenants map[string]string) []Problem {
	var all []Problem
	for _, at := range o.Status.Clusters {
		ready := meta.FindStatusCondition(at.Conditions, v1alpha1.ConditionReady)
		if !meta.IsStatusConditionTrue(at.Conditions, v1alpha1.ConditionOffloadingRequired) || ready == nil || ready.Status == metav1.ConditionTrue {
			continue
		}
		place := chain.At{Name: at.Name, Tenant: tenants[at.Name], Namespace: o.Namespace}
		p := Problem{Object: "namespace " + o.Namespace, Reason: ready.Reason, Message: at.Name + ": " + ready.Reason, Remedy: place.Remedy(ready.Reason)}
		if ready.Message != "" {
			p.Message += ", " + chain.Plain(ready.Reason, ready.Message)
		}
		all = append(all, p)
	}
	return all
}

// report shows what has become of the offloading.
func (o *offload) report(e *Env, current *v1alpha1.NamespaceOffloading) error {
	if o.output != "" {
		shown := current.DeepCopy()
		shown.ManagedFields = nil
		shown.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NamespaceOffloading"))
		return screen.Document(e.Out, o.output, shown)
	}
	if current.Status.Phase == v1alpha1.OffloadingPhaseReady {
		fmt.Fprintf(e.Out, "Namespace %s is offloaded: %s, %s.\n", current.Namespace, chain.Strategy(current), chain.SelectorText(current.Spec.ClusterSelector))
	}
	var rows [][]screen.Cell
	for _, at := range current.Status.Clusters {
		rows = append(rows, clusterRow(at))
	}
	if len(rows) == 0 {
		return nil
	}
	return screen.Table(e.Out, e.paint(), e.width(), []string{"CLUSTER", "NAMESPACE THERE", "STATE", "REASON"}, rows)
}

func clusterRow(at v1alpha1.ClusterOffloading) []screen.Cell {
	there, state, reason := at.RemoteNamespace, screen.Cell{Text: "not selected", Colour: screen.Faint}, "-"
	if there == "" {
		there = "-"
	}
	ready := meta.FindStatusCondition(at.Conditions, v1alpha1.ConditionReady)
	if meta.IsStatusConditionTrue(at.Conditions, v1alpha1.ConditionOffloadingRequired) {
		switch {
		case ready != nil && ready.Status == metav1.ConditionTrue:
			state = screen.Cell{Text: "ready", Colour: screen.Green}
		case unanswered(at):
			state = screen.Cell{Text: "waiting", Colour: screen.Yellow}
		default:
			state = screen.Cell{Text: "failed", Colour: screen.Red}
		}
	}
	if ready != nil && ready.Status != metav1.ConditionTrue {
		reason = ready.Reason
	}
	if at.Onward {
		state.Text += ", onward"
	}
	return []screen.Cell{{Text: at.Name}, {Text: there}, state, {Text: reason}}
}
