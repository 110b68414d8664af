package agent

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pelago-dev/pelago/api/v1alpha1"
	"github.com/pelago-dev/pelago/internal/kubetest"
	"github.com/pelago-dev/pelago/network/plan"
)

// TestRulesAreRead holds, at a real API server, that what a consumer writes becomes what its gateway
// guards, and that it is forgotten with the objects.
func TestRulesAreRead(t *testing.T) {
	server := kubetest.Server(t)
	api := server.Client(t)
	tenant := server.Name(t, "turin")
	at, mapped := v1alpha1.TenantNamespacePrefix+tenant, server.Name(t, "shop")
	create := func(o client.Object) {
		t.Helper()
		if err := api.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = api.Delete(context.Background(), o) })
	}
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: at}})
	create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: mapped, Labels: map[string]string{v1alpha1.LabelTenant: tenant, v1alpha1.LabelHomeNamespace: "shop"}}})
	for i, name := range []string{"provider", "consumer"} {
		c := networkConfig(at, name, byte(i+1), "10.42.0.0/16")
		create(&c)
	}
	c, changed := begun(t, server.Config, at)
	until := func(what string, holds func(*ruleset) bool) {
		t.Helper()
		limit := time.After(20 * time.Second)
		look := func() *ruleset { // as a plan does
			c.rations.Begin(time.Now())
			return c.facts().rules[ruleKey{at, "shop"}]
		}
		for !holds(look()) {
			select {
			case <-changed:
			case <-limit:
				t.Fatalf("not within 20 s: %s", what)
			}
		}
	}
	until("there are none", func(s *ruleset) bool { return s == nil })
	n := rulesOf(at, "shop", way(ingress), []v1alpha1.NetworkRule{{Policy: "db", Direction: ingress, AnyPeer: true}}, v1alpha1.NetworkRulesPod{UID: "db", Isolated: way(ingress), Selected: []int32{0}})
	n.ResourceVersion = ""
	create(&n)
	until("they are known", func(s *ruleset) bool { return s != nil && len(s.pods) == 1 && s.guarded.in && len(s.rules) == 1 })
	n.Spec.Pods = append(n.Spec.Pods, v1alpha1.NetworkRulesPod{UID: "web"})
	if err := api.Update(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	until("a pod has come", func(s *ruleset) bool { return len(s.pods) == 2 })
	n.Spec.Shards = 2
	if err := api.Update(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	until("a shard is missing, and what was known goes on", func(s *ruleset) bool {
		wrong := slices.ContainsFunc(c.facts().wrongRules, func(p plan.Problem) bool { return strings.HasSuffix(p.Object, " in "+at) })
		return len(s.pods) == 2 && wrong
	})
	if err := api.Delete(t.Context(), &n); err != nil {
		t.Fatal(err)
	}
	until("they are gone", func(s *ruleset) bool { return s == nil })
}

// begun is what an agent knows of the cluster at a server, from when it knows it until the test ends, and is told
// of changes by.
func begun(t *testing.T, config *rest.Config, namespace string) (*cluster, chan struct{}) {
	t.Helper()
	changed := make(chan struct{}, 1)
	c, err := newCluster(Options{Config: config, Node: "a", Namespace: namespace, Log: logr.Discard()}, func() { signal(changed) }, func() {}, func(string, *coordinationv1.Lease) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- c.run(ctx) }()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	if !c.wait(ctx) {
		t.Fatal("the caches are not there")
	}
	return c, changed
}

// TestUnread holds that home's own pods of a namespace whose rules were never read are isolated, those of others
// and of providers' tenants are not asked for, and that nobody is followed for it any more when they are.
func TestUnread(t *testing.T) {
	rules := v1alpha1.NetworkRules{
		ObjectMeta: metav1.ObjectMeta{Namespace: atMilan, Name: v1alpha1.NetworkRulesName("shop", 0)},
		Spec:       v1alpha1.NetworkRulesSpec{Namespace: "shop", Shards: 2, Guarded: []v1alpha1.NetworkDirection{v1alpha1.NetworkEgress}},
	}
	theirs := *rules.DeepCopy()
	theirs.Namespace, theirs.Name, theirs.Spec.Namespace = atTurin, v1alpha1.NetworkRulesName("bank", 0), "bank"
	facts := func(all ...v1alpha1.NetworkRules) facts {
		f := ruled(all...)
		f.inside = map[string][]corev1.Pod{
			"shop": {podAt(labelled("shop", "back"), "a", "10.42.1.9"), podAt(labelled("shop", "away"), "milan", "10.81.3.4")}, "other": {podAt(labelled("other", "x"), "a", "10.42.1.10")},
		}
		return f
	}
	f := facts(rules, theirs)
	if s := f.subjects(); !s[subject{pods: "shop"}] || s[subject{pods: "bank"}] || s[subject{pods: "other"}] {
		t.Errorf("followed are %v", s)
	}
	k := input(f)
	g := k.input.Peerings[0].Guard
	if g == nil || !slices.Equal(g.HereIn, addrs("10.42.1.9")) || !slices.Equal(g.HereOut, addrs("10.42.1.9")) {
		t.Errorf("isolated are %+v", g)
	}
	if !slices.ContainsFunc(k.problems, func(p plan.Problem) bool {
		return strings.Contains(p.Text, "until then all pods of this namespace are isolated")
	}) {
		t.Errorf("said is %v", k.problems)
	}
	rules.Spec.Shards = 1
	f = facts(rules)
	g = input(f).input.Peerings[0].Guard
	if s := f.subjects(); s[subject{pods: "shop"}] || g == nil || len(g.HereOut) > 0 {
		t.Errorf("when the rules are there, followed are %v, and isolated %+v", s, g)
	}
}
