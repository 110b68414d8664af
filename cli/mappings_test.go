package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pelago-dev/pelago/api/v1alpha1"
)

func TestJudgeMappings(t *testing.T) {
	with := func(name string, generation int64, conditions ...metav1.Condition) v1alpha1.IPMapping {
		o := v1alpha1.IPMapping{Status: v1alpha1.IPMappingStatus{Conditions: conditions}}
		o.Namespace, o.Name, o.Generation = "shop", name, generation
		return o
	}
	ready := func(status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: "why", ObservedGeneration: 1}
	}
	ending := with("ending", 1)
	ending.DeletionTimestamp = &metav1.Time{}
	s := &snapshot{mapped: []v1alpha1.IPMapping{
		with("well", 1, ready(metav1.ConditionTrue, v1alpha1.ReasonReady)), with("new", 1), with("changed", 2, ready(metav1.ConditionTrue, v1alpha1.ReasonReady)),
		with("waits", 1, ready(metav1.ConditionFalse, v1alpha1.ReasonWaiting)), with("refused", 1, ready(metav1.ConditionFalse, v1alpha1.ReasonNotMappable)), ending,
	}}
	var r Report
	s.judgeMappings(&r)
	shown := func(all []Problem) (texts []string) {
		for _, p := range all {
			texts = append(texts, p.Object+" "+p.Reason+" "+p.Message)
		}
		return texts
	}
	if d := cmp.Diff([]string{"mapping shop/refused NotMappable why"}, shown(r.Problems)); d != "" {
		t.Errorf("problems (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"mapping shop/new Pending nobody has said yet how it is", "mapping shop/changed Pending nobody has said yet how it is", "mapping shop/waits Waiting why"}, shown(r.Pending)); d != "" {
		t.Errorf("pending (-want +got):\n%s", d)
	}
}
