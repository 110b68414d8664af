package content

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestBudget(t *testing.T) {
	testDecode(t, "PodDisruptionBudget", Rules{Budgets: true}, []decoding{
		{"a number", `{"content":{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}}`, ""},
		{"with a policy", `{"content":{"minAvailable":0,"unhealthyPodEvictionPolicy":"AlwaysAllow","selector":{"matchExpressions":[{"key":"a","operator":"Exists"}]}}}`, ""},
		{"less than none", `{"content":{"minAvailable":-1}}`, "whole number"},
		{"a share would forbid every eviction", `{"content":{"minAvailable":"50%"}}`, "not the JSON"},
		{"so would maxUnavailable", `{"content":{"maxUnavailable":1}}`, "maxUnavailable"},
		{"half a pod", `{"content":{"minAvailable":0.5}}`, "not the JSON"},
		{"a long selector", `{"content":{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["` + strings.Repeat(`x","`, maxSelector) + `"]}]}}}`, "terms, at most"},
		{"a status", `{"content":{"minAvailable":1},"status":{}}`, "not the JSON"},
	})
	if _, wrong := Kinds["PodDisruptionBudget"].Decode(`{"content":{"minAvailable":2000000000}}`, Rules{}); !strings.Contains(wrong, "takes no PodDisruptionBudgets") || !strings.Contains(wrong, "spec.disruptionBudgets") {
		t.Errorf("an owner who says nothing takes none: %q", wrong)
	}
}

func TestEncodeBudget(t *testing.T) {
	one, half := intstr.FromInt32(1), intstr.FromString("50%")
	for _, c := range []struct {
		spec    policyv1.PodDisruptionBudgetSpec
		travels bool
	}{
		{policyv1.PodDisruptionBudgetSpec{MinAvailable: &one}, true}, {policyv1.PodDisruptionBudgetSpec{MinAvailable: &half}, false},
		{policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one}, false}, {policyv1.PodDisruptionBudgetSpec{}, false},
	} {
		if _, wrong := Kinds["PodDisruptionBudget"].Encode(&policyv1.PodDisruptionBudget{Spec: c.spec}); (wrong == "") != c.travels {
			t.Errorf("%+v: %q", c.spec, wrong)
		}
	}
}

func TestMergeBudget(t *testing.T) {
	k := Kinds["PodDisruptionBudget"]
	have, _ := k.Decode(`{"content":{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}}`, Rules{Budgets: true})
	have.(*policyv1.PodDisruptionBudget).Status.CurrentHealthy = 3
	have.(*policyv1.PodDisruptionBudget).Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{}
	for _, c := range []struct {
		text    string
		changed bool
	}{{`{"content":{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}}`, false}, {`{"content":{"minAvailable":2}}`, true}} {
		want, _ := k.Decode(c.text, Rules{Budgets: true})
		next, changed, replace := k.Merge(have, want)
		if changed != c.changed || replace || next.(*policyv1.PodDisruptionBudget).Status.CurrentHealthy != 3 {
			t.Errorf("%s: changed %v, replace %v", c.text, changed, replace)
		}
	}
}

// TestLeastThere: a provider lets as many pods go as home's budget would, whatever form that has, and none
// where home's lets none go.
func TestLeastThere(t *testing.T) {
	counted := func(desired, expected int32) policyv1.PodDisruptionBudgetStatus {
		return policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 2, DesiredHealthy: desired, ExpectedPods: expected}
	}
	failed := counted(3, 4)
	failed.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.SyncFailedReason}}
	older := counted(3, 4)
	older.ObservedGeneration = 1
	never := failed
	never.ObservedGeneration = 0
	for _, c := range []struct {
		reason          string
		status          policyv1.PodDisruptionBudgetStatus
		elsewhere, want int32
		known           bool
	}{
		{"all are there, one may go", counted(3, 4), 0, 3, true},
		{"two are there, and two well elsewhere", counted(3, 4), 2, 1, true},
		{"one of those elsewhere is not well, so none may go", counted(3, 4), 1, 2, true},
		{"one of those there is not well: the provider sees that itself", counted(3, 4), 2, 1, true},
		{"none elsewhere is well: more are wanted than are there, and none may go", counted(3, 4), 0, 3, true},
		{"enough are elsewhere", counted(3, 4), 3, 0, true},
		{"more than enough, as while a Deployment is rolled", counted(3, 4), 5, 0, true},
		{"one of one: it may go", counted(0, 1), 0, 0, true},
		{"no controller of its pods is known, so home lets none go", counted(0, 0), 1, math.MaxInt32, true},
		{"home cannot count any more, and lets none go", failed, 2, math.MaxInt32, true},
		{"home could never count for the budget as it is", never, 2, math.MaxInt32, true},
		{"the budget is another one than was counted for", older, 2, 0, false},
		{"it was not counted yet", policyv1.PodDisruptionBudgetStatus{}, 2, 0, false},
	} {
		least, known := LeastThere(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Generation: 2}, Status: c.status}, c.elsewhere)
		if least != c.want || known != c.known {
			t.Errorf("%s: %d (%v), want %d (%v)", c.reason, least, known, c.want, c.known)
		}
	}
}

// TestWithLeast: what was counted travels as a number, and to builds of any age.
func TestWithLeast(t *testing.T) {
	one, half := intstr.FromInt32(1), intstr.FromString("50%")
	for _, c := range []struct {
		reason string
		spec   policyv1.PodDisruptionBudgetSpec
		least  int32
		counts bool
		want   string
	}{
		{"the usual form", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one}, 2, true, `{"content":{"minAvailable":2}}`},
		{"a share that may go", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &half}, 2, true, `{"content":{"minAvailable":2}}`},
		{"a share that stays", policyv1.PodDisruptionBudgetSpec{MinAvailable: &half, UnhealthyPodEvictionPolicy: new(policyv1.IfHealthyBudget)}, 2, true, `{"content":{"minAvailable":2,"unhealthyPodEvictionPolicy":"IfHealthyBudget"}}`},
		{"none has to stay, and not those that are not ready either", policyv1.PodDisruptionBudgetSpec{MaxUnavailable: &one, UnhealthyPodEvictionPolicy: new(policyv1.IfHealthyBudget)}, 0, true, `{"content":{"minAvailable":0,"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`},
		{"a number goes as it is", policyv1.PodDisruptionBudgetSpec{MinAvailable: &one}, 2, false, ""},
		{"without either there is nothing to count", policyv1.PodDisruptionBudgetSpec{}, 2, false, ""},
	} {
		b := &policyv1.PodDisruptionBudget{Spec: c.spec}
		if Counted(b) != c.counts {
			t.Errorf("%s: counted %v", c.reason, !c.counts)
		}
		if !c.counts {
			continue
		}
		text, wrong := Kinds["PodDisruptionBudget"].Encode(WithLeast(b, c.least))
		if diff := cmp.Diff(c.want, text); diff != "" || wrong != "" || Counted(b) != c.counts {
			t.Errorf("%s: %q, or what is at home was changed: %s", c.reason, wrong, diff)
		}
	}
}
