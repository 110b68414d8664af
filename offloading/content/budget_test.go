package content

import (
	"strings"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBudget(t *testing.T) {
	testDecode(t, "PodDisruptionBudget", Rules{}, []decoding{
		{"a number", `{"content":{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}}`, ""},
		{"a share", `{"content":{"maxUnavailable":"30%","unhealthyPodEvictionPolicy":"AlwaysAllow","selector":{"matchExpressions":[{"key":"a","operator":"Exists"}]}}}`, ""},
		{"none", `{"content":{"maxUnavailable":0}}`, ""},
		{"all", `{"content":{"minAvailable":"100%"}}`, ""},
		{"less than none", `{"content":{"minAvailable":-1}}`, "whole numbers"},
		{"more than all", `{"content":{"minAvailable":"101%"}}`, "whole numbers"},
		{"no share", `{"content":{"maxUnavailable":"1e9%"}}`, "whole numbers"},
		{"half a pod", `{"content":{"maxUnavailable":0.5}}`, "not the JSON"},
		{"a long selector", `{"content":{"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["` + strings.Repeat(`x","`, maxSelector) + `"]}]}}}`, "terms, at most"},
		{"a status", `{"content":{"minAvailable":1},"status":{}}`, "not the JSON"},
	})
	if _, wrong := Kinds["PodDisruptionBudget"].Decode(`{"content":{"minAvailable":1}}`, Rules{NoBudgets: true}); !strings.Contains(wrong, "takes no PodDisruptionBudgets") {
		t.Errorf("not allowed: %q", wrong)
	}
}

func TestMergeBudget(t *testing.T) {
	k := Kinds["PodDisruptionBudget"]
	have, _ := k.Decode(`{"content":{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}}`, Rules{})
	have.(*policyv1.PodDisruptionBudget).Status.CurrentHealthy = 3
	have.(*policyv1.PodDisruptionBudget).Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{}
	for _, c := range []struct {
		text    string
		changed bool
	}{{`{"content":{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}}}`, false}, {`{"content":{"maxUnavailable":1}}`, true}} {
		want, _ := k.Decode(c.text, Rules{})
		next, changed, replace := k.Merge(have, want)
		if changed != c.changed || replace || next.(*policyv1.PodDisruptionBudget).Status.CurrentHealthy != 3 {
			t.Errorf("%s: changed %v, replace %v", c.text, changed, replace)
		}
	}
}
