package content

import (
	"strings"
	"testing"

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
