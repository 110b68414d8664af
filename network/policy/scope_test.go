package policy

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestScope holds which pods of other namespaces policies are about.
func TestScope(t *testing.T) {
	for reason, c := range map[string]struct {
		spec string
		want bool
	}{
		"isolation alone":                      {`{podSelector: {}}`, false},
		"pods of the namespace itself":         {`{podSelector: {}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}]}]}`, false},
		"everybody":                            {`{podSelector: {}, ingress: [{}], egress: [{ports: [{port: 80}]}]}`, false},
		"blocks":                               {`{podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: 80}]}]}`, false},
		"a port by its name, of guarded pods":  {`{podSelector: {}, ingress: [{ports: [{port: web}]}]}`, false},
		"a port by its name, of whoever":       {`{podSelector: {}, egress: [{ports: [{port: web}]}]}`, true},
		"one of whoever is in a block":         {`{podSelector: {}, egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}], ports: [{port: web}]}]}`, true},
		"one of pods of the namespace":         {`{podSelector: {}, egress: [{to: [{podSelector: {}}], ports: [{port: web}]}]}`, false},
		"all namespaces":                       {`{podSelector: {}, ingress: [{from: [{namespaceSelector: {}}]}]}`, true},
		"its namespace":                        {`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: a}}}]}]}`, true},
		"another namespace":                    {`{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: b}}}]}]}`, false},
		"such pods of its namespace":           {`{podSelector: {}, egress: [{to: [{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}]}]}`, true},
		"other pods of its namespace":          {`{podSelector: {}, egress: [{to: [{namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: db}}}]}]}`, false},
		"namespaces that nobody can read":      {`{podSelector: {}, egress: [{to: [{namespaceSelector: {matchExpressions: [{key: a, operator: x}]}}]}]}`, true},
		"pods that nobody can read":            {`{podSelector: {}, egress: [{to: [{namespaceSelector: {}, podSelector: {matchExpressions: [{key: a, operator: x}]}}]}]}`, true},
		"such pods, and nobody in a direction": {`{podSelector: {}, policyTypes: [Ingress], egress: [{to: [{namespaceSelector: {}}]}]}`, true},
	} {
		s := ScopeOf("n0", policies(t, c.spec))
		if got := s.Holds("n1", map[string]string{"team": "a"}, map[string]string{"app": "web"}); got != c.want {
			t.Errorf("of %s is said %t", reason, got)
		}
		if !s.Holds("n0", nil, nil) {
			t.Errorf("of %s no pod of the namespace itself is in the scope", reason)
		}
	}
}

// TestScopeOfRandom holds that a pod that is in no scope changes no rule, in many small worlds.
func TestScopeOfRandom(t *testing.T) {
	apart := 0
	for seed := range uint64(3000) {
		d := dice{rand.New(rand.NewPCG(seed, 3))}
		w := d.world()
		if d.in(20) && len(w.Policies) > 0 {
			w.Policies[0].Spec.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "x"}}
		}
		scope, want := ScopeOf(w.Namespace, w.Policies), Compile(w)
		out := func(p Pod) bool { return !scope.Holds(p.Namespace, w.Namespaces[p.Namespace], p.Labels) }
		less := w
		less.Others, less.Near = slices.DeleteFunc(slices.Clone(w.Others), out), slices.DeleteFunc(slices.Clone(w.Near), out)
		if len(w.Policies) > 0 {
			apart += len(w.Others) - len(less.Others)
		}
		if got := Compile(less); !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: pods that are not in the scope change the rules; policies\n%s", seed, display(w.Policies))
		}
	}
	if apart < 500 {
		t.Errorf("%d pods were in no scope: too few to mean something", apart)
	}
}
