package namespace

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/status"
)

// summarize writes into the status what is so at each cluster, and in sum. What it says of one cluster is passed
// through steady, with what it has said.
func summarize(f *facts, p *plan, refusals map[string]verdict, o *v1alpha1.NamespaceOffloading, steady func(old, now v1alpha1.ClusterOffloading) v1alpha1.ClusterOffloading) {
	s := &o.Status
	s.ObservedGeneration = o.Generation
	before := s.Clusters
	s.Clusters = nil
	tally := counts{}
	for _, c := range f.clusters {
		old := v1alpha1.ClusterOffloading{Name: c.name}
		if i := slices.IndexFunc(before, func(b v1alpha1.ClusterOffloading) bool { return b.Name == c.name }); i >= 0 {
			old = before[i]
		}
		if now, shown := f.describe(c, p, refusals, *old.DeepCopy(), o.Generation); shown {
			now = steady(old, now)
			s.Clusters = append(s.Clusters, now)
			if f.wants(c) {
				tally.add(now)
			}
		}
	}
	conditions, generation := &s.Conditions, o.Generation
	if f.ending != nil || f.refused == "" && f.wrong == nil { // one that stays keeps its time
		meta.RemoveStatusCondition(conditions, v1alpha1.ConditionStalled)
	}
	stall := func(message string) {
		status.False(conditions, generation, v1alpha1.ConditionReady, v1alpha1.ReasonInvalid, message)
		status.True(conditions, generation, v1alpha1.ConditionStalled, v1alpha1.ReasonInvalid, message)
	}
	s.Phase = tally.phase()
	switch {
	case f.ending != nil:
		s.Phase = v1alpha1.OffloadingPhaseTerminating
		status.False(conditions, generation, v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, endMessage(p))
	case f.refused != "":
		s.Phase = v1alpha1.OffloadingPhaseAllFailed
		stall(f.refused)
	case f.wrong != nil:
		stall(f.wrong.Error())
	case s.Phase == v1alpha1.OffloadingPhaseNoClusterSelected:
		message := hint(f.nodes)
		if i := slices.IndexFunc(f.clusters, f.lacks); i >= 0 {
			message = lacking(f.clusters[i])
		}
		status.False(conditions, generation, v1alpha1.ConditionReady, v1alpha1.ReasonNoClusterSelected, message)
	case s.Phase == v1alpha1.OffloadingPhaseReady:
		status.True(conditions, generation, v1alpha1.ConditionReady, v1alpha1.ReasonReady, "")
	case s.Phase == v1alpha1.OffloadingPhaseInProgress:
		status.False(conditions, generation, v1alpha1.ConditionReady, v1alpha1.ReasonPending, tally.messages())
	default: // the words of these phases are the reasons
		status.False(conditions, generation, v1alpha1.ConditionReady, string(s.Phase), tally.messages())
	}
}

// endMessage says what the end waits for.
func endMessage(p *plan) string {
	if len(p.waits) == 0 {
		return "the namespace is not offloaded any more"
	}
	var list []string
	for name, what := range p.waits {
		list = append(list, name+": "+what)
	}
	slices.Sort(list)
	return oneLine(strings.Join(list, "; "), maxHint)
}

// describe is what the status says of one cluster, and whether it says anything.
func (f *facts) describe(c *cluster, p *plan, refusals map[string]verdict, out v1alpha1.ClusterOffloading, generation int64) (v1alpha1.ClusterOffloading, bool) {
	set := func(kind string, s metav1.ConditionStatus, reason, message string) {
		setAt(&out.Conditions, f.now, metav1.Condition{Type: kind, Status: s, Reason: reason, Message: message, ObservedGeneration: generation})
	}
	required, ready := v1alpha1.ConditionOffloadingRequired, v1alpha1.ConditionReady
	out.Onward = c.mapped != nil && c.mapped.Onward
	if f.wants(c) {
		set(required, metav1.ConditionTrue, v1alpha1.ReasonSelected, "")
		if c.mapped != nil {
			out.RemoteNamespace = c.mapped.Name
		}
		refusal, refused := refusals[c.name]
		switch {
		case refused:
			set(ready, metav1.ConditionFalse, refusal.reason, refusal.message)
		case c.entry == nil, c.mapped == nil:
			message := "waiting for " + c.name + " to make the namespace"
			if c.waits != "" {
				message += "; " + c.waits
			}
			set(ready, metav1.ConditionFalse, v1alpha1.ReasonPending, message)
		case c.mapped.Phase == v1alpha1.MappingReady:
			set(ready, metav1.ConditionTrue, v1alpha1.ReasonReady, c.mapped.Message)
		case c.mapped.Phase == v1alpha1.MappingRefused:
			set(ready, metav1.ConditionFalse, c.mapped.Reason, c.mapped.Message)
		default:
			set(ready, metav1.ConditionFalse, v1alpha1.ReasonPending, c.mapped.Message)
		}
		return out, true
	}
	waits, busy := p.waits[c.name]
	kept := c.mapped != nil && c.mapped.Phase == v1alpha1.MappingKept
	if !c.live || !busy && !kept && c.nodes == 0 && c.entry == nil {
		return out, false
	}
	reason, why := v1alpha1.ReasonNotSelected, ""
	switch {
	case f.ending != nil:
		reason = v1alpha1.ReasonTerminating
	case f.lacks(c):
		reason, why = v1alpha1.ReasonUnsupported, lacking(c)
	}
	set(required, metav1.ConditionFalse, reason, why)
	switch {
	case busy:
		set(ready, metav1.ConditionFalse, v1alpha1.ReasonTerminating, waits)
	case kept:
		out.RemoteNamespace = c.mapped.Name
		set(ready, metav1.ConditionFalse, v1alpha1.ReasonVolumesKept, keptWords(c.mapped.Name))
	default:
		meta.RemoveStatusCondition(&out.Conditions, ready)
		out.RemoteNamespace = ""
	}
	return out, true
}

// setAt sets a condition by this program's clock.
func setAt(conditions *[]metav1.Condition, now time.Time, c metav1.Condition) {
	c.LastTransitionTime = metav1.NewTime(now)
	meta.SetStatusCondition(conditions, c)
}

// counts are the clusters wanted by how they are.
type counts struct {
	wanted, ready, refused int
	said                   []string
}

func (t *counts) add(c v1alpha1.ClusterOffloading) {
	t.wanted++
	said := meta.FindStatusCondition(c.Conditions, v1alpha1.ConditionReady)
	if said.Status == metav1.ConditionTrue {
		t.ready++
		return
	}
	if said.Reason != v1alpha1.ReasonPending && said.Reason != v1alpha1.ReasonWaiting {
		t.refused++
	}
	text := said.Reason
	if said.Message != "" {
		text = said.Message
	}
	t.said = append(t.said, c.Name+": "+text)
}

func (t *counts) phase() v1alpha1.OffloadingPhase {
	switch {
	case t.wanted == 0:
		return v1alpha1.OffloadingPhaseNoClusterSelected
	case t.ready == t.wanted:
		return v1alpha1.OffloadingPhaseReady
	case t.refused == t.wanted:
		return v1alpha1.OffloadingPhaseAllFailed
	case t.refused > 0:
		return v1alpha1.OffloadingPhaseSomeFailed
	}
	return v1alpha1.OffloadingPhaseInProgress
}

func (t *counts) messages() string {
	return oneLine(fmt.Sprintf("%d of %d clusters are ready; %s", t.ready, t.wanted, strings.Join(t.said, "; ")), maxHint)
}
